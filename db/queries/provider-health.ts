import type { Database } from "../client.ts";
import type { RowOf } from "../rows.ts";
import type { circuitOpenings, providerKeyFailures } from "../schema/providers.ts";
import { insertOutboxEvents, type OutboxEvent } from "./outbox.ts";

/**
 * Records that a provider fails its health checks, and reports that to every organization with a webhook for the event:
 * once until it is recorded as healthy again, however many instances notice it.
 */
export function noteUnhealthy(
  sql: Database,
  providerId: string,
  eventType: string,
  eventOf: (organizationId: string) => OutboxEvent,
): Promise<void> {
  return sql.begin(async (transaction) => {
    const noted = await transaction`
      INSERT INTO provider_health AS h (provider_id, is_healthy) VALUES (${providerId}, false)
      ON CONFLICT (provider_id) DO UPDATE SET is_healthy = false, changed_at = clock_timestamp()
      WHERE h.is_healthy`;
    if (noted.count === 0) return;
    const subscribed = await transaction<{ organization_id: string }[]>`
      SELECT DISTINCT organization_id FROM webhooks
      WHERE events && ${transaction.array([eventType, "*"])}::text[]`;
    const events = subscribed.map(({ organization_id }) => eventOf(organization_id));
    if (events.length > 0) await insertOutboxEvents(transaction, events);
  });
}

export async function noteHealthy(sql: Database, providerId: string): Promise<void> {
  await sql`UPDATE provider_health SET is_healthy = true, changed_at = clock_timestamp()
    WHERE provider_id = ${providerId} AND NOT is_healthy`;
}

/** A circuit that is open, or has opened, on this instance since the last time that it was recorded. */
export interface CircuitOpening {
  readonly endpointId: string;
  readonly providerId: string;
  /** Openings since the last time that it was recorded. */
  readonly openings: number;
  readonly failureKind: string | null;
  readonly failureStatus: number | null;
}

/** The last failed call with a key of a provider. */
export interface KeyFailure {
  readonly providerId: string;
  readonly keyPosition: number;
  readonly endpointId: string;
  readonly failedAtMs: number;
  readonly failureKind: string;
  readonly failureStatus: number | null;
}

/** Age after which openings are removed. */
const MAX_AGE = "7 days";
const REMOVED_AT_ONCE = 1_000;

/**
 * Records circuits that are open on an instance. One that was recorded within the last minute extends the row of its
 * period. Removes rows that are older than a week.
 */
export async function noteOpenCircuits(
  sql: Database,
  instanceId: string,
  openings: readonly CircuitOpening[],
): Promise<void> {
  const rows = openings.map((one) => ({
    endpoint_id: one.endpointId,
    provider_id: one.providerId,
    openings: one.openings,
    failure_kind: one.failureKind,
    failure_status: one.failureStatus,
  }));
  await sql`
    WITH seen AS (
      SELECT o.*, (
        SELECT max(opened_at) FROM circuit_openings c
        WHERE c.endpoint_id = o.endpoint_id AND c.instance_id = ${instanceId}
          AND c.last_open_at > clock_timestamp() - interval '1 minute'
      ) AS period
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
        AS o (endpoint_id text, provider_id text, openings integer, failure_kind text, failure_status smallint)
    )
    INSERT INTO circuit_openings AS c (endpoint_id, instance_id, opened_at, provider_id, last_open_at, openings,
      failure_kind, failure_status)
    SELECT endpoint_id, ${instanceId}, coalesce(period, clock_timestamp()), provider_id, clock_timestamp(),
      greatest(openings, CASE WHEN period IS NULL THEN 1 ELSE 0 END), failure_kind, failure_status
    FROM seen
    ON CONFLICT (endpoint_id, instance_id, opened_at) DO UPDATE SET last_open_at = EXCLUDED.last_open_at,
      openings = c.openings + EXCLUDED.openings,
      failure_kind = coalesce(EXCLUDED.failure_kind, c.failure_kind),
      failure_status = EXCLUDED.failure_status`;
  await sql`
    DELETE FROM circuit_openings WHERE ctid IN (
      SELECT ctid FROM circuit_openings WHERE last_open_at < clock_timestamp() - ${MAX_AGE}::interval
      LIMIT ${REMOVED_AT_ONCE})`;
}

