import type {
  Hyperparameters,
  JobError,
  JobRecord,
  JobStatus,
} from "../../src/lib/fine-tuning-job.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { Query } from "../query.ts";

/** A row of fine_tuning_jobs as the driver gives it. */
export interface JobRow {
  readonly id: string;
  readonly request_id: string;
  readonly organization_id: string;
  readonly key_id: string;
  readonly base_model: string;
  readonly provider_id: string;
  readonly provider_base_model: string;
  readonly training_file: string;
  readonly validation_file: string | null;
  readonly suffix: string | null;
  readonly seed: number;
  readonly hyperparameters: Hyperparameters;
  readonly metadata: Record<string, string> | null;
  readonly token_femto: bigint;
  readonly fee_basis_points: number;
  readonly hold_nano: bigint;
  readonly status: JobStatus;
  readonly error: JobError | null;
  readonly fine_tuned_model: string | null;
  readonly file_tokens: bigint | null;
  readonly trained_tokens: bigint | null;
  readonly provider_file: string | null;
  readonly provider_validation_file: string | null;
  readonly provider_job: string | null;
  readonly create_tries: number;
  readonly troubles: number;
  readonly useless_answers: number;
  readonly is_cleaned_up: boolean;
  readonly result_file: string | null;
  readonly event_count: number;
  readonly version: bigint;
  readonly created_at: Date;
  readonly running_since: Date | null;
  readonly estimated_finish: Date | null;
  readonly finished_at: Date | null;
}

export function jobRecord(row: JobRow): JobRecord {
  return {
    id: row.id,
    requestId: row.request_id,
    organizationId: row.organization_id,
    keyId: row.key_id,
    baseModel: row.base_model,
    providerId: row.provider_id,
    providerBaseModel: row.provider_base_model,
    trainingFile: row.training_file,
    validationFile: row.validation_file,
    suffix: row.suffix,
    seed: row.seed,
    hyperparameters: row.hyperparameters,
    metadata: row.metadata,
    tokenFemto: row.token_femto,
    feeBasisPoints: row.fee_basis_points,
    holdNano: row.hold_nano,
    status: row.status,
    error: row.error,
    fineTunedModel: row.fine_tuned_model,
    fileTokens: row.file_tokens === null ? null : Number(row.file_tokens),
    trainedTokens: row.trained_tokens === null ? null : Number(row.trained_tokens),
    providerFile: row.provider_file,
    providerValidationFile: row.provider_validation_file,
    providerJob: row.provider_job,
    createTries: row.create_tries,
    troubles: row.troubles,
    uselessAnswers: row.useless_answers,
    isCleanedUp: row.is_cleaned_up,
    resultFile: row.result_file,
    eventCount: row.event_count,
    version: row.version,
    createdAtMs: row.created_at.getTime(),
    runningSinceMs: row.running_since?.getTime() ?? null,
    estimatedFinishMs: row.estimated_finish?.getTime() ?? null,
    finishedAtMs: row.finished_at?.getTime() ?? null,
  };
}

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

interface JobPage {
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

/** Jobs that have work now and no live owner, those that wait longest first. */
export async function findDueJobs(sql: Database, limit: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT j.id FROM fine_tuning_jobs j WHERE j.due_at <= clock_timestamp()
      AND NOT EXISTS (
        SELECT 1 FROM owned_actors o WHERE o.kind = ${FINE_TUNING_JOB} AND o.id = j.id)
    ORDER BY j.due_at LIMIT ${limit}`;
  return rows.map(({ id }) => id);
}
