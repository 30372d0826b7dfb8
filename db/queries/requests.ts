import type { RecordedRouting } from "../../src/lib/request-log.ts";
import type { Quantities } from "../../src/lib/usage.ts";
import { MAX_TIME_MS } from "../../src/lib/utc-time.ts";
import type { Database, SqlFragment } from "../client.ts";

/*
 * Charged requests, which are transactions, and failed ones, in one order: a failure follows the charge at its
 * `position`. It uses only the primary key of transactions, and the indexes of keys and models that their list needs
 * too, so that it adds no cost to charges.
 */

/** A position in the list: of a charge its sequence, of a failure also its end and its id. */
export interface RequestPosition {
  readonly position: bigint;
  readonly failedAtMs: number | undefined;
  readonly id: string;
}

export interface RequestListing {
  readonly organizationId: string;
  readonly keyId: string | undefined;
  /** Requests of the keys of this member. Undefined: of all keys. */
  readonly memberId?: string | undefined;
  /** Requests of the keys that are in this team now. Undefined: of all keys. */
  readonly teamId?: string | undefined;
  readonly model: string | undefined;
  readonly status: number | undefined;
  /** Lowest status. */
  readonly minStatus?: number | undefined;
  readonly errorCode: string | undefined;
  readonly user: string | undefined;
  readonly sessionId: string | undefined;
  /** Inclusive. */
  readonly fromMs: number | undefined;
  /** Exclusive. */
  readonly beforeMs: number | undefined;
  /** Position after which the page begins. */
  readonly after: RequestPosition | undefined;
  readonly limit: number;
}

export interface ListedRequest {
  readonly id: string;
  readonly keyId: string | null;
  readonly model: string | null;
  readonly provider: string | null;
  readonly status: number | null;
  readonly errorCode: string | null;
  readonly user: string | null;
  readonly sessionId: string | null;
  /** Undefined if nothing was charged. */
  readonly usage: ListedUsage | undefined;
  readonly costNano: bigint;
  readonly latencyMs: number | null;
  /** The BYOK key that served the request. Then nothing was charged for the provider. */
  readonly providerKeyId: string | null;
  readonly createdAtMs: number;
}

/** A request in full. */
export interface ShownRequest extends ListedRequest {
  /** Transaction of its charge. */
  readonly transactionId: string | null;
  /** True if the gateway counted, because the provider reported no usage. */
  readonly isEstimated: boolean | null;
  readonly listPriceUsd: number | null;
  readonly queueMs: number | null;
  readonly firstTokenMs: number | null;
  /** Null if the first endpoint of its plan answered immediately, or none was called. */
  readonly routing: RecordedRouting | null;
}

interface ListedUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedPromptTokens: number | null;
  readonly reasoningTokens: number | null;
  readonly quantities: Quantities | null;
}

export interface RequestPage {
  readonly requests: ListedRequest[];
  /** Start of the next page. Undefined at the end of the list. */
  readonly nextAfter: string | undefined;
}

/** Largest number of rows of each kind that one filtered page reads. The page has the matches among these rows. */
const MAX_FILTERED_ROWS = 5_000;
/** The limit for a filter on recorded details, which may be long. */
const MAX_DETAILED_ROWS = 2_000;
/** The limit for a time span: nearly all rows within it match. */
const MAX_DATED_ROWS = 1_000;
/** Failures that were charged after they were written are skipped. */
const SPARE_ROWS = 100;

