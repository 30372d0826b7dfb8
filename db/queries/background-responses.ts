import type { Database } from "../client.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import { recordChange } from "./changes.ts";
import { CONTENTS_LIFETIME, LIFETIME, type NewResponse } from "./responses.ts";

/** All states but the first two are final. */
export type BackgroundState = "queued" | "in_progress" | "answered" | "failed" | "cancelled";

export function isRunning(state: BackgroundState): boolean {
  return state === "queued" || state === "in_progress";
}

export interface BackgroundResponse {
  readonly state: BackgroundState;
  /** Number of the last event that was written. */
  readonly lastSequence: number;
  /** True if the charge of the response is written, and the contents with it. */
  readonly isVisible: boolean;
}

export interface NewBackgroundResponse {
  readonly response: NewResponse;
  /** Size of all items before the response. */
  readonly chainBytes: number;
  readonly instance: InstanceIdentity;
  /** Largest number of running responses of one organization, over all instances. */
  readonly mostRunning: number;
}

/**
 * Inserts a response that this instance is going to run. Returns false if the organization has its maximum number of
 * running ones.
 */
export async function insertBackground(
  sql: Database,
  { response, chainBytes, instance, mostRunning }: NewBackgroundResponse,
): Promise<boolean> {
  const { id, organizationId, keyId, previousId, chainId } = response;
  return sql.begin(async (transaction) => {
    // One insertion of an organization at a time, so that the count is exact.
    await transaction`SELECT pg_advisory_xact_lock(
      hashtextextended(${`background responses of ${organizationId}`}, 0))`;
    // While the row is locked, this instance cannot be declared dead. So its reaper sees every response.
    const inserted = await transaction`
      WITH runner AS MATERIALIZED (
        SELECT id, epoch FROM instances
        WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive
        FOR KEY SHARE),
      response AS (
        INSERT INTO responses
          (id, organization_id, key_id, previous_id, chain_id, chain_bytes, remove_after)
        SELECT ${id}, ${organizationId}, ${keyId}, ${previousId}, ${chainId}, ${chainBytes},
          clock_timestamp() + ${CONTENTS_LIFETIME}::interval
        WHERE (SELECT count(*) FROM background_responses WHERE organization_id = ${organizationId}
          AND state IN ('queued', 'in_progress')) < ${mostRunning}
        RETURNING id)
      INSERT INTO background_responses (id, organization_id, instance_id, epoch)
      SELECT response.id, ${organizationId}, runner.id, runner.epoch FROM response, runner`;
    return inserted.count > 0;
  });
}

