import { isSamePayer } from "./charged-accounts.ts";
import type { Settlement } from "./rows.ts";

export interface SettlementRows {
  readonly groups: readonly Record<string, unknown>[];
  readonly settlements: readonly Record<string, unknown>[];
}

/**
 * The settlements of a batch as ledger_settle and ledger_exchange read them: what they have in common
 * once, as groups. `placeOf` tells the place of an account in the batch.
 */
export function settlementRows(
  settlements: readonly Settlement[],
  placeOf: (accountId: string) => number,
): SettlementRows {
  const groups = new Map<string, number>();
  const groupRows: Record<string, unknown>[] = [];
  const sums = new Map<string, RunningSum>();
  let last: Settlement | undefined;
  let lastGroup = 0;
  let sum: RunningSum = { count: 0, nano: 0n };
  const rows = settlements.map((settlement) => {
    if (last?.orgAccount !== settlement.orgAccount) {
      sum = sums.get(settlement.orgAccount) ?? { count: 0, nano: 0n };
      sums.set(settlement.orgAccount, sum);
    }
    sum.count++;
    sum.nano += settlement.chargeNano;
    if (last !== undefined && isSameGroup(last, settlement)) {
      return settlementRow(settlement, sum, lastGroup);
    }
    const name = `${settlement.dayAccount} ${settlement.model} ${settlement.provider} ${settlement.status} ${settlement.estimated} ${settlement.description}`;
    let g = groups.get(name);
    if (g === undefined) {
      g = groupRows.length;
      groups.set(name, g);
      groupRows.push(groupRow(settlement, g, placeOf(settlement.orgAccount)));
    }
    last = settlement;
    lastGroup = g;
    return settlementRow(settlement, sum, g);
  });
  return { groups: groupRows, settlements: rows };
}

/** Of the charges of one organization, up to the one at hand. */
interface RunningSum {
  count: number;
  nano: bigint;
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

function groupRow(settlement: Settlement, g: number, o: number): Record<string, unknown> {
  return {
    g,
    o,
    organization_id: settlement.organizationId,
    key_id: settlement.keyId,
    model: settlement.model,
    provider: settlement.provider,
    status: settlement.status,
    estimated: settlement.estimated,
    description: settlement.description,
  };
}

/** Members that are absent stand for zero and null. */
function settlementRow(
  settlement: Settlement,
  { count, nano }: RunningSum,
  g: number,
): Record<string, unknown> {
  const row: Record<string, unknown> = {
    n: count,
    g,
    r: settlement.requestId,
    c: settlement.chargeNano.toString(),
    t: nano.toString(),
    p: settlement.promptTokens,
    o: settlement.completionTokens,
    l: settlement.latencyMs,
  };
  if (settlement.cachedPromptTokens > 0) row.cp = settlement.cachedPromptTokens;
  if (settlement.reasoningTokens > 0) row.ro = settlement.reasoningTokens;
  if (settlement.details !== null) row.d = settlement.details;
  return row;
}
