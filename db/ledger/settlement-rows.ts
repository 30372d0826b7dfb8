import type { Settlement } from "./rows.ts";

/** The settlements of a batch as ledger_commit reads them: what they have in common once, as groups. */
export function settlementRows(settlements: readonly Settlement[]): {
  readonly groups: readonly Record<string, unknown>[];
  readonly settlements: readonly Record<string, unknown>[];
} {
  const groups = new Map<string, number>();
  const groupRows: Record<string, unknown>[] = [];
  const rows = settlements.map((settlement, n) => {
    const name = `${settlement.dayAccount} ${settlement.model} ${settlement.provider} ${settlement.status} ${settlement.estimated} ${settlement.description}`;
    let g = groups.get(name);
    if (g === undefined) {
      g = groupRows.length;
      groups.set(name, g);
      groupRows.push(groupRow(settlement, g));
    }
    return settlementRow(settlement, n, g);
  });
  return { groups: groupRows, settlements: rows };
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