/** Lists requests, newest first. */
export async function listRequests(sql: Database, listing: RequestListing): Promise<RequestPage> {
  const { organizationId, limit } = listing;
  const [upper, lower] = await bounds(sql, listing);
  const scanned = scannedRows(listing);
  const { status, minStatus, errorCode } = listing;
  const asksFailure = [status, minStatus, errorCode].some((filter) => filter !== undefined);
  const rows = await sql<(RequestRow & { readonly horizon_id: string | null })[]>`
    WITH charged AS MATERIALIZED (
      SELECT t.sequence AS position, '-infinity'::timestamptz AS failed_at, t.request_id AS id,
        ${chargedMatches(sql, listing)} AS matches
      FROM (
        SELECT * FROM transactions WHERE organization_id = ${organizationId} AND type = 'usage'
          ${indexed(sql, listing)}
          AND sequence <= ${upper.sequence.toString()}::bigint AND sequence > ${lower.toString()}::bigint
        ORDER BY sequence DESC LIMIT ${scanned}
      ) t ${asksFailure ? sql`LEFT JOIN LATERAL (SELECT * FROM failed_requests WHERE id = t.request_id LIMIT 1) e ON true` : sql``}
    ), failed AS MATERIALIZED (
      SELECT f.position, f.created_at AS failed_at, f.id, ${failedMatches(sql, listing)} AS matches
      FROM (
        SELECT * FROM failed_requests WHERE organization_id = ${organizationId} AND NOT is_charged
          ${listing.keyId === undefined ? sql`` : sql`AND key_id = ${listing.keyId}`}
          AND (position, created_at, id) < (${upper.failed.position.toString()}::bigint,
            ${new Date(upper.failed.atMs)}, ${upper.failed.id})
          AND position >= ${lower.toString()}::bigint
        ORDER BY position DESC, created_at DESC, id DESC LIMIT ${scanned}
      ) f
    ), horizon AS (
      SELECT * FROM (
        (SELECT position, failed_at, id FROM charged
          ORDER BY position DESC OFFSET ${scanned - 1} LIMIT 1)
        UNION ALL
        (SELECT position, failed_at, id FROM failed
          ORDER BY position DESC, failed_at DESC, id DESC OFFSET ${scanned - 1} LIMIT 1)
      ) last ORDER BY position DESC, failed_at DESC, id DESC LIMIT 1
    ), page AS (
      SELECT position, failed_at, id FROM (
        SELECT position, failed_at, id FROM (
          SELECT * FROM charged WHERE matches UNION ALL SELECT * FROM failed WHERE matches
        ) matching
        WHERE NOT EXISTS (SELECT FROM horizon h WHERE
          (matching.position, matching.failed_at, matching.id) < (h.position, h.failed_at, h.id))
        ORDER BY position DESC, failed_at DESC, id DESC OFFSET 0
      ) found
      WHERE failed_at = '-infinity'
        OR NOT EXISTS (SELECT FROM transactions t WHERE t.request_id = found.id)
      ORDER BY position DESC, failed_at DESC, id DESC LIMIT ${limit + 1}
    )
    SELECT (SELECT id FROM horizon) AS horizon_id, ${columns(sql)}
    FROM (SELECT) one LEFT JOIN page ON true ${joins(sql, organizationId)}
    ORDER BY page.position DESC, page.failed_at DESC, page.id DESC`;
  const found = rows.filter(({ id }) => id !== null).map(listedRequest);
  const requests = found.slice(0, limit);
  const nextAfter = found.length > limit ? requests.at(-1)!.id : rows[0]!.horizon_id;
  return { requests, nextAfter: nextAfter ?? undefined };
}

/** The owner of the requests to find. */
interface RequestOwner {
  readonly organizationId: string;
  /** Undefined: any of its keys. */
  readonly keyId: string | undefined;
  /** Undefined: keys of all members, and of none. */
  readonly memberId: string | undefined;
}

/** Returns the condition on the key of a request, given its column. */
function ofOwner(
  sql: Database,
  { keyId, memberId, teamId }: Pick<RequestListing, "keyId" | "memberId" | "teamId">,
  column = sql`key_id`,
): SqlFragment {
  const keysWhen = (condition: SqlFragment) =>
    sql`AND ${column} IS NOT NULL AND ${column} IN (SELECT id FROM api_keys WHERE ${condition})`;
  return sql`${keyId === undefined ? sql`` : sql`AND ${column} IS NOT DISTINCT FROM ${keyId}`}
    ${memberId === undefined ? sql`` : keysWhen(sql`owner_id = ${memberId}`)}
    ${teamId === undefined ? sql`` : keysWhen(sql`team_id = ${teamId}`)}`;
}

