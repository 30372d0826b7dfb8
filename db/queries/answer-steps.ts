import type { Database } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import type { IdempotencyClaim } from "./idempotency.ts";

/** Steps of an answer that was not finished. */
export interface StoredSteps {
  readonly sealed: Uint8Array;
  /** True if they are charged: their client disconnected. */
  readonly isPaid: boolean;
}

type StepsOwner = Pick<IdempotencyClaim, "keyId" | "idempotencyKey" | "bodyHash" | "requestId">;

/** Equals the lifetime of the idempotency keys of finished calls. */
const LIFETIME = "24 hours";

/**
 * Stores the steps of a call in place of its earlier ones, if its claim still holds: another call may have the key now.
 * Stores nothing if another master key seals, and returns that key's id.
 */
export async function storeAnswerSteps(
  sql: Database,
  { keyId, idempotencyKey, requestId }: StepsOwner,
  sealed: Uint8Array,
  sealingId: string,
): Promise<{ readonly sealingId: string; readonly isStored: boolean }> {
  // The lock keeps the claim from being released in the meantime, so that no later call of the key finds these steps
  // changed.
  const [row] = await sql<{ sealing_id: string | null; is_stored: boolean }[]>`
    WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
    claim AS MATERIALIZED (
      SELECT key_id, idempotency_key, body_hash, request_id FROM idempotency_records
      WHERE key_id = ${keyId} AND idempotency_key = ${idempotencyKey} AND request_id = ${requestId}
        AND status IS NULL FOR SHARE),
    stored AS (
      INSERT INTO answer_steps (key_id, idempotency_key, body_hash, request_id, sealed)
      SELECT key_id, idempotency_key, body_hash, request_id, ${sealed as Buffer}::bytea FROM claim
      WHERE EXISTS (SELECT 1 FROM sealing WHERE key_id = ${sealingId})
      ON CONFLICT (key_id, idempotency_key) DO UPDATE SET body_hash = EXCLUDED.body_hash,
        request_id = EXCLUDED.request_id, is_paid = false, sealed = EXCLUDED.sealed,
        created_at = clock_timestamp()
      RETURNING 1)
    SELECT (SELECT key_id FROM sealing) AS sealing_id, EXISTS (SELECT 1 FROM stored) AS is_stored`;
  if (!row?.sealing_id) throw new Error("the database has not been used with a master key yet");
  return { sealingId: row.sealing_id, isStored: row.is_stored };
}

/**
 * Returns the steps that an earlier call of the same request left under the key. This call continues from them.
 */
export async function takeAnswerSteps(
  sql: Database,
  { keyId, idempotencyKey, bodyHash, requestId }: StepsOwner,
): Promise<StoredSteps | undefined> {
  const [row] = await sql<{ sealed: Uint8Array; is_paid: boolean }[]>`
    UPDATE answer_steps SET request_id = ${requestId}
    WHERE key_id = ${keyId} AND idempotency_key = ${idempotencyKey} AND body_hash = ${bodyHash}
      AND created_at > clock_timestamp() - ${LIFETIME}::interval
    RETURNING sealed, is_paid`;
  return row && { sealed: row.sealed, isPaid: row.is_paid };
}

/**
 * Returns an effect that removes the steps of a call in the transaction of its charge, because its answer is stored
 * instead.
 */
export function removeAnswerStepsEffect(owner: StepsOwner): StatementEffect {
  return stepsEffect("answer-steps-remove", async (sql) => {
    await sql`DELETE FROM answer_steps WHERE key_id = ${owner.keyId}
      AND idempotency_key = ${owner.idempotencyKey} AND request_id = ${owner.requestId}`;
  });
}

/**
 * Returns an effect that records in the transaction of a charge that it includes the steps of the call, and releases
 * the key. It waits for steps that are still being stored. None are stored after it.
 */
export function payAnswerStepsEffect(owner: StepsOwner): StatementEffect {
  return stepsEffect("answer-steps-pay", async (sql) => {
    await sql`DELETE FROM idempotency_records WHERE key_id = ${owner.keyId}
      AND idempotency_key = ${owner.idempotencyKey} AND request_id = ${owner.requestId} AND status IS NULL`;
    await sql`UPDATE answer_steps SET is_paid = true WHERE key_id = ${owner.keyId}
      AND idempotency_key = ${owner.idempotencyKey} AND request_id = ${owner.requestId}`;
  });
}

function stepsEffect(name: string, run: StatementEffect["run"]): StatementEffect {
  const tables = ["answer_steps", "idempotency_records"];
  return { kind: "statement", name, tables, events: [], run };
}

const REMOVAL_BATCH = 1_000;

/**
 * Removes a bounded number of steps from which no call continues. Returns true if there may be more.
 */
export async function removeOldAnswerSteps(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM answer_steps WHERE (key_id, idempotency_key) IN (
    SELECT key_id, idempotency_key FROM answer_steps
    WHERE created_at < clock_timestamp() - ${LIFETIME}::interval LIMIT ${REMOVAL_BATCH})`;
  return removed.count === REMOVAL_BATCH;
}
