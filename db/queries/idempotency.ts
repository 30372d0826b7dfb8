import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import type { Seal } from "./master-key.ts";

export interface IdempotencyClaim {
  /** The API key. For calls of the gateway itself, the id of the object that they are for. */
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly bodyHash: string;
  readonly requestId: string;
  /** Stores, before its charge, a result that is too large to be stored with it. */
  storeLargeResult?(body: Uint8Array): Promise<void>;
}

export interface StoredResult {
  readonly status: number;
  readonly headers: Record<string, string>;
  /** Sealed. Null if the result was too large to store. */
  readonly body: Uint8Array | null;
}

/** A result to store, with its body before it is sealed. */
export interface NewResult extends Pick<StoredResult, "status" | "headers"> {
  readonly body: Seal | null;
}

export type ClaimOutcome =
  | { readonly kind: "claimed" }
  | { readonly kind: "conflict" }
  | { readonly kind: "running" }
  | { readonly kind: "done"; readonly result: StoredResult };

/**
 * Claims an idempotency key for a request, or returns its existing state. A claim is durable before the upstream is
 * called, so that a second call finds it on any instance. A claim of unknown outcome may be repeated: it finds itself.
 */
export async function claimIdempotencyKey(
  sql: Database,
  instance: InstanceIdentity,
  claim: IdempotencyClaim,
): Promise<ClaimOutcome> {
  // While the row is locked, this instance cannot be declared dead. So no claim is left by an instance whose keys were
  // released before.
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
  // The key was released in the meantime: the caller tries again.
  if (row === undefined) return { kind: "running" };
  if (row.request_id === claim.requestId) return { kind: "claimed" };
  if (row.body_hash !== claim.bodyHash) return { kind: "conflict" };
  if (row.status === null) return { kind: "running" };
  return { kind: "done", result: { status: row.status, headers: row.headers, body: row.body } };
}

/** Returns the positions, in the list, of the keys under which a call runs. */
export async function runningIdempotencyKeys(
  sql: Database,
  keys: readonly Pick<IdempotencyClaim, "keyId" | "idempotencyKey">[],
): Promise<ReadonlySet<number>> {
  const rows = await sql<{ position: number }[]>`
    SELECT (wanted.position - 1)::int AS position
    FROM unnest(${sql.array(keys.map(({ keyId }) => keyId))}::text[],
      ${sql.array(keys.map(({ idempotencyKey }) => idempotencyKey))}::text[])
      WITH ORDINALITY AS wanted (key_id, idempotency_key, position)
    JOIN idempotency_records USING (key_id, idempotency_key)
    WHERE status IS NULL`;
  return new Set(rows.map(({ position }) => position));
}

/** SQLSTATE of a transaction that stores a result under a claim that no longer exists. */
const CLAIM_ENDED = "GW003";

/** Ends the transaction of a charge whose claim was released: another call may have the key now. */
class ClaimEndedError extends Error {
  readonly code = CLAIM_ENDED;

  constructor() {
    super("the idempotency key was released before its charge was written");
  }
}

export interface StoreOptions {
  /**
   * True if no part of the answer was sent. If its claim no longer exists, the whole transaction then fails, and
   * nothing is charged. A delivered answer is charged in any case.
   */
  readonly isClaimNeeded: boolean;
}

/**
 * Returns an effect that stores the result, in the transaction of its charge. The result is sealed with the sealing key
 * of `keyring`, or with another key if the sealing key has changed.
 */
export function storeResultEffect(
  claim: IdempotencyClaim,
  result: NewResult,
  keyring: { readonly sealingId: string; noteSealing(id: string): void },
  { isClaimNeeded }: StoreOptions,
): StatementEffect {
  let isStored = false;
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
      if (isClaimNeeded && !outcome.isStored) throw new ClaimEndedError();
      isStored = outcome.isStored;
    },
    // A result that was too large to store cannot be replayed.
    storesAnswer: () => isStored && result.body !== null,
  };
}

