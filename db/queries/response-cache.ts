import type { Database, DatabaseTransaction } from "../client.ts";
import type { RecordOf, RowOf } from "../rows.ts";
import type { cachedAnswers } from "../schema/response-cache.ts";
import { recordAct } from "./audit-log.ts";
import type { Seal } from "./master-key.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

/** Key of a stored answer: one request of one organization. */
export interface AnswerKey {
  readonly organizationId: string;
  /** SHA-256, hex. */
  readonly keyHash: string;
}

/** Facts about an answer besides its text. */
export type AnswerNote = Pick<
  RecordOf<typeof cachedAnswers>,
  "model" | "provider" | "costNano" | "usage" | "headers"
>;

export interface SealedAnswer extends AnswerNote {
  readonly sealed: Uint8Array;
}

/** Result of a look-up: the answer, or the state that is needed to store one. */
export interface FoundAnswer {
  /** Generation of the organization's cache: an answer that was requested in an earlier generation is not stored. */
  readonly generation: number;
  readonly answer: SealedAnswer | undefined;
}

type AnswerRow = Pick<
  RowOf<typeof cachedAnswers>,
  "provider" | "cost_nano" | "usage" | "headers" | "sealed"
> & { readonly position: number; readonly generation: bigint; readonly model: string | null };

/**
 * Returns the answers of the keys, in their order.
 *
 * @param nowMs answers that expired before are not found
 */
export async function findCachedAnswers(
  sql: Database,
  keys: readonly AnswerKey[],
  nowMs: number,
): Promise<FoundAnswer[]> {
  const rows = await sql<AnswerRow[]>`
    SELECT (wanted.position - 1)::int AS position, coalesce(c.generation, 0) AS generation,
      a.model, a.provider, a.cost_nano, a.usage, a.headers, a.sealed
    FROM unnest(${sql.array(keys.map(({ organizationId }) => organizationId))}::text[],
      ${sql.array(keys.map(({ keyHash }) => keyHash))}::text[])
      WITH ORDINALITY AS wanted (organization_id, key_hash, position)
    LEFT JOIN answer_caches c ON c.organization_id = wanted.organization_id
    LEFT JOIN cached_answers a ON a.organization_id = wanted.organization_id
      AND a.key_hash = wanted.key_hash AND a.expires_at > ${new Date(nowMs)}`;
  const found = new Array<FoundAnswer>(keys.length);
  for (const { position, generation, model, cost_nano: costNano, ...rest } of rows) {
    const { provider, usage, headers, sealed } = rest;
    const answer =
      model === null ? undefined : { model, provider, costNano, usage, headers, sealed };
    found[position] = { generation: Number(generation), answer };
  }
  return found;
}

export interface NewAnswer extends AnswerNote {
  readonly key: AnswerKey;
  readonly generation: number;
  readonly seal: Seal;
  readonly expiresAtMs: number;
}

/** Limits of one organization. */
export interface CacheBounds {
  readonly maxEntries: number;
  readonly maxBytes: number;
}

/**
 * A full cache is emptied to this part of its limits, so that it does not have to remove answers each time.
 */
const EMPTIED_TO = 0.9;

/**
 * Stores an answer, and removes the least recently used ones if there are too many. Returns false, and stores nothing,
 * if the cache was purged since the request. The transaction does not wait for the disk: an answer that a crashing
 * server loses is requested again.
 */
export function keepAnswer(
  sql: Database,
  answer: NewAnswer,
  bounds: CacheBounds,
  nowMs: number,
): Promise<boolean> {
  const { organizationId } = answer.key;
  return sql.begin(async (transaction) => {
    const [cache] = await transaction<{ generation: bigint; sealing_id: string | null }[]>`
      WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
      cache AS (
        INSERT INTO answer_caches (organization_id) VALUES (${organizationId})
        ON CONFLICT (organization_id) DO UPDATE SET generation = answer_caches.generation
        RETURNING generation)
      SELECT generation, (SELECT key_id FROM sealing) AS sealing_id,
        set_config('synchronous_commit', 'off', true)
      FROM cache`;
    if (Number(cache!.generation) !== answer.generation || cache!.sealing_id === null) return false;
    const filled = await putAnswer(transaction, answer, answer.seal(cache!.sealing_id), nowMs);
    if (filled.entries > bounds.maxEntries || filled.bytes > bounds.maxBytes) {
      await makeRoom(transaction, organizationId, bounds, nowMs);
    }
    return true;
  }) as Promise<boolean>;
}