/** Records the last failures of keys, unless another instance has recorded later ones. */
export async function noteKeyFailures(
  sql: Database,
  failures: readonly KeyFailure[],
): Promise<void> {
  const rows = failures.map((one) => ({
    provider_id: one.providerId,
    key_position: one.keyPosition,
    endpoint_id: one.endpointId,
    failed_at: new Date(one.failedAtMs).toISOString(),
    failure_kind: one.failureKind,
    failure_status: one.failureStatus,
  }));
  await sql`
    INSERT INTO provider_key_failures AS f (provider_id, key_position, endpoint_id, failed_at, failure_kind,
      failure_status)
    SELECT * FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
      AS f (provider_id text, key_position smallint, endpoint_id text, failed_at timestamptz, failure_kind text,
        failure_status smallint)
    ORDER BY provider_id, key_position
    ON CONFLICT (provider_id, key_position) DO UPDATE SET endpoint_id = EXCLUDED.endpoint_id,
      failed_at = EXCLUDED.failed_at, failure_kind = EXCLUDED.failure_kind,
      failure_status = EXCLUDED.failure_status
    WHERE f.failed_at < EXCLUDED.failed_at`;
}

/** A period in which the circuit of an endpoint was open on an instance. */
export interface CircuitPeriod extends CircuitOpening {
  readonly instanceId: string;
  readonly openedAtMs: number;
  readonly lastOpenAtMs: number;
  readonly isOpen: boolean;
}

const MAX_PERIODS = 200;
/** A circuit that was seen open within this time is open. Instances record every two seconds. */
const OPEN_FOR = "10 seconds";

/** Lists the periods that ended after a time, the latest first. At most 200. */
export async function listCircuitPeriods(sql: Database, afterMs: number): Promise<CircuitPeriod[]> {
  const rows = await sql<
    (RowOf<typeof circuitOpenings> & { readonly is_open: boolean })[]
  >`SELECT *, last_open_at > clock_timestamp() - ${OPEN_FOR}::interval AS is_open
    FROM circuit_openings WHERE last_open_at > ${new Date(afterMs)}
    ORDER BY last_open_at DESC LIMIT ${MAX_PERIODS}`;
  return rows.map((row) => ({
    ...{ endpointId: row.endpoint_id, providerId: row.provider_id, instanceId: row.instance_id },
    ...{ openings: row.openings, isOpen: row.is_open },
    ...{ failureKind: row.failure_kind, failureStatus: row.failure_status },
    openedAtMs: row.opened_at.getTime(),
    lastOpenAtMs: row.last_open_at.getTime(),
  }));
}

const MAX_KEYS = 1_000;

export async function listKeyFailures(sql: Database): Promise<KeyFailure[]> {
  const rows = await sql<RowOf<typeof providerKeyFailures>[]>`
    SELECT * FROM provider_key_failures ORDER BY failed_at DESC LIMIT ${MAX_KEYS}`;
  return rows.map((row) => ({
    ...{ providerId: row.provider_id, keyPosition: row.key_position, endpointId: row.endpoint_id },
    failedAtMs: row.failed_at.getTime(),
    ...{ failureKind: row.failure_kind, failureStatus: row.failure_status },
  }));
}

/** Returns the providers that fail their health checks, with the time since when. */
export async function unhealthyProviders(
  sql: Database,
): Promise<{ readonly providerId: string; readonly sinceMs: number }[]> {
  const rows = await sql<{ provider_id: string; changed_at: Date }[]>`
    SELECT provider_id, changed_at FROM provider_health WHERE NOT is_healthy ORDER BY changed_at`;
  return rows.map((row) => ({ providerId: row.provider_id, sinceMs: row.changed_at.getTime() }));
}