/**
 * Returns the condition that an index of transactions answers. Rows without it count among the examined ones only if
 * no index has it.
 */
function indexed(sql: Database, { keyId, model }: RequestListing): SqlFragment {
  if (keyId !== undefined) return sql`AND key_id = ${keyId}`;
  return model === undefined ? sql`` : sql`AND model = ${model}`;
}

/** Returns undefined if the owner has no such request. */
export async function findRequest(
  sql: Database,
  owner: RequestOwner,
  id: string,
): Promise<ShownRequest | undefined> {
  const { organizationId } = owner;
  const [row] = await sql<ShownRow[]>`WITH page AS (${positionOf(sql, owner, id)})
    SELECT ${columns(sql)}, t.id AS transaction_id, t.estimated,
      (t.details ->> 'list_price_usd')::double precision AS list_price_usd,
      coalesce((t.details ->> 'queue_ms')::integer, f.queue_ms) AS queue_ms,
      (t.details ->> 'first_token_ms')::integer AS first_token_ms,
      coalesce(t.details -> 'routing', f.routing) AS routing
    FROM page ${joins(sql, organizationId)}`;
  return (
    row && {
      ...listedRequest(row),
      transactionId: row.transaction_id,
      isEstimated: row.estimated,
      listPriceUsd: row.list_price_usd,
      queueMs: row.queue_ms,
      firstTokenMs: row.first_token_ms,
      routing: row.routing,
    }
  );
}

export async function findRequestPosition(
  sql: Database,
  owner: RequestOwner,
  id: string,
): Promise<RequestPosition | undefined> {
  const [row] = await sql<{ position: bigint; failed_at: Date | null }[]>`
    SELECT position, nullif(failed_at, '-infinity') AS failed_at
    FROM (${positionOf(sql, owner, id)}) request`;
  return row && { position: row.position, failedAtMs: row.failed_at?.getTime(), id };
}

/** Returns the position of a request. The charge comes before the failure of the same request. */
function positionOf(sql: Database, owner: RequestOwner, id: string): SqlFragment {
  const { organizationId } = owner;
  const ofKey = ofOwner(sql, owner);
  return sql`SELECT sequence AS position, '-infinity'::timestamptz AS failed_at, request_id AS id
    FROM transactions
    WHERE request_id = ${id} AND organization_id = ${organizationId} AND type = 'usage' ${ofKey}
    UNION ALL
    SELECT position, created_at, id FROM failed_requests
    WHERE id = ${id} AND organization_id = ${organizationId} ${ofKey}
    ORDER BY failed_at LIMIT 1`;
}

interface FailedBound {
  readonly position: bigint;
  readonly atMs: number;
  readonly id: string;
}

interface UpperBound {
  /** Inclusive, of charges. */
  readonly sequence: bigint;
  /** Exclusive. */
  readonly failed: FailedBound;
}

const LAST_SEQUENCE = 2n ** 63n - 1n;

/**
 * Returns the range of the rows of a page: the upper bound, and the sequence after which they all come.
 */
async function bounds(sql: Database, listing: RequestListing): Promise<[UpperBound, bigint]> {
  const { organizationId, after, fromMs, beforeMs } = listing;
  const afterBound = after === undefined ? undefined : boundAfter(after);
  const [last, lower] = await Promise.all([
    beforeMs && lastSequence(sql, organizationId, beforeMs + CLOCK_STEP_MS),
    fromMs ? lastSequence(sql, organizationId, fromMs - CLOCK_STEP_MS) : 0n,
  ]);
  const byTime =
    beforeMs === undefined || last === undefined
      ? { sequence: LAST_SEQUENCE, failed: { position: LAST_SEQUENCE, atMs: MAX_TIME_MS, id: "" } }
      : { sequence: BigInt(last), failed: { position: BigInt(last), atMs: beforeMs, id: "" } };
  if (afterBound === undefined) return [byTime, lower];
  return [
    {
      sequence: afterBound.sequence < byTime.sequence ? afterBound.sequence : byTime.sequence,
      failed: isBelow(afterBound.failed, byTime.failed) ? afterBound.failed : byTime.failed,
    },
    lower,
  ];
}

