import type { NewJobEvent } from "../../src/lib/fine-tuning-job.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { fineTuningEvents } from "../schema/fine-tuning.ts";

/**
 * Largest number of a provider's events per job. Further ones are dropped. The gateway's own few events are added to
 * these.
 */
export const MAX_PROVIDER_EVENTS = 1_000;

export interface JobEvent extends NewJobEvent {
  readonly id: string;
  readonly sequence: number;
  readonly createdAtMs: number;
}

const storedEvent = recordReader(fineTuningEvents, "jobId");

function jobEvent(row: RowOf<typeof fineTuningEvents>): JobEvent {
  return { ...storedEvent(row), providerEvent: null };
}

/**
 * Appends events to a job whose row this transaction has locked or inserted. Skips events that the provider has
 * reported before.
 */
export async function insertJobEvents(
  sql: DatabaseTransaction,
  jobId: string,
  events: readonly NewJobEvent[],
): Promise<void> {
  if (events.length === 0) return;
  const knownIds = await knownProviderEvents(sql, jobId, events);
  let [{ event_count: sequence } = { event_count: 0 }] = await sql<{ event_count: number }[]>`
    SELECT event_count FROM fine_tuning_jobs WHERE id = ${jobId}`;
  for (const event of events) {
    if (event.providerEvent !== null) {
      if (knownIds.has(event.providerEvent) || sequence >= MAX_PROVIDER_EVENTS) continue;
      knownIds.add(event.providerEvent);
    }
    sequence += 1;
    await sql`INSERT INTO fine_tuning_events
        (job_id, sequence, id, level, message, type, data, provider_event)
      VALUES (${jobId}, ${sequence}, ${eventId(jobId, sequence)}, ${event.level}, ${event.message},
        ${event.type}, ${JSON.stringify(event.data)}::text::jsonb, ${event.providerEvent})
      ON CONFLICT DO NOTHING`;
  }
  await sql`UPDATE fine_tuning_jobs SET event_count = ${sequence} WHERE id = ${jobId}`;
}

/** Returns an id made of job and number, so that writing an event again gives the same id. */
function eventId(jobId: string, sequence: number): string {
  return `ftevent_${jobId.slice(jobId.indexOf("_") + 1)}_${String(sequence).padStart(4, "0")}`;
}

async function knownProviderEvents(
  sql: DatabaseTransaction,
  jobId: string,
  events: readonly NewJobEvent[],
): Promise<Set<string>> {
  const providerEvents = events.flatMap(({ providerEvent }) => providerEvent ?? []);
  if (providerEvents.length === 0) return new Set();
  const rows = await sql<{ provider_event: string }[]>`
    SELECT provider_event FROM fine_tuning_events
    WHERE job_id = ${jobId} AND provider_event IN ${sql(providerEvents)}`;
  return new Set(rows.map((row) => row.provider_event));
}

/** Returns the number of an event of the job. Undefined if it has no such event. */
export async function findEventSequence(
  sql: Database,
  jobId: string,
  eventId: string,
): Promise<number | undefined> {
  const [row] = await sql<{ sequence: number }[]>`
    SELECT sequence FROM fine_tuning_events WHERE job_id = ${jobId} AND id = ${eventId}`;
  return row?.sequence;
}

/** Returns events after `after`, oldest first. */
export async function eventsAfter(
  sql: Database,
  jobId: string,
  after: number,
  limit: number,
): Promise<JobEvent[]> {
  const rows = await sql<RowOf<typeof fineTuningEvents>[]>`SELECT * FROM fine_tuning_events
    WHERE job_id = ${jobId} AND sequence > ${after} ORDER BY sequence LIMIT ${limit}`;
  return rows.map(jobEvent);
}

/** Returns events before `before`, newest first. */
export async function eventsBefore(
  sql: Database,
  jobId: string,
  before: number,
  limit: number,
): Promise<JobEvent[]> {
  const rows = await sql<RowOf<typeof fineTuningEvents>[]>`SELECT * FROM fine_tuning_events
    WHERE job_id = ${jobId} AND sequence < ${before} ORDER BY sequence DESC LIMIT ${limit}`;
  return rows.map(jobEvent);
}