async function putAnswer(
  sql: DatabaseTransaction,
  { key, model, provider, costNano, usage, headers, expiresAtMs }: NewAnswer,
  sealed: Uint8Array,
  nowMs: number,
): Promise<{ entries: number; bytes: number }> {
  const { organizationId, keyHash } = key;
  const [row] = await sql<{ entries: number; bytes: bigint }[]>`
    WITH replaced AS MATERIALIZED (
      SELECT bytes FROM cached_answers WHERE organization_id = ${organizationId} AND key_hash = ${keyHash}),
    put AS (
      INSERT INTO cached_answers (organization_id, key_hash, model, provider, cost_nano, usage, headers,
        bytes, sealed, expires_at, used_at)
      VALUES (${organizationId}, ${keyHash}, ${model}, ${provider}, ${costNano.toString()}::bigint,
        ${JSON.stringify(usage)}::text::jsonb, ${JSON.stringify(headers)}::text::jsonb, ${sealed.length}, ${sealed as Buffer},
        ${new Date(expiresAtMs)}, ${new Date(nowMs)})
      ON CONFLICT (organization_id, key_hash) DO UPDATE SET model = EXCLUDED.model,
        provider = EXCLUDED.provider, cost_nano = EXCLUDED.cost_nano, usage = EXCLUDED.usage,
        headers = EXCLUDED.headers, bytes = EXCLUDED.bytes, sealed = EXCLUDED.sealed,
        expires_at = EXCLUDED.expires_at, used_at = EXCLUDED.used_at)
    UPDATE answer_caches SET entries = entries + 1 - (SELECT count(*) FROM replaced)::int,
      bytes = bytes + ${sealed.length} - coalesce((SELECT sum(bytes) FROM replaced), 0)::bigint
    WHERE organization_id = ${organizationId}
    RETURNING entries, bytes`;
  return { entries: row!.entries, bytes: Number(row!.bytes) };
}

/** Removes expired answers first, then the least recently used ones. */
async function makeRoom(
  sql: DatabaseTransaction,
  organizationId: string,
  { maxEntries, maxBytes }: CacheBounds,
  nowMs: number,
): Promise<void> {
  const entries = Math.max(1, Math.floor(maxEntries * EMPTIED_TO));
  const bytes = Math.floor(maxBytes * EMPTIED_TO);
  await sql`
    WITH ranked AS (
      SELECT key_hash, expires_at <= ${new Date(nowMs)} AS is_expired,
        row_number() OVER latest AS place, sum(bytes) OVER latest AS total
      FROM cached_answers WHERE organization_id = ${organizationId}
      WINDOW latest AS (ORDER BY expires_at <= ${new Date(nowMs)}, used_at DESC, key_hash)),
    removed AS (
      DELETE FROM cached_answers a USING ranked r
      WHERE a.organization_id = ${organizationId} AND a.key_hash = r.key_hash
        AND (r.is_expired OR r.place > ${entries} OR r.total > ${bytes})
      RETURNING a.bytes)
    UPDATE answer_caches SET entries = entries - (SELECT count(*) FROM removed)::int,
      bytes = bytes - coalesce((SELECT sum(bytes) FROM removed), 0)::bigint
    WHERE organization_id = ${organizationId}`;
}

export interface AnswerUse extends AnswerKey {
  /** Time of the last use. */
  readonly usedAtMs: number;
  /** Requests that got the answer since the last record. */
  readonly hits: number;
}

/** Records that answers were used. Skips those that another transaction is changing. */
export async function noteAnswersUsed(sql: Database, uses: readonly AnswerUse[]): Promise<void> {
  await sql`
    WITH noted AS MATERIALIZED (
      SELECT * FROM unnest(${sql.array(uses.map(({ organizationId }) => organizationId))}::text[],
        ${sql.array(uses.map(({ keyHash }) => keyHash))}::text[],
        ${sql.array(uses.map(({ usedAtMs }) => new Date(usedAtMs).toISOString()))}::timestamptz[],
        ${sql.array(uses.map(({ hits }) => hits))}::int[])
        AS u (organization_id, key_hash, used_at, hits)),
    used AS MATERIALIZED (
      SELECT a.organization_id, a.key_hash, noted.used_at, noted.hits
      FROM noted JOIN cached_answers a USING (organization_id, key_hash)
      FOR NO KEY UPDATE OF a SKIP LOCKED)
    UPDATE cached_answers a SET used_at = greatest(a.used_at, used.used_at), hits = a.hits + used.hits
    FROM used
    WHERE a.organization_id = used.organization_id AND a.key_hash = used.key_hash`;
}

