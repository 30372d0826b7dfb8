import type { JobRecord } from "../../src/lib/fine-tuning-job.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { Query } from "../query.ts";
import { type JobRow, jobRecord } from "./fine-tuning-job-rows.ts";

export const FINE_TUNING_JOB = "fine-tuning-job";

/** For the job's owner. */
export function loadJob(id: string): Query<JobRecord | undefined> {
  return {
    name: "fine-tuning-job-load",
    tables: ["fine_tuning_jobs"],
    async run(sql) {
      const [row] = await sql<JobRow[]>`SELECT * FROM fine_tuning_jobs WHERE id = ${id}`;
      return row && jobRecord(row);
    },
  };
}

/** For a caller: a job of its organization. */
export async function findJob(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<JobRecord | undefined> {
  const [row] = await sql<JobRow[]>`
    SELECT * FROM fine_tuning_jobs WHERE id = ${id} AND organization_id = ${organizationId}`;
  return row && jobRecord(row);
}

export interface JobPage {
  readonly organizationId: string;
  /** Jobs older than this one. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** Jobs of an organization, newest first; undefined where it has no job `after`. */
export async function listJobs(
  sql: Database,
  page: JobPage,
): Promise<{ jobs: JobRecord[]; hasMore: boolean } | undefined> {
  const { organizationId, after, limit } = page;
  if (after !== undefined && (await findJob(sql, organizationId, after)) === undefined) {
    return undefined;
  }
  const rows = await sql<JobRow[]>`
    SELECT * FROM fine_tuning_jobs WHERE organization_id = ${organizationId}
    ${
      after === undefined
        ? sql``
        : sql`AND (created_at, id) < (SELECT created_at, id FROM fine_tuning_jobs WHERE id = ${after})`
    }
    ORDER BY created_at DESC, id DESC LIMIT ${limit + 1}`;
  return { jobs: rows.slice(0, limit).map(jobRecord), hasMore: rows.length > limit };
}

/** Jobs of an organization that have not ended. */
export async function countRunningJobs(
  sql: Database | DatabaseTransaction,
  organizationId: string,
): Promise<number> {
  const [row] = await sql<{ running: bigint }[]>`
    SELECT count(*) AS running FROM fine_tuning_jobs
    WHERE organization_id = ${organizationId} AND finished_at IS NULL`;
  return Number(row!.running);
}

/** Jobs that have something to do now and that nobody alive owns, those that wait longest first. */
export async function findDueJobs(sql: Database, limit: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT j.id FROM fine_tuning_jobs j WHERE j.due_at <= clock_timestamp()
      AND NOT EXISTS (
        SELECT 1 FROM owned_actors o WHERE o.kind = ${FINE_TUNING_JOB} AND o.id = j.id)
    ORDER BY j.due_at LIMIT ${limit}`;
  return rows.map(({ id }) => id);
}
