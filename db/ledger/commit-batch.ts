import type { Database, DatabaseTransaction } from "../client.ts";
import type { AccountTotals, Checkpoint, Settlement } from "./rows.ts";
import { settlementRows } from "./settlement-rows.ts";

export interface InstanceIdentity {
  readonly id: string;
  readonly epoch: bigint;
}

/** SQLSTATE with which the ledger refuses an instance that was declared dead. */
export const FENCED = "GW001";

export interface LedgerBatch {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  /** Accounts that already have a row, as far as is known; the others are created on the way. */
  readonly knownAccounts: ReadonlySet<string>;
  /** Set where an earlier try's outcome is unknown: what is already posted is passed over. */
  readonly recheck: boolean;
}

/**
 * Commits a batch in one statement and one round trip (function ledger_commit). Returns the totals of
 * the accounts it touched. Throws with SQLSTATE GW001 where the instance was declared dead.
 */
export async function commitLedgerBatch(
  sql: Database | DatabaseTransaction,
  instance: InstanceIdentity,
  batch: LedgerBatch,
): Promise<Map<string, AccountTotals>> {
  const [row] = await sql<{ totals: [string, string, string, string][] }[]>`
    SELECT ledger_commit(${batchJson(instance, batch)}::text::jsonb) AS totals`;
  const totals = new Map<string, AccountTotals>();
  for (const [id, creditNano, postedNano, sequence] of row!.totals) {
    totals.set(id, {
      creditNano: BigInt(creditNano),
      postedNano: BigInt(postedNano),
      sequence: BigInt(sequence),
    });
  }
  return totals;
}

/** One parameter, because each costs the driver as much as what is in it. Absent members are null. */
function batchJson(instance: InstanceIdentity, batch: LedgerBatch): string {
  const { checkpoints, settlements } = batch;
  return JSON.stringify({
    instance: instance.id,
    epoch: instance.epoch.toString(),
    checkpoints: checkpoints.length === 0 ? undefined : checkpoints.map(checkpointRow),
    ...(settlements.length > 0 && { ...touchedAccounts(batch), ...settlementRows(settlements) }),
    recheck: batch.recheck || undefined,
  });
}

function touchedAccounts(batch: LedgerBatch): {
  account_ids: string[];
  new_accounts: unknown[] | undefined;
} {
  const ids = new Set<string>();
  const fresh = new Map<string, unknown>();
  let last: Settlement | undefined;
  const touch = (settlement: Settlement, kind: "day" | "month", id: string): void => {
    if (ids.has(id)) return;
    ids.add(id);
    if (batch.knownAccounts.has(id)) return;
    fresh.set(id, newAccountRow(id, kind, settlement));
  };
  for (const settlement of batch.settlements) {
    // Most of a batch has its accounts in common with its neighbour.
    if (
      last?.dayAccount === settlement.dayAccount &&
      last.monthAccount === settlement.monthAccount &&
      last.orgAccount === settlement.orgAccount
    ) {
      continue;
    }
    last = settlement;
    ids.add(settlement.orgAccount);
    touch(settlement, "day", settlement.dayAccount);
    touch(settlement, "month", settlement.monthAccount);
  }
  return {
    account_ids: [...ids],
    new_accounts: fresh.size === 0 ? undefined : [...fresh.values()],
  };
}

export function newAccountRow(
  id: string,
  kind: "day" | "month",
  { organizationId, keyId }: { readonly organizationId: string; readonly keyId: string },
): Record<string, unknown> {
  return {
    id,
    kind,
    organization_id: organizationId,
    key_id: keyId,
    period_start: id.slice(id.lastIndexOf(":") + 1),
  };
}

export function checkpointRow(checkpoint: Checkpoint): Record<string, unknown> {
  return {
    request_id: checkpoint.requestId,
    organization_id: checkpoint.organizationId,
    key_id: checkpoint.keyId,
    org_account: checkpoint.orgAccount,
    day_account: checkpoint.dayAccount,
    month_account: checkpoint.monthAccount,
    hold_nano: checkpoint.holdNano.toString(),
    charge_nano: checkpoint.chargeNano.toString(),
    model: checkpoint.model,
    provider: checkpoint.provider,
    prompt_tokens: checkpoint.promptTokens,
    completion_tokens: checkpoint.completionTokens,
    estimated: checkpoint.estimated,
    latency_ms: checkpoint.latencyMs,
    details: checkpoint.details ?? undefined,
    started_at: new Date(checkpoint.startedAtMs).toISOString(),
  };
}
