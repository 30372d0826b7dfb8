import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import type { Seal } from "./master-key.ts";

export interface IdempotencyClaim {
  /** The API key; where the gateway asks by itself, the id of the object that it asks for. */
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly bodyHash: string;
  readonly requestId: string;
  /** Keeps, before its charge, a result that is too large to be kept with it. */
  storeLargeResult?(body: Uint8Array): Promise<void>;
}

export interface StoredResult {
  readonly status: number;
  readonly headers: Record<string, string>;
  /** Sealed. Null where the result was too large to keep. */
  readonly body: Uint8Array | null;
}

/** What is to be kept, with its body before it is sealed. */
export interface NewResult extends Pick<StoredResult, "status" | "headers"> {
  readonly body: Seal | null;
}

export type ClaimOutcome =
  | { readonly kind: "claimed" }
  | { readonly kind: "conflict" }
  | { readonly kind: "running" }
  | { readonly kind: "done"; readonly result: StoredResult };

/**
 * Claims an idempotency key for a request, or says what stands there already. A claim is durable before
 * the upstream is called, so that a second call finds it on any instance. One of unknown outcome may be made
 * again: it finds itself.
 */
export async function claimIdempotencyKey(
  sql: Database,
  instance: InstanceIdentity,
  claim: IdempotencyClaim,
): Promise<ClaimOutcome> {
  // The locked row makes a reaper of this instance wait: a claim is never left behind by an instance
  // whose keys were freed before it came.
  const inserted = await sql`
    WITH claimant AS MATERIALIZED (
      SELECT id, epoch FROM instances
      WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive FOR KEY SHARE)
    INSERT INTO idempotency_records (key_id, idempotency_key, body_hash, request_id, instance_id, epoch)
    SELECT ${claim.keyId}, ${claim.idempotencyKey}, ${claim.bodyHash}, ${claim.requestId}, id, epoch
    FROM claimant
    ON CONFLICT (key_id, idempotency_key) DO UPDATE
      SET body_hash = EXCLUDED.body_hash, request_id = EXCLUDED.request_id,
        instance_id = EXCLUDED.instance_id, epoch = EXCLUDED.epoch, status = NULL, headers = NULL,
        body = NULL, created_at = clock_timestamp()
      WHERE idempotency_records.created_at < clock_timestamp() - interval '24 hours'
        AND idempotency_records.status IS NOT NULL
        AND NOT ${hasWorkingOwner(sql, sql`idempotency_records`)}`;
  if (inserted.count > 0) return { kind: "claimed" };
  const [row] = await sql<
    {
      body_hash: string;
      request_id: string;
      status: number | null;
      headers: Record<string, string>;
      body: Uint8Array | null;
    }[]
  >`SELECT body_hash, request_id, status, headers, body FROM idempotency_records
    WHERE key_id = ${claim.keyId} AND idempotency_key = ${claim.idempotencyKey}`;
  // Freed in between: the caller looks again.
  if (row === undefined) return { kind: "running" };
  if (row.request_id === claim.requestId) return { kind: "claimed" };
  if (row.body_hash !== claim.bodyHash) return { kind: "conflict" };
  if (row.status === null) return { kind: "running" };
  return { kind: "done", result: { status: row.status, headers: row.headers, body: row.body } };
}

/** The places, in the list, of the keys under which a call runs. */
export async function runningIdempotencyKeys(
  sql: Database,
  keys: readonly Pick<IdempotencyClaim, "keyId" | "idempotencyKey">[],
): Promise<ReadonlySet<number>> {
  const rows = await sql<{ place: number }[]>`
    SELECT (asked.place - 1)::int AS place
    FROM unnest(${sql.array(keys.map(({ keyId }) => keyId))}::text[],
      ${sql.array(keys.map(({ idempotencyKey }) => idempotencyKey))}::text[])
      WITH ORDINALITY AS asked (key_id, idempotency_key, place)
    JOIN idempotency_records USING (key_id, idempotency_key)
    WHERE status IS NULL`;
  return new Set(rows.map(({ place }) => place));
}

/** SQLSTATE of a transaction that keeps a result under a claim that is not there any more. */
const CLAIM_ENDED = "GW003";

/** Ends the transaction of a charge whose claim was freed: another call may have been given the key since. */
class ClaimEndedError extends Error {
  readonly code = CLAIM_ENDED;

  constructor() {
    super("the idempotency key was freed before its charge was written");
  }
}

export interface StoreOptions {
  /**
   * True where nothing of the answer has left: with its claim gone, the whole transaction fails, and nothing
   * is charged. What was delivered is charged in any case.
   */
  readonly isClaimNeeded: boolean;
}

/**
 * Keeps the result, in the transaction of its charge, sealed with the key that `keyring` has for it or, where
 * another one seals by now, with that one.
 */
