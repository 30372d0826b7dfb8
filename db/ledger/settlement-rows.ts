import { type ExactInteger, exact, plus } from "../../src/lib/exact-integer.ts";
import { isSamePayer, type Settlement } from "./rows.ts";

export interface SettlementRows {
  readonly groups: readonly Record<string, unknown>[];
  readonly settlements: readonly Record<string, unknown>[];
}

/** Positions of accounts in a batch, from 1. */
export interface AccountPositions {
  positionOf(accountId: string): number;
}

/**
 * Returns the settlements of a batch in the form that ledger_settle_batch and ledger_exchange_batch read. What they
 * have in common is in groups, once.
 */
export function settlementRows(
  settlements: readonly Settlement[],
  positions: AccountPositions,
): SettlementRows {
  const groups = new Groups(positions);
  const rows: Record<string, unknown>[] = [];
  /** Created for a second organization: most batches are of one. */
  let sums: Map<string, RunningSum> | undefined;
  let last: Settlement | undefined;
  let sum: RunningSum = { count: 0, nano: 0 };
  let g = 0;
  for (const settlement of settlements) {
    const { orgAccount } = settlement;
    if (last !== undefined && last.orgAccount !== orgAccount) {
      sums ??= new Map([[last.orgAccount, sum]]);
      sum = sums.get(orgAccount) ?? { count: 0, nano: 0 };
      sums.set(orgAccount, sum);
    }
    if (last === undefined || !isSameGroup(last, settlement)) g = groups.of(settlement);
    last = settlement;
    rows.push(settlementRow(settlement, sum, g));
  }
  return { groups: groups.rows, settlements: rows };
}

/** Sum of the charges of one organization, up to the current one. */
interface RunningSum {
  count: number;
  nano: ExactInteger;
}

class Groups {
  readonly rows: Record<string, unknown>[] = [];
  readonly #positions: AccountPositions;
  #first: Settlement | undefined;
  /** Created for a second group: most batches have one. */
  #byName: Map<string, number> | undefined;

  constructor(positions: AccountPositions) {
    this.#positions = positions;
  }

  of(settlement: Settlement): number {
    if (this.#first === undefined) {
      this.#first = settlement;
      return this.#add(settlement);
    }
    this.#byName ??= new Map([[nameOf(this.#first), 0]]);
    const name = nameOf(settlement);
    let g = this.#byName.get(name);
    if (g === undefined) {
      g = this.#add(settlement);
      this.#byName.set(name, g);
    }
    return g;
  }

  #add(settlement: Settlement): number {
    const g = this.rows.length;
    this.rows.push(groupRow(settlement, g, this.#positions.positionOf(settlement.orgAccount)));
    return g;
  }
}

function nameOf(settlement: Settlement): string {
  const { dayAccount, model, provider, status, estimated, description } = settlement;
  return `${dayAccount} ${model} ${provider} ${status} ${estimated} ${description}`;
}

/** Returns true if both share a group. Most settlements of a batch do with their neighbour. */
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

function groupRow(settlement: Settlement, group: number, account: number): Record<string, unknown> {
  return {
    group,
    account,
    organization_id: settlement.organizationId,
    key_id: settlement.keyId,
    model: settlement.model,
    provider: settlement.provider,
    status: settlement.status,
    estimated: settlement.estimated,
    description: settlement.description,
  };
}

/** Adds the settlement to the sum, and returns its row. Absent members mean zero and null. */
function settlementRow(
  settlement: Settlement,
  sum: RunningSum,
  group: number,
): Record<string, unknown> {
  const chargeNano = exact(settlement.chargeNano);
  sum.count++;
  sum.nano = plus(sum.nano, chargeNano);
  const row: Record<string, unknown> = {
    position: sum.count,
    group,
    request_id: settlement.requestId,
    charge_nano: jsonInteger(chargeNano),
    sum_nano: jsonInteger(sum.nano),
    prompt_tokens: settlement.promptTokens,
    completion_tokens: settlement.completionTokens,
    latency_ms: settlement.latencyMs,
  };
  if (settlement.cachedPromptTokens > 0) row.cached_prompt_tokens = settlement.cachedPromptTokens;
  if (settlement.reasoningTokens > 0) row.reasoning_tokens = settlement.reasoningTokens;
  if (settlement.quantities !== null) row.quantities = settlement.quantities;
  if (settlement.details !== null) row.details = settlement.details;
  if (settlement.feeNano !== undefined) row.fee_nano = jsonInteger(exact(settlement.feeNano));
  if (settlement.budgetNano !== undefined)
    row.budget_nano = jsonInteger(exact(settlement.budgetNano));
  return row;
}

/** Returns an integer for JSON, which has no bigint. The database reads both forms alike. */
export function jsonInteger(value: ExactInteger): number | string {
  return typeof value === "number" ? value : value.toString();
}