/** Hits of an organization's cache. */
export interface CacheHits {
  readonly hits: number;
  /** Original charges of the answers, in nano-USD. */
  readonly savedNano: bigint;
}

/** Adds to the hits of organizations, in the order of their ids. */
export async function countCacheHits(
  sql: Database,
  counted: ReadonlyMap<string, CacheHits>,
): Promise<void> {
  const hits = [...counted.values()];
  await sql`
    WITH counted AS MATERIALIZED (
      SELECT c.organization_id, n.hits, n.saved::bigint AS saved
      FROM unnest(${sql.array([...counted.keys()])}::text[], ${sql.array(hits.map((one) => one.hits))}::bigint[],
        ${sql.array(hits.map((one) => String(one.savedNano)))}::text[]) AS n (organization_id, hits, saved)
      JOIN answer_caches c USING (organization_id)
      ORDER BY c.organization_id FOR NO KEY UPDATE OF c)
    UPDATE answer_caches c SET hits = c.hits + counted.hits, saved_nano = c.saved_nano + counted.saved
    FROM counted WHERE c.organization_id = counted.organization_id`;
}

/** The state of an organization's cache, with its models: those with most answers first. */
export interface CacheState extends CacheHits {
  readonly entries: number;
  readonly bytes: number;
  readonly models: readonly {
    readonly model: string;
    readonly entries: number;
    readonly bytes: number;
    /** Requests that got one of these answers. */
    readonly hits: number;
    readonly usedAtMs: number;
  }[];
}

const MAX_LISTED_MODELS = 100;

/** Returns the state of a cache. Answers that have expired count until they are removed. */
export async function readCacheState(sql: Database, organizationId: string): Promise<CacheState> {
  const [[cache], models] = await Promise.all([
    sql<{ entries: number; bytes: bigint; hits: bigint; saved_nano: bigint }[]>`
      SELECT entries, bytes, hits, saved_nano FROM answer_caches WHERE organization_id = ${organizationId}`,
    sql<{ model: string; entries: number; bytes: bigint; hits: bigint; used_at: Date }[]>`
      SELECT model, count(*)::int AS entries, sum(bytes)::bigint AS bytes, sum(hits)::bigint AS hits,
        max(used_at) AS used_at
      FROM cached_answers WHERE organization_id = ${organizationId}
      GROUP BY model ORDER BY entries DESC, model LIMIT ${MAX_LISTED_MODELS}`,
  ]);
  return {
    entries: cache?.entries ?? 0,
    bytes: Number(cache?.bytes ?? 0n),
    hits: Number(cache?.hits ?? 0n),
    savedNano: cache?.saved_nano ?? 0n,
    models: models.map((row) => ({
      ...{ model: row.model, entries: row.entries, bytes: Number(row.bytes) },
      ...{ hits: Number(row.hits), usedAtMs: row.used_at.getTime() },
    })),
  };
}

/** The answers that a purge removes: all of the organization's that match. */
export interface PurgeSelection {
  readonly model?: string | undefined;
  readonly keyHash?: string | undefined;
}

/**
 * Removes answers, and keeps the answers of running requests from being stored. Returns how many answers were still
 * valid, in one transaction with the event that reports it.
 */
export function purgeAnswers(
  sql: Database,
  organizationId: string,
  selection: PurgeSelection,
  eventOf: (entries: number) => OutboxEvent,
  nowMs: number,
): Promise<number> {
  const { model = null, keyHash = null } = selection;
  return sql.begin(async (transaction) => {
    await transaction`
      INSERT INTO answer_caches (organization_id, generation) VALUES (${organizationId}, 1)
      ON CONFLICT (organization_id) DO UPDATE SET generation = answer_caches.generation + 1`;
    const [row] = await transaction<{ entries: number }[]>`
      WITH removed AS (
        DELETE FROM cached_answers WHERE organization_id = ${organizationId}
          AND (${model}::text IS NULL OR model = ${model}) AND (${keyHash}::text IS NULL OR key_hash = ${keyHash})
        RETURNING bytes, expires_at)
      UPDATE answer_caches SET entries = entries - (SELECT count(*) FROM removed)::int,
        bytes = bytes - coalesce((SELECT sum(bytes) FROM removed), 0)::bigint
      WHERE organization_id = ${organizationId}
      RETURNING (SELECT count(*) FROM removed WHERE expires_at > ${new Date(nowMs)})::int AS entries`;
    await insertOutboxEvent(transaction, eventOf(row!.entries));
    await recordAct(transaction, {
      organizationId,
      action: "cache.purged",
      object: { type: "cache", id: null },
      after: { entries: row!.entries, ...selection },
    });
    return row!.entries;
  }) as Promise<number>;
}

