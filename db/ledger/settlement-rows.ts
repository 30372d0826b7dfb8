import type { Settlement } from "./rows.ts";

/** The settlements of a batch as ledger_commit reads them: what they have in common once, as groups. */
export function settlementRows(settlements: readonly Settlement[]): {
  readonly groups: readonly Record<string, unknown>[];
  readonly settlements: readonly Record<string, unknown>[];
} {
  const groups = new Map<string, number>();
  const groupRows: Record<string, unknown>[] = [];
  let last: Settlement | undefined;
  let lastGroup = 0;
  const rows = settlements.map((settlement, n) => {
    if (last !== undefined && isSameGroup(last, settlement)) {
      return settlementRow(settlement, n, lastGroup);
    }
    const name = `${settlement.dayAccount} ${settlement.model} ${settlement.provider} ${settlement.status} ${settlement.estimated} ${settlement.description}`;
    let g = groups.get(name);
    if (g === undefined) {
      g = groupRows.length;
      groups.set(name, g);
      groupRows.push(groupRow(settlement, g));
    }
    last = settlement;
    lastGroup = g;
    return settlementRow(settlement, n, g);
  });
  return { groups: groupRows, settlements: rows };
}

/** Most of a batch has all of this in common with its neighbour. */
function isSameGroup(one: Settlement, other: Settlement): boolean {
  return (
    one.dayAccount === other.dayAccount &&
    one.monthAccount === other.monthAccount &&
    one.orgAccount === other.orgAccount &&
    one.model === other.model &&
    one.provider === other.provider &&
    one.status === other.status &&
    one.estimated === other.estimated &&
    one.description === other.description
  );
}

function groupRow(settlement: Settlement, g: number): Record<string, unknown> {
  return {
    g,
    organization_id: settlement.organizationId,
    key_id: settlement.keyId,
    org_account: settlement.orgAccount,
    day_account: settlement.dayAccount,
    month_account: settlement.monthAccount,
    model: settlement.model,
    provider: settlement.provider,
    status: settlement.status,
    estimated: settlement.estimated,
    description: settlement.description,
  };
}

/** Members that are absent stand for zero, null and false. */
function settlementRow(settlement: Settlement, n: number, g: number): Record<string, unknown> {
  const row: Record<string, unknown> = {
    n,
    g,
    r: settlement.requestId,
    c: settlement.chargeNano.toString(),
    p: settlement.promptTokens,
    o: settlement.completionTokens,
    l: settlement.latencyMs,
  };
  if (settlement.cachedPromptTokens > 0) row.cp = settlement.cachedPromptTokens;
  if (settlement.reasoningTokens > 0) row.ro = settlement.reasoningTokens;
  if (settlement.details !== null) row.d = settlement.details;
  if (settlement.hasAttempt) row.a = true;
  return row;
}