/**
 * Stores nothing if another key seals, and returns that key's id. That key seals until the transaction ends.
 */
async function storeResult(
  sql: DatabaseTransaction,
  claim: IdempotencyClaim,
  { status, headers, body }: NewResult,
  keyId: string,
): Promise<{ sealingId: string; isStored: boolean }> {
  const sealed = body && (body(keyId) as Buffer);
  const [row] = await sql<{ sealing_id: string | null; is_stored: boolean }[]>`
    WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
    stored AS (
      UPDATE idempotency_records
      SET status = ${status}, headers = ${JSON.stringify(headers)}::text::jsonb, body = ${sealed}
      WHERE key_id = ${claim.keyId} AND idempotency_key = ${claim.idempotencyKey}
        AND request_id = ${claim.requestId} AND EXISTS (SELECT 1 FROM sealing WHERE key_id = ${keyId})
      RETURNING 1)
    SELECT (SELECT key_id FROM sealing) AS sealing_id, EXISTS (SELECT 1 FROM stored) AS is_stored`;
  if (!row?.sealing_id) throw new Error("the database has not been used with a master key yet");
  return { sealingId: row.sealing_id, isStored: row.is_stored };
}

/** Releases the key after errors and disconnects, so that another try can use it. */
export async function freeIdempotencyKey(sql: Database, claim: IdempotencyClaim): Promise<void> {
  await sql`DELETE FROM idempotency_records WHERE key_id = ${claim.keyId}
    AND idempotency_key = ${claim.idempotencyKey} AND request_id = ${claim.requestId} AND status IS NULL`;
}

/**
 * Returns the keys that have a call, and whether the call is charged. For any other key no call was made, or the call
 * has failed.
 */
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

/** Returns the result of a charged call. Its body is sealed. */
export async function findStoredResult(
  sql: Database,
  { keyId, idempotencyKey }: Pick<IdempotencyClaim, "keyId" | "idempotencyKey">,
): Promise<StoredResult | undefined> {
  const [row] = await sql<StoredResult[]>`SELECT status, headers, body FROM idempotency_records
    WHERE key_id = ${keyId} AND idempotency_key = ${idempotencyKey} AND status IS NOT NULL`;
  return row;
}

/** Removes a stored result in the transaction that writes what was made from it. */
export async function removeStoredResult(
  sql: DatabaseTransaction,
  { keyId, idempotencyKey }: Pick<IdempotencyClaim, "keyId" | "idempotencyKey">,
): Promise<void> {
  await sql`DELETE FROM idempotency_records WHERE key_id = ${keyId}
    AND idempotency_key = ${idempotencyKey} AND status IS NOT NULL`;
}

const REMOVAL_BATCH = 1_000;

/**
 * Returns a condition that is true if a record belongs to a batch, or to a file of a vector store, whose work is not
 * done. The charged results of its lines or chunks stay until then: if all instances were stopped for long, they still
 * need these results, and would otherwise call and charge again.
 */
function hasWorkingOwner(sql: Database, record: ReturnType<Database>) {
  // Earlier versions have claimed lines and chunks under the API key.
  return sql`(EXISTS (SELECT FROM batches b
      WHERE b.id IN (${record}.key_id, split_part(${record}.idempotency_key, ':', 1))
        AND ${record}.key_id IN (b.id, b.key_id) AND b.due_at IS NOT NULL)
    OR EXISTS (SELECT FROM vector_store_files f
      WHERE f.id IN (${record}.key_id, split_part(${record}.idempotency_key, ':', 1))
        AND ${record}.key_id IN (f.id, f.key_id) AND f.due_at IS NOT NULL))`;
}

/** Removes a bounded number of records. Returns true if there may be more. */
export async function removeOldIdempotencyRecords(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM idempotency_records WHERE (key_id, idempotency_key) IN (
    SELECT key_id, idempotency_key FROM idempotency_records r
    WHERE created_at < clock_timestamp() - interval '24 hours' AND status IS NOT NULL
      AND NOT ${hasWorkingOwner(sql, sql`r`)}
    LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