/** Returns undefined if the organization has no such response. */
export async function findBackground(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<BackgroundResponse | undefined> {
  const [row] = await sql<{ state: BackgroundState; last_sequence: number; is_kept: boolean }[]>`
    SELECT b.state, b.last_sequence, r.is_kept
    FROM background_responses b JOIN responses r ON r.id = b.id
    WHERE b.id = ${id} AND r.organization_id = ${organizationId}
      AND r.created_at > clock_timestamp() - ${LIFETIME}::interval`;
  return row && { state: row.state, lastSequence: row.last_sequence, isVisible: row.is_kept };
}

/** Consecutive events, or a piece of them, sealed. */
export interface EventPiece {
  /** Number of the first event of its batch. */
  readonly firstSequence: number;
  /** Number of the piece in its batch, from 0. */
  readonly number: number;
  readonly sealed: Uint8Array;
}

/** Enough digits that texts sort as numbers do. */
const SEQUENCE_DIGITS = 9;
const PIECE_DIGITS = 5;
const LAST_PART = `events.${"9".repeat(SEQUENCE_DIGITS)}.${"9".repeat(PIECE_DIGITS)}`;

function partOf({ firstSequence, number }: Omit<EventPiece, "sealed">): string {
  const sequence = String(firstSequence).padStart(SEQUENCE_DIGITS, "0");
  return `events.${sequence}.${String(number).padStart(PIECE_DIGITS, "0")}`;
}

/**
 * Appends events of a response that this instance runs. Repeating a call does no harm. `isRunning` is false if the
 * response has ended because the instance was declared dead; then nothing is written. It returns the id of the current
 * sealing key. If this is not `keyId`, nothing is written either.
 */
export async function appendEvents(
  sql: Database,
  { id, instance }: { readonly id: string; readonly instance: InstanceIdentity },
  piece: EventPiece & { readonly lastSequence: number },
  keyId: string,
): Promise<{ readonly sealingId: string; readonly isRunning: boolean }> {
  const [row] = await sql<{ sealing_id: string | null; is_running: boolean }[]>`
    WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
    run AS (
      UPDATE background_responses SET last_sequence = ${piece.lastSequence},
        state = CASE WHEN ${piece.firstSequence}::integer > 0 THEN 'in_progress' ELSE state END
      WHERE id = ${id} AND instance_id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint
        AND state IN ('queued', 'in_progress') AND EXISTS (SELECT 1 FROM sealing WHERE key_id = ${keyId})
      RETURNING id),
    written AS (
      INSERT INTO response_contents (response_id, part, sealed)
      SELECT id, ${partOf(piece)}, ${piece.sealed as Buffer}::bytea FROM run
      ON CONFLICT (response_id, part) DO UPDATE SET sealed = EXCLUDED.sealed)
    SELECT (SELECT key_id FROM sealing) AS sealing_id, EXISTS (SELECT 1 FROM run) AS is_running`;
  if (!row?.sealing_id) throw new Error("the database has not been used with a master key yet");
  return { sealingId: row.sealing_id, isRunning: row.is_running };
}

/** Finds the batch that may hold the event after a number. */
export async function findEventBatch(
  sql: Database,
  id: string,
  after: number,
): Promise<Omit<EventPiece, "sealed">> {
  const last = partOf({ firstSequence: after + 1, number: 10 ** PIECE_DIGITS - 1 });
  const [row] = await sql<{ part: string | null }[]>`
    SELECT max(part) AS part FROM response_contents
    WHERE response_id = ${id} AND part BETWEEN 'events.0' AND ${last}`;
  const [, sequence = "0"] = row?.part?.split(".") ?? [];
  return { firstSequence: Number(sequence), number: 0 };
}

/** Reads up to `limit` pieces in their order, starting with that piece. */
export async function readEvents(
  sql: Database,
  id: string,
  from: Omit<EventPiece, "sealed">,
  limit: number,
): Promise<EventPiece[]> {
  const rows = await sql<{ part: string; sealed: Uint8Array }[]>`
    SELECT part, sealed FROM response_contents
    WHERE response_id = ${id} AND part BETWEEN ${partOf(from)} AND ${LAST_PART}
    ORDER BY part LIMIT ${limit}`;
  return rows.map(({ part, sealed }) => {
    const [, sequence, number] = part.split(".");
    return { firstSequence: Number(sequence), number: Number(number), sealed };
  });
}

/**
 * Records that a response of this instance has ended. If its charge made it visible, its state becomes `answered`.
 */
export async function endBackground(
  sql: Database,
  { id, instance }: { readonly id: string; readonly instance: InstanceIdentity },
  {
    state,
    lastSequence,
  }: { readonly state: "failed" | "cancelled"; readonly lastSequence: number },
): Promise<void> {
  await sql`UPDATE background_responses b
    SET state = CASE WHEN r.is_kept THEN 'answered' ELSE ${state} END, last_sequence = ${lastSequence}
    FROM responses r WHERE r.id = b.id AND b.id = ${id} AND b.instance_id = ${instance.id}
      AND b.epoch = ${instance.epoch.toString()}::bigint AND b.state IN ('queued', 'in_progress')`;
}

/** Ends the responses that dead instances were running. */
export async function failOrphanedResponses(sql: Database): Promise<void> {
  await sql`UPDATE background_responses b
    SET state = CASE WHEN r.is_kept THEN 'answered' ELSE 'failed' END
    FROM responses r WHERE r.id = b.id AND b.state IN ('queued', 'in_progress') AND NOT EXISTS (
      SELECT 1 FROM instances i WHERE i.id = b.instance_id AND i.epoch = b.epoch AND i.alive)`;
}

/** Requests the cancellation of a response from the instance that runs it. */
export async function requestCancel(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<void> {
  await sql.begin(async (transaction) => {
    const update = await transaction`UPDATE background_responses SET is_cancelling = true
      WHERE id = ${id} AND organization_id = ${organizationId} AND state IN ('queued', 'in_progress')`;
    if (update.count > 0) await recordChange(transaction, "response-cancel", id);
  });
}

/** Returns the ids of the responses whose cancellation was requested. */
export async function cancelledAmong(sql: Database, ids: readonly string[]): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`SELECT id FROM background_responses
    WHERE id = ANY (${sql.array([...ids])}::text[]) AND is_cancelling`;
  return rows.map(({ id }) => id);
}