function boundAfter({ position, failedAtMs, id }: RequestPosition): UpperBound {
  return failedAtMs === undefined
    ? { sequence: position - 1n, failed: { position, atMs: 0, id: "" } }
    : { sequence: position, failed: { position, atMs: failedAtMs, id } };
}

function isBelow(one: FailedBound, other: FailedBound): boolean {
  if (one.position !== other.position) return one.position < other.position;
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.id < other.id);
}

/** Largest step by which the clock of the database may have been set back between transactions. */
const CLOCK_STEP_MS = 5_000;

/**
 * Returns the last transaction before a point in time, 0 if there is none. Transactions are numbered without a gap in
 * the order of their times, so a binary search finds it.
 */
async function lastSequence(sql: Database, organizationId: string, ms: number): Promise<bigint> {
  const [row] = await sql<{ low: bigint }[]>`
    WITH RECURSIVE halving (low, high) AS (
      SELECT 0::bigint, coalesce(max(sequence), 0) FROM transactions
      WHERE organization_id = ${organizationId}
      UNION ALL
      SELECT CASE WHEN t.created_at < ${new Date(ms)} THEN t.sequence ELSE low END,
        CASE WHEN t.created_at < ${new Date(ms)} THEN high ELSE t.sequence - 1 END
      FROM halving JOIN transactions t
        ON t.organization_id = ${organizationId} AND t.sequence = (low + high + 1) / 2
      WHERE low < high
    )
    SELECT low FROM halving WHERE low = high`;
  return row?.low ?? 0n;
}

function scannedRows(listing: RequestListing): number {
  if (listing.user !== undefined || listing.sessionId !== undefined) return MAX_DETAILED_ROWS;
  const { keyId, memberId, teamId, model, status, minStatus, errorCode } = listing;
  const filters = [keyId, memberId, teamId, model, status, minStatus, errorCode];
  if (filters.some((filter) => filter !== undefined)) return MAX_FILTERED_ROWS;
  const isDated = listing.fromMs !== undefined || listing.beforeMs !== undefined;
  return isDated ? MAX_DATED_ROWS : listing.limit + 1 + SPARE_ROWS;
}

/** Returns the condition on charges. `t` is the charge, `e` the row of its failure. */
function chargedMatches(sql: Database, listing: RequestListing): SqlFragment {
  const { model, status, minStatus, errorCode, user, sessionId } = listing;
  return sql`(true ${ofOwner(sql, listing, sql`t.key_id`)}
    ${model === undefined ? sql`` : sql`AND t.model IS NOT DISTINCT FROM ${model}`}
    ${status === undefined ? sql`` : sql`AND coalesce(e.status, t.status) IS NOT DISTINCT FROM ${status}::integer`}
    ${minStatus === undefined ? sql`` : sql`AND coalesce(e.status, t.status, 0) >= ${minStatus}::integer`}
    ${errorCode === undefined ? sql`` : sql`AND ${chargedErrorCode(sql, sql`e`)} IS NOT DISTINCT FROM ${errorCode}`}
    ${user === undefined ? sql`` : sql`AND t.details ->> 'user' IS NOT DISTINCT FROM ${user}`}
    ${sessionId === undefined ? sql`` : sql`AND t.details ->> 'session_id' IS NOT DISTINCT FROM ${sessionId}`}
    ${within(sql, sql`t.created_at`, listing)})`;
}

function failedMatches(sql: Database, listing: RequestListing): SqlFragment {
  const { model, status, minStatus, errorCode, user, sessionId } = listing;
  return sql`(true ${ofOwner(sql, listing, sql`f.key_id`)}
    ${model === undefined ? sql`` : sql`AND f.model IS NOT DISTINCT FROM ${model}`}
    ${status === undefined ? sql`` : sql`AND f.status = ${status}::integer`}
    ${minStatus === undefined ? sql`` : sql`AND f.status >= ${minStatus}::integer`}
    ${errorCode === undefined ? sql`` : sql`AND f.error_code = ${errorCode}`}
    ${user === undefined ? sql`` : sql`AND f.user_name IS NOT DISTINCT FROM ${user}`}
    ${sessionId === undefined ? sql`` : sql`AND f.session_id IS NOT DISTINCT FROM ${sessionId}`}
    ${within(sql, sql`f.created_at`, listing)})`;
}

