import { type ExactInteger, exact, plus } from "../../src/lib/exact-integer.ts";
import { isSamePayer } from "./charged-accounts.ts";
import type { Settlement } from "./rows.ts";

/**
 * Is told of each settlement in turn: its group, from 0, its place among the charges of its organization,
 * from 1, its charge, and the sum of these charges up to it.
 */
export type SettlementVisitor = (
  settlement: Settlement,
  group: number,
  place: number,
  chargeNano: ExactInteger,
  sumNano: ExactInteger,
) => void;

/** Puts together what has all but its figures in common. Returns the first settlement of each group. */
export function groupSettlements(
  settlements: readonly Settlement[],
  visit: SettlementVisitor,
): readonly Settlement[] {
  const groups = new Groups();
  /** Made where there is a second one: most batches are of one organization. */
  let sums: Map<string, RunningSum> | undefined;
  let last: Settlement | undefined;
  let sum: RunningSum = { count: 0, nano: 0 };
  let group = 0;
  for (const settlement of settlements) {
    const { orgAccount } = settlement;
    if (last !== undefined && last.orgAccount !== orgAccount) {
      sums ??= new Map([[last.orgAccount, sum]]);
      sum = sums.get(orgAccount) ?? { count: 0, nano: 0 };
      sums.set(orgAccount, sum);
    }
    if (last === undefined || !isSameGroup(last, settlement)) group = groups.of(settlement);
    last = settlement;
    const chargeNano = exact(settlement.chargeNano);
    sum.count++;
    sum.nano = plus(sum.nano, chargeNano);
    visit(settlement, group, sum.count, chargeNano, sum.nano);
  }
  return groups.firsts;
}

/** Of the charges of one organization, up to the one at hand. */
interface RunningSum {
  count: number;
  nano: ExactInteger;
}

class Groups {
  readonly firsts: Settlement[] = [];
  /** Made where there is a second one: most batches have one group. */
  #byName: Map<string, number> | undefined;

  of(settlement: Settlement): number {
    const first = this.firsts[0];
    if (first === undefined) {
      this.firsts.push(settlement);
      return 0;
    }
    this.#byName ??= new Map([[nameOf(first), 0]]);
    const name = nameOf(settlement);
    let group = this.#byName.get(name);
    if (group === undefined) {
      group = this.firsts.push(settlement) - 1;
      this.#byName.set(name, group);
    }
    return group;
  }
}

function nameOf(settlement: Settlement): string {
  const { dayAccount, model, provider, status, estimated, description } = settlement;
  return `${dayAccount} ${model} ${provider} ${status} ${estimated} ${description}`;
}

/** Most of a batch has all of this in common with its neighbour. */
function isSameGroup(one: Settlement, other: Settlement): boolean {
  return (
    isSamePayer(one, other) &&
    one.model === other.model &&
    one.provider === other.provider &&
    one.status === other.status &&
    one.estimated === other.estimated &&
    one.description === other.description
  );
}
