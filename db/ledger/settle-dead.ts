import type { Quantities } from "../../src/lib/usage.ts";
import { type Database, isOutcomeUnknown, isServerUnable, sqlState } from "../client.ts";
import { TRANSIENT_STATES } from "../error-states.ts";
import { exchangeLedgerBatch } from "./exchange-batch.ts";
import type { HoldRelease, Settlement } from "./rows.ts";
import { FENCED, type InstanceIdentity } from "./settle-batch.ts";

export interface DeadSettled {
  /** Number of requests with a partly delivered answer, charged at their last checkpoints. */
  readonly settled: number;
  /** Number of released holds, of requests without a delivered answer. */
  readonly released: number;
  /** Errors of rows that the ledger rejected. These rows stay. */
  readonly failures: readonly unknown[];
}

interface OrphanedWork {
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
}

/** Status of a stream that ended with its instance: error code `internal`. The client did not disconnect. */
const STATUS_AFTER_DEATH = 500;
const BATCH = 500;
const MAX_TRIES = 10;

/**
 * Charges or releases what dead instances have left, in bounded batches, each fenced by the reaper's own instance.
 * Several reapers may run at the same time, and again after a failure: each request is settled once. Throws if the
 * reaper is itself declared dead or loses the database.
 */
export async function settleDead(sql: Database, reaper: InstanceIdentity): Promise<DeadSettled> {
  const failures: unknown[] = [];
  let settled = 0;
  let released = 0;
  for (let after = ""; ; ) {
    const { settlements, releases, last } = await orphanedAttempts(sql, after);
    if (last === undefined) break;
    after = last;
    settled += await settle(sql, reaper, { settlements, releases: [] }, failures);
    released += await settle(sql, reaper, { settlements: [], releases }, failures);
  }
  for (let after = ""; ; ) {
    const releases = await orphanedHolds(sql, after);
    if (releases.length === 0) break;
    after = releases.at(-1)!.requestId;
    released += await settle(sql, reaper, { settlements: [], releases }, failures);
  }
  return { settled, released, failures };
}

/** Writes the batch and returns the number of rows written. A rejected row fails alone. */
async function settle(
  sql: Database,
  reaper: InstanceIdentity,
  orphaned: OrphanedWork,
  failures: unknown[],
): Promise<number> {
  const { settlements, releases } = orphaned;
  const count = settlements.length + releases.length;
  if (count === 0) return 0;
  for (let tries = 1; ; tries++) {
    try {
      await exchangeLedgerBatch(sql, reaper, {
        checkpoints: [],
        settlements,
        releases,
        holds: [],
        knownAccounts: new Set(),
        // Another reaper may have been faster, or the dead instance in its last moment.
        recheck: true,
        isReaping: true,
      });
      return count;
    } catch (error) {
      if (isOutcomeUnknown(error) || sqlState(error) === FENCED) throw error;
      const isUnable = isServerUnable(error);
      const isTransient = isUnable || TRANSIENT_STATES.has(sqlState(error) ?? "");
      if (tries < MAX_TRIES && isTransient) continue;
      // The caller has to try again. Each row alone would fail as well.
      if (isUnable) throw error;
      if (count > 1) break;
      failures.push(error);
      return 0;
    }
  }
  const part = (
    { settlements: s, releases: r }: OrphanedWork,
    from: number,
    to?: number,
  ): OrphanedWork => ({
    settlements: s.slice(from, to),
    releases: r.slice(from, to),
  });
  const middle = count >> 1;
  const first = await settle(sql, reaper, part(orphaned, 0, middle), failures);
  return first + (await settle(sql, reaper, part(orphaned, middle), failures));
}

interface OrphanedAttempts {
  /** Charges of dead instances, at their last checkpoints. */
  readonly settlements: readonly Settlement[];
  /** Attempts whose holds have ended: nothing can be charged for them. */
  readonly releases: readonly HoldRelease[];
  readonly last: string | undefined;
}

/**
 * Finds attempts of dead instances. Only a request with a hold can be charged: a row in the database, or memory of a
 * single-node gateway.
 */
async function orphanedAttempts(sql: Database, after: string): Promise<OrphanedAttempts> {
  const rows = await sql<Record<string, never>[]>`
    SELECT a.*, ((a.hold_nano = 0 AND coalesce(a.budget_hold_nano, 0) = 0) OR h.id IS NOT NULL OR coalesce(i.is_alone, false)) AS is_held
    FROM attempts a LEFT JOIN instances i ON i.id = a.instance_id AND i.epoch = a.epoch
    LEFT JOIN holds h ON h.id = a.request_id
    WHERE (i.id IS NULL OR NOT i.alive) AND a.request_id > ${after}
    ORDER BY a.request_id LIMIT ${BATCH}`;
  const held: Settlement[] = [];
  const releases: HoldRelease[] = [];
  for (const row of rows) {
    const settlement = settlementOf(row);
    if ((row as Record<string, unknown>).is_held) held.push(settlement);
    else releases.push({ ...settlement, hasAttempt: true });
  }
  return { settlements: held, releases, last: rows.at(-1)?.request_id };
}

function settlementOf(row: Record<string, unknown>): Settlement {
  return {
    requestId: row.request_id as string,
    organizationId: row.organization_id as string,
    keyId: row.key_id as string,
    orgAccount: row.org_account as string,
    dayAccount: row.day_account as string,
    monthAccount: row.month_account as string,
    subjectAccounts: (row.subject_accounts as string[] | null) ?? undefined,
    chargeNano: row.charge_nano as bigint,
    budgetNano: (row.budget_charge_nano as bigint | null) ?? undefined,
    feeNano: (row.fee_nano as bigint | null) ?? undefined,
    model: row.model as string,
    provider: row.provider as string,
    status: STATUS_AFTER_DEATH,
    promptTokens: Number(row.prompt_tokens),
    // Checkpoints may leave these and the description empty.
    cachedPromptTokens: Number(row.cached_prompt_tokens ?? 0),
    completionTokens: Number(row.completion_tokens),
    reasoningTokens: Number(row.reasoning_tokens ?? 0),
    quantities: (row.quantities as Quantities | null) ?? null,
    estimated: row.estimated as boolean,
    latencyMs: row.latency_ms as number,
    details: row.details as Record<string, unknown> | null,
    description: `${(row.description as string | null) ?? `Chat completion: ${row.model as string}`} (cut off)`,
    hasAttempt: true,
  };
}

/** Finds the holds of dead instances' requests without a delivered answer. */
async function orphanedHolds(sql: Database, after: string): Promise<HoldRelease[]> {
  const rows = await sql<
    {
      id: string;
      org_account: string;
      day_account: string;
      month_account: string;
      subject_accounts: string[] | null;
    }[]
  >`
    SELECT h.id, h.org_account, h.day_account, h.month_account, h.subject_accounts
    FROM holds h LEFT JOIN instances i ON i.id = h.instance_id AND i.epoch = h.epoch
    WHERE h.instance_id IS NOT NULL AND (i.id IS NULL OR NOT i.alive) AND h.id > ${after}
      AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.request_id = h.id)
    ORDER BY h.id LIMIT ${BATCH}`;
  return rows.map((row) => ({
    requestId: row.id,
    orgAccount: row.org_account,
    dayAccount: row.day_account,
    monthAccount: row.month_account,
    subjectAccounts: row.subject_accounts ?? undefined,
    hasAttempt: false,
  }));
}