function within(sql: Database, time: SqlFragment, { fromMs, beforeMs }: RequestListing) {
  return sql`${fromMs === undefined ? sql`` : sql`AND ${time} >= ${new Date(fromMs)}`}
    ${beforeMs === undefined ? sql`` : sql`AND ${time} < ${new Date(beforeMs)}`}`;
}

/**
 * Returns the error code of a charge. A charge has a status of its own if its answer failed as a whole.
 */
function chargedErrorCode(sql: Database, failure: SqlFragment): SqlFragment {
  return sql`coalesce(${failure}.error_code, CASE t.status WHEN 499 THEN 'client_closed_request'
    WHEN 500 THEN 'internal'
    WHEN 408 THEN 'provider_timeout' WHEN 400 THEN 'content_policy_violation' END)`;
}

function joins(sql: Database, organizationId: string): SqlFragment {
  return sql`LEFT JOIN transactions t ON page.failed_at = '-infinity'
      AND t.organization_id = ${organizationId} AND t.sequence = page.position
    LEFT JOIN failed_requests f ON f.id = page.id`;
}

function columns(sql: Database): SqlFragment {
  return sql`page.id, coalesce(t.key_id, f.key_id) AS key_id, coalesce(t.model, f.model) AS model,
    coalesce(t.provider, f.provider) AS provider, coalesce(f.status, t.status) AS status,
    ${chargedErrorCode(sql, sql`f`)} AS error_code,
    coalesce(t.details ->> 'user', f.user_name) AS user_name,
    coalesce(t.details ->> 'session_id', f.session_id) AS session_id, t.prompt_tokens,
    t.completion_tokens, t.cached_prompt_tokens, t.reasoning_tokens, t.quantities,
    t.details ->> 'provider_key_id' AS provider_key_id, coalesce(t.amount_nano, 0) AS amount_nano, coalesce(t.latency_ms, f.latency_ms) AS latency_ms,
    coalesce(t.created_at, f.created_at) AS created_at`;
}

interface RequestRow {
  readonly id: string;
  readonly key_id: string | null;
  readonly model: string | null;
  readonly provider: string | null;
  readonly status: number | null;
  readonly error_code: string | null;
  readonly user_name: string | null;
  readonly session_id: string | null;
  readonly prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly cached_prompt_tokens: bigint | null;
  readonly reasoning_tokens: bigint | null;
  readonly quantities: Quantities | null;
  readonly amount_nano: bigint;
  readonly latency_ms: number | null;
  readonly provider_key_id: string | null;
  readonly created_at: Date;
}

interface ShownRow extends RequestRow {
  readonly transaction_id: string | null;
  readonly estimated: boolean | null;
  readonly list_price_usd: number | null;
  readonly queue_ms: number | null;
  readonly first_token_ms: number | null;
  readonly routing: RecordedRouting | null;
}

function listedRequest(row: RequestRow): ListedRequest {
  const { prompt_tokens: promptTokens, cached_prompt_tokens: cached, reasoning_tokens } = row;
  return {
    id: row.id,
    keyId: row.key_id,
    model: row.model,
    provider: row.provider,
    status: row.status,
    errorCode: row.error_code,
    user: row.user_name,
    sessionId: row.session_id,
    usage:
      promptTokens === null
        ? undefined
        : {
            promptTokens: Number(promptTokens),
            completionTokens: Number(row.completion_tokens ?? 0n),
            cachedPromptTokens: cached === null ? null : Number(cached),
            reasoningTokens: reasoning_tokens === null ? null : Number(reasoning_tokens),
            quantities: row.quantities,
          },
    costNano: -row.amount_nano,
    latencyMs: row.latency_ms,
    providerKeyId: row.provider_key_id,
    createdAtMs: row.created_at.getTime(),
  };
}