const REMOVAL_BATCH = 500;

/**
 * Removes a bounded number of expired answers of one organization. Returns true if there may be more.
 */
export function removeExpiredAnswers(sql: Database): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const [cache] = await transaction<{ organization_id: string }[]>`
      SELECT organization_id FROM answer_caches WHERE organization_id = (
        SELECT organization_id FROM cached_answers WHERE expires_at < clock_timestamp()
        ORDER BY expires_at LIMIT 1)
      FOR UPDATE`;
    if (cache === undefined) return false;
    await transaction`
      WITH removed AS (
        DELETE FROM cached_answers WHERE (organization_id, key_hash) IN (
          SELECT organization_id, key_hash FROM cached_answers
          WHERE organization_id = ${cache.organization_id} AND expires_at < clock_timestamp()
          LIMIT ${REMOVAL_BATCH})
        RETURNING bytes)
      UPDATE answer_caches SET entries = entries - (SELECT count(*) FROM removed)::int,
        bytes = bytes - coalesce((SELECT sum(bytes) FROM removed), 0)::bigint
      WHERE organization_id = ${cache.organization_id}`;
    return true;
  }) as Promise<boolean>;
}

/** How long a request counts as running after the last renewal by its instance. */
const FLIGHT_LEASE = "10 seconds";

/**
 * Returns true if the request may run, false if an equal one runs already. The claim is lost if the server crashes.
 */
export async function claimFlight(
  sql: Database,
  { organizationId, keyHash }: AnswerKey,
  requestId: string,
): Promise<boolean> {
  const claimed = await sql`
    INSERT INTO answer_flights (organization_id, key_hash, request_id, lease_until)
    VALUES (${organizationId}, ${keyHash}, ${requestId}, clock_timestamp() + ${FLIGHT_LEASE}::interval)
    ON CONFLICT (organization_id, key_hash) DO UPDATE
      SET request_id = EXCLUDED.request_id, lease_until = EXCLUDED.lease_until
      WHERE answer_flights.lease_until < clock_timestamp()
        OR answer_flights.request_id = EXCLUDED.request_id`;
  return claimed.count > 0;
}

interface FlightClaim {
  readonly key: AnswerKey;
  readonly requestId: string;
}

/** Records that the requests still run. */
export async function renewFlights(sql: Database, flights: readonly FlightClaim[]): Promise<void> {
  await sql`
    WITH claimed AS MATERIALIZED (
      SELECT f.organization_id, f.key_hash FROM answer_flights f
      JOIN unnest(${sql.array(flights.map(({ key }) => key.organizationId))}::text[],
        ${sql.array(flights.map(({ key }) => key.keyHash))}::text[],
        ${sql.array(flights.map(({ requestId }) => requestId))}::text[])
        AS r (organization_id, key_hash, request_id) USING (organization_id, key_hash, request_id)
      FOR NO KEY UPDATE OF f SKIP LOCKED)
    UPDATE answer_flights f SET lease_until = clock_timestamp() + ${FLIGHT_LEASE}::interval
    FROM claimed WHERE f.organization_id = claimed.organization_id AND f.key_hash = claimed.key_hash`;
}

export async function endFlight(
  sql: Database,
  { organizationId, keyHash }: AnswerKey,
  requestId: string,
): Promise<void> {
  await sql`DELETE FROM answer_flights WHERE organization_id = ${organizationId}
    AND key_hash = ${keyHash} AND request_id = ${requestId}`;
}

/**
 * Removes a bounded number of flights whose instance has died. Returns true if there may be more.
 */
export async function removeOldFlights(sql: Database): Promise<boolean> {
  const removed = await sql`DELETE FROM answer_flights WHERE (organization_id, key_hash) IN (
    SELECT organization_id, key_hash FROM answer_flights WHERE lease_until < clock_timestamp() - interval '1 minute'
    LIMIT ${REMOVAL_BATCH} FOR UPDATE SKIP LOCKED)`;
  return removed.count === REMOVAL_BATCH;
}