export function storeResultEffect(
  claim: IdempotencyClaim,
  result: NewResult,
  keyring: { readonly sealingId: string; noteSealing(id: string): void },
  { isClaimNeeded }: StoreOptions,
): StatementEffect {
  let isKept = false;
  return {
    kind: "statement",
    name: "idempotency-store",
    tables: ["idempotency_records"],
    events: [],
    async run(sql) {
      const { sealingId } = keyring;
      let outcome = await storeResult(sql, claim, result, sealingId);
      if (outcome.sealingId !== sealingId) {
        keyring.noteSealing(outcome.sealingId);
        outcome = await storeResult(sql, claim, result, outcome.sealingId);
      }
      if (isClaimNeeded && !outcome.isKept) throw new ClaimEndedError();
      isKept = outcome.isKept;
    },
    // One that was too large to be kept cannot be replayed.
    storesAnswer: () => isKept && result.body !== null,
  };
}

/** Stores nothing where another key seals, which it names; that one seals until the transaction ends. */
async function storeResult(
  sql: DatabaseTransaction,
  claim: IdempotencyClaim,
  { status, headers, body }: NewResult,
  keyId: string,
): Promise<{ sealingId: string; isKept: boolean }> {
  const sealed = body && (body(keyId) as Buffer);
  const [row] = await sql<{ sealing_id: string | null; is_kept: boolean }[]>`
    WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
    kept AS (
      UPDATE idempotency_records
      SET status = ${status}, headers = ${JSON.stringify(headers)}::text::jsonb, body = ${sealed}
      WHERE key_id = ${claim.keyId} AND idempotency_key = ${claim.idempotencyKey}
        AND request_id = ${claim.requestId} AND EXISTS (SELECT 1 FROM sealing WHERE key_id = ${keyId})
      RETURNING 1)
    SELECT (SELECT key_id FROM sealing) AS sealing_id, EXISTS (SELECT 1 FROM kept) AS is_kept`;
  if (!row?.sealing_id) throw new Error("the database has not been used with a master key yet");
  return { sealingId: row.sealing_id, isKept: row.is_kept };
}

/** Errors and disconnects free the key for another try. */
export async function freeIdempotencyKey(sql: Database, claim: IdempotencyClaim): Promise<void> {
  await sql`DELETE FROM idempotency_records WHERE key_id = ${claim.keyId}
    AND idempotency_key = ${claim.idempotencyKey} AND request_id = ${claim.requestId} AND status IS NULL`;
}

/** Which of these keys have a call, and whether it is charged; that of others was never made, or has failed. */
export async function claimsAmong(
  sql: Database,
  keyId: string,
  idempotencyKeys: readonly string[],
): Promise<ReadonlyMap<string, { readonly requestId: string; readonly isDone: boolean }>> {
  const rows = await sql<{ idempotency_key: string; request_id: string; is_done: boolean }[]>`
    SELECT idempotency_key, request_id, status IS NOT NULL AS is_done FROM idempotency_records
    WHERE key_id = ${keyId} AND idempotency_key = ANY (${sql.array([...idempotencyKeys])}::text[])`;
  return new Map(
    rows.map((row) => [row.idempotency_key, { requestId: row.request_id, isDone: row.is_done }]),
  );
}

/** The result of a call that is charged; its body is sealed. */
export async function findStoredResult(
  sql: Database,
  { keyId, idempotencyKey }: Pick<IdempotencyClaim, "keyId" | "idempotencyKey">,
): Promise<StoredResult | undefined> {
  const [row] = await sql<StoredResult[]>`SELECT status, headers, body FROM idempotency_records
    WHERE key_id = ${keyId} AND idempotency_key = ${idempotencyKey} AND status IS NOT NULL`;
  return row;
}

/** Removes a kept result in the transaction that writes what was made of it. */
export async function removeStoredResult(
  sql: DatabaseTransaction,
  { keyId, idempotencyKey }: Pick<IdempotencyClaim, "keyId" | "idempotencyKey">,
): Promise<void> {
  await sql`DELETE FROM idempotency_records WHERE key_id = ${keyId}
    AND idempotency_key = ${idempotencyKey} AND status IS NOT NULL`;
}

const REMOVAL_BATCH = 1_000;

/**
 * Whether a record is of a batch, or of a file of a vector store, whose work is not done: what a line, or some of the
 * file's chunks, was charged for stays until then. After a long standstill of all instances the answer may still be
 * written into it, and a second call would be charged again.
 */
function hasWorkingOwner(sql: Database, record: ReturnType<Database>) {
  // Earlier releases have claimed lines and chunks under the API key.
  return sql`(EXISTS (SELECT FROM batches b
      WHERE b.id IN (${record}.key_id, split_part(${record}.idempotency_key, ':', 1))
        AND ${record}.key_id IN (b.id, b.key_id) AND b.due_at IS NOT NULL)
    OR EXISTS (SELECT FROM vector_store_files f
      WHERE f.id IN (${record}.key_id, split_part(${record}.idempotency_key, ':', 1))
        AND ${record}.key_id IN (f.id, f.key_id) AND f.due_at IS NOT NULL))`;
}

/** Removes a bounded number of them. True where there may be more. */
export async function removeOldIdempotencyRecords(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM idempotency_records WHERE (key_id, idempotency_key) IN (
    SELECT key_id, idempotency_key FROM idempotency_records r
    WHERE created_at < clock_timestamp() - interval '24 hours' AND status IS NOT NULL
      AND NOT ${hasWorkingOwner(sql, sql`r`)}
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
