import { type Clock, sleep, systemClock } from "../../src/lib/clock.ts";
import type { Database } from "../client.ts";
import type { CommittedBatch } from "./exchange-batch.ts";
import type { AccountTotals, HoldVerdict, Settlement } from "./rows.ts";
import { findPosted } from "./settle-batch.ts";
import { settlementsOf, type Unit } from "./units.ts";

const RETRY_DELAY_MS = 50;

export interface WrittenBefore {
  readonly written: readonly Unit[];
  readonly rest: readonly Unit[];
  /** The result that the commit of `written` would have returned. */
  readonly committed: CommittedBatch;
}

interface Found {
  readonly posted: ReadonlySet<string>;
  /** Amounts that attempts count in budgets: the charge, or more. */
  readonly attempts: ReadonlyMap<string, bigint>;
  /** Amounts of holds. */
  readonly holds: ReadonlyMap<string, { readonly holdNano: bigint; readonly budgetNano: bigint }>;
}

/** Asks until there is an answer: nothing may be reported or tried again before it is known. */
export async function untilAnswered<Answer>(
  clock: Clock,
  ask: () => Promise<Answer>,
): Promise<Answer> {
  for (;;) {
    try {
      return await ask();
    } catch {
      await sleep(clock, RETRY_DELAY_MS);
    }
  }
}

/**
 * Finds the units that a try of unknown outcome has written. That try must have ended. Releases count as not written,
 * because repeating them changes nothing.
 */
export async function findWritten(sql: Database, units: readonly Unit[]): Promise<WrittenBefore> {
  const found = await find(sql, units);
  const written = units.filter((unit) => isWritten(unit, found));
  const rest = units.filter((unit) => !written.includes(unit));
  const totals = await totalsOf(sql, settlementsOf(written));
  const verdicts = new Map<string, HoldVerdict>();
  for (const { hold } of written) {
    if (hold === undefined) continue;
    const { requestId } = hold.demand;
    verdicts.set(requestId, { kind: "granted", ...found.holds.get(requestId)! });
  }
  return { written, rest, committed: { accountIds: totals.keys(), totals, verdicts } };
}

async function find(sql: Database, units: readonly Unit[]): Promise<Found> {
  const settled = settlementsOf(units).map(({ requestId }) => requestId);
  const checkpointIds = units.flatMap(({ checkpoints }) =>
    checkpoints.map(({ requestId }) => requestId),
  );
  const heldIds = units.flatMap(({ hold }) => hold?.demand.requestId ?? []);
  const posted = await findPosted(sql, settled);
  const attempts = await sql<{ request_id: string; budget_nano: bigint }[]>`
    SELECT request_id, coalesce(budget_charge_nano, charge_nano) AS budget_nano FROM attempts
    WHERE request_id = ANY (${sql.array(checkpointIds)}::text[])`;
  const holds = await sql<{ id: string; hold_nano: bigint; budget_nano: bigint }[]>`
    SELECT id, hold_nano, coalesce(budget_nano, hold_nano) AS budget_nano FROM holds
    WHERE id = ANY (${sql.array(heldIds)}::text[])`;
  return {
    posted,
    attempts: new Map(attempts.map((row) => [row.request_id, row.budget_nano])),
    holds: new Map(
      holds.map((row) => [row.id, { holdNano: row.hold_nano, budgetNano: row.budget_nano }]),
    ),
  };
}

/**
 * Returns true if the unit was written: a unit is written as a whole or not at all. Charges of attempts only grow.
 */
function isWritten({ settlements, checkpoints, hold }: Unit, found: Found): boolean {
  if (settlements.length > 0) return settlements.every((one) => found.posted.has(one.requestId));
  if (hold !== undefined) {
    const { requestId, fullNano, budget, ...demand } = hold.demand;
    const held = found.holds.get(requestId);
    if (held === undefined || demand.extends !== true) return held !== undefined;
    return held.holdNano >= fullNano && held.budgetNano >= (budget?.fullNano ?? fullNano);
  }
  return (
    checkpoints.length > 0 &&
    checkpoints.every(({ requestId, chargeNano, budgetNano = chargeNano }) => {
      return (found.attempts.get(requestId) ?? -1n) >= budgetNano;
    })
  );
}

async function totalsOf(
  sql: Database,
  settlements: readonly Settlement[],
): Promise<Map<string, AccountTotals>> {
  const ids = new Set<string>();
  for (const { orgAccount, dayAccount, monthAccount, subjectAccounts = [] } of settlements) {
    ids.add(orgAccount).add(dayAccount).add(monthAccount);
    for (const id of subjectAccounts) ids.add(id);
  }
  const totals = new Map<string, AccountTotals>();
  if (ids.size === 0) return totals;
  const rows = await sql<
    { id: string; credit_nano: bigint; posted_nano: bigint; sequence: bigint }[]
  >`SELECT id, credit_nano, posted_nano, sequence FROM accounts
    WHERE id = ANY (${sql.array([...ids])}::text[])`;
  for (const row of rows) {
    totals.set(row.id, {
      creditNano: row.credit_nano,
      postedNano: row.posted_nano,
      sequence: row.sequence,
    });
  }
  return totals;
}

const POLL_MS = 20;
/** Postgres cuts names of sessions to this many bytes. */
const MAX_NAME_BYTES = 63;

/**
 * Ends the other sessions of this application name and resolves when they have ended. A statement whose reply was lost
 * with its connection may still run, or wait for a lock: after this it is certainly committed or rolled back. Tries
 * again while the database is unreachable.
 */
export async function endEarlierSession(
  sql: Database,
  applicationName: string,
  clock: Clock = systemClock,
): Promise<void> {
  const name = applicationName.slice(0, MAX_NAME_BYTES);
  for (;;) {
    try {
      const ended = await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = ${name} AND pid <> pg_backend_pid()`;
      if (ended.length === 0) return;
    } catch (error) {
      // Any other error is ignored: nothing may be tried again before the end is known.
      if ((error as { code?: unknown }).code === "CONNECTION_ENDED") return;
    }
    await sleep(clock, POLL_MS);
  }
}
