import type { ExactInteger } from "../../src/lib/exact-integer.ts";
import type { Settlement } from "./rows.ts";
import { groupSettlements } from "./settlement-groups.ts";

export interface SettlementRows {
  readonly groups: readonly Record<string, unknown>[];
  readonly settlements: readonly Record<string, unknown>[];
}

/** Places of accounts in a batch, from 1. */
export interface AccountPlaces {
  placeOf(accountId: string): number;
}

/**
 * The settlements of a batch as ledger_exchange reads them: what they have in common once, as groups.
 * Members that are absent stand for zero and null.
 */
export function settlementRows(
  settlements: readonly Settlement[],
  places: AccountPlaces,
): SettlementRows {
  const rows: Record<string, unknown>[] = [];
  const firsts = groupSettlements(settlements, (settlement, g, n, chargeNano) => {
    const row: Record<string, unknown> = {
      n,
      g,
      r: settlement.requestId,
      c: jsonInteger(chargeNano),
      p: settlement.promptTokens,
      o: settlement.completionTokens,
      l: settlement.latencyMs,
    };
    if (settlement.cachedPromptTokens > 0) row.cp = settlement.cachedPromptTokens;
    if (settlement.reasoningTokens > 0) row.ro = settlement.reasoningTokens;
    if (settlement.details !== null) row.d = settlement.details;
    rows.push(row);
  });
  const groups = firsts.map((first, g) => groupRow(first, g, places.placeOf(first.orgAccount)));
  return { groups, settlements: rows };
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

/** JSON knows no bigint; the database reads both alike. */
function jsonInteger(value: ExactInteger): number | string {
  return typeof value === "number" ? value : value.toString();
}
