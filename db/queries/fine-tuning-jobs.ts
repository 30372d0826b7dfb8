import type { Author } from "../../src/lib/author.ts";
import {
  isFinal,
  type JobOrder,
  type JobRecord,
  type NewJobEvent,
} from "../../src/lib/fine-tuning-job.ts";
import { timeOfId } from "../../src/lib/ids.ts";
import type { Database, DatabaseTransaction, Query } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { fineTuningJobs } from "../schema/fine-tuning.ts";
import { type Act, recordAct } from "./audit-log.ts";
import { recordChange } from "./changes.ts";
import type { NewFile } from "./file-uploads.ts";
import { announceFile, insertFileUse } from "./files.ts";
import { insertJobEvents } from "./fine-tuning-events.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";
import { insertTunedModel, type NewTunedModel } from "./tuned-models.ts";

const jobRecord = recordReader(fineTuningJobs, "dueAt");

/** A row of fine_tuning_jobs as the driver returns it. */

export const FINE_TUNING_JOB = "fine-tuning-job";

/** Loads a job for its owner. */
export function loadJob(id: string): Query<JobRecord | undefined> {
  return {
    name: "fine-tuning-job-load",
    tables: ["fine_tuning_jobs"],
    async run(sql) {
      const [row] = await sql<
        RowOf<typeof fineTuningJobs>[]
      >`SELECT * FROM fine_tuning_jobs WHERE id = ${id}`;
      return row && jobRecord(row);
    },
  };
}

/** Finds a job of the caller's organization. */
export async function findJob(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<JobRecord | undefined> {
  const [row] = await sql<RowOf<typeof fineTuningJobs>[]>`
    SELECT * FROM fine_tuning_jobs WHERE id = ${id} AND organization_id = ${organizationId}`;
  return row && jobRecord(row);
}

interface JobPage {
  readonly organizationId: string;
  /** Lists jobs older than this one. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** Lists jobs of an organization, newest first. Returns undefined if it has no job `after`. */
export async function listJobs(
  sql: Database,
  page: JobPage,
): Promise<{ jobs: JobRecord[]; hasMore: boolean } | undefined> {
  const { organizationId, after, limit } = page;
  if (after !== undefined && (await findJob(sql, organizationId, after)) === undefined) {
    return undefined;
  }
  const rows = await sql<RowOf<typeof fineTuningJobs>[]>`
    SELECT * FROM fine_tuning_jobs WHERE organization_id = ${organizationId}
    ${
      after === undefined
        ? sql``
        : sql`AND (created_at, id) < (SELECT created_at, id FROM fine_tuning_jobs WHERE id = ${after})`
    }
    ORDER BY created_at DESC, id DESC LIMIT ${limit + 1}`;
  return { jobs: rows.slice(0, limit).map(jobRecord), hasMore: rows.length > limit };
}

/** Counts the jobs of an organization that have not ended. */
export async function countRunningJobs(
  sql: Database | DatabaseTransaction,
  organizationId: string,
): Promise<number> {
  const [row] = await sql<{ running: bigint }[]>`
    SELECT count(*) AS running FROM fine_tuning_jobs
    WHERE organization_id = ${organizationId} AND finished_at IS NULL`;
  return Number(row!.running);
}

/** Finds jobs that have work now and no live owner. Those that have waited longest come first. */
export async function findDueJobs(sql: Database, limit: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT j.id FROM fine_tuning_jobs j WHERE j.due_at <= clock_timestamp()
      AND NOT EXISTS (
        SELECT 1 FROM owned_actors o WHERE o.kind = ${FINE_TUNING_JOB} AND o.id = j.id)
    ORDER BY j.due_at LIMIT ${limit}`;
  return rows.map(({ id }) => id);
}

/** The job has changed since this write was decided on. Nothing was written. */
export class JobMovedError extends Error {
  constructor(id: string) {
    super(`fine-tuning job ${id} has changed in the meantime`);
    this.name = "JobMovedError";
  }
}

/** One step of a job, and all other changes of its transaction. */
export interface JobWrite {
  readonly before: JobRecord;
  readonly after: JobRecord;
  /** Milliseconds until its owner has work again. Null: never. */
  readonly dueInMs: number | null;
  readonly events: readonly NewJobEvent[];
  readonly outbox?: OutboxEvent;
  readonly tunedModel?: NewTunedModel;
  /** True if the writer is not the owner of the job. Then the owner must be notified. */
  readonly wakesOwner?: boolean;
  /** The administrative act that causes the step, with its author. */
  readonly act?: { readonly author: Author; readonly recorded: Act } | undefined;
}

const TABLES = [
  "file_uses",
  "fine_tuning_jobs",
  "fine_tuning_events",
  "tuned_models",
  "files",
  "outbox",
  "changes",
] as const;

/** A file of the job was deleted while the job was created. */
export class FileGoneError extends Error {
  readonly fileId: string;

  constructor(fileId: string) {
    super(`the file ${fileId} does not exist`);
    this.name = "FileGoneError";
    this.fileId = fileId;
  }
}

/** The organization has its maximum number of jobs that have not ended. */
export class TooManyJobsError extends Error {
  constructor(organizationId: string) {
    super(`${organizationId} has too many fine-tuning jobs`);
    this.name = "TooManyJobsError";
  }
}

/**
 * Returns an effect that inserts a job with its first events, and keeps its files for it. The effect throws
 * FileGoneError if a file no longer exists, and TooManyJobsError if `mostRunning` jobs have not ended.
 *
 * @param mostRunning largest number of jobs of the organization that have not ended
 * @param onInserted receives the inserted job. After the commit its owner may advance it
 */
export function insertJobEffect(
  order: JobOrder,
  events: readonly NewJobEvent[],
  mostRunning: number,
  onInserted: (job: JobRecord) => void,
): StatementEffect {
  return {
    kind: "statement",
    name: "fine-tuning-job-insert",
    tables: TABLES,
    events: [],
    async run(sql) {
      await assertRoom(sql, order.organizationId, mostRunning);
      const [row] = await sql<[RowOf<typeof fineTuningJobs>]>`INSERT INTO fine_tuning_jobs ${sql({
        id: order.id,
        request_id: order.requestId,
        organization_id: order.organizationId,
        key_id: order.keyId,
        base_model: order.baseModel,
        provider_id: order.providerId,
        provider_base_model: order.providerBaseModel,
        training_file: order.trainingFile,
        validation_file: order.validationFile,
        suffix: order.suffix,
        seed: order.seed,
        hyperparameters: order.hyperparameters as never,
        metadata: order.metadata as never,
        token_femto: order.tokenFemto,
        fee_basis_points: order.feeBasisPoints,
        hold_nano: order.holdNano,
      })} RETURNING *`;
      onInserted(jobRecord(row));
      for (const fileId of [order.trainingFile, order.validationFile]) {
        if (fileId === null) continue;
        const { organizationId } = order;
        const isInUse = await insertFileUse(sql, { fileId, organizationId, holder: order.id });
        if (!isInUse) throw new FileGoneError(fileId);
      }
      await insertJobEvents(sql, order.id, events);
      await recordChange(sql, "fine-tuning-work", order.id);
    },
  };
}

/** Counts the orders of an organization one after the other, across instances. */
async function assertRoom(
  sql: DatabaseTransaction,
  organizationId: string,
  mostRunning: number,
): Promise<void> {
  const name = `fine-tuning-jobs ${organizationId}`;
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${name}, 0))`;
  if ((await countRunningJobs(sql, organizationId)) >= mostRunning) {
    throw new TooManyJobsError(organizationId);
  }
}

/**
 * Returns an effect that writes one step of a job, if the job has not changed since the decision. Else it throws
 * JobMovedError.
 *
 * @param guard the first statement of the transaction, such as the check of a lease
 */
export function writeJobEffect(
  write: JobWrite,
  guard: (sql: DatabaseTransaction) => Promise<void> = async () => {},
): StatementEffect {
  return {
    kind: "statement",
    name: "fine-tuning-job-write",
    tables: TABLES,
    events: write.outbox === undefined ? [] : [write.outbox.type],
    author: write.act?.author,
    async run(sql) {
      await guard(sql);
      await writeJob(sql, write);
    },
  };
}

async function writeJob(sql: DatabaseTransaction, write: JobWrite): Promise<void> {
  const { before, after, dueInMs, outbox, tunedModel } = write;
  const written = await sql`UPDATE fine_tuning_jobs SET ${sql(progressColumns(after))},
      due_at = clock_timestamp() + make_interval(secs => ${dueInMs === null ? null : dueInMs / 1_000})
    WHERE id = ${before.id} AND version = ${before.version} AND status = ${before.status}`;
  if (written.count !== 1) throw new JobMovedError(before.id);
  await insertJobEvents(sql, before.id, write.events);
  if (tunedModel !== undefined) {
    await insertTunedModel(sql, tunedModel);
    await recordChange(sql, "tuned-model", before.organizationId);
  }
  if (before.resultFile === null && after.resultFile !== null && !isFinal(before.status)) {
    await announceFile(sql, resultFileOf(after, after.resultFile));
  }
  if (outbox !== undefined) await insertOutboxEvent(sql, outbox);
  if (write.events.length > 0 || before.status !== after.status) {
    await recordChange(sql, "fine-tuning-job", before.id);
  }
  if (write.wakesOwner === true) await recordChange(sql, "fine-tuning-work", before.id);
  if (write.act !== undefined) await recordAct(sql, write.act.recorded);
}

/** Returns the file with the metrics of the training, as it is created. */
export function resultFileOf(job: Pick<JobRecord, "organizationId" | "keyId">, id: string) {
  return {
    id,
    organizationId: job.organizationId,
    keyId: job.keyId,
    filename: "step_metrics.csv",
    purpose: "fine-tune-results" as const,
    contentType: "text/csv",
    createdAtMs: timeOfId(id),
    lifetimeSeconds: null,
  } satisfies NewFile;
}

function progressColumns(job: JobRecord): Record<string, never> {
  const time = (ms: number | null) => (ms === null ? null : new Date(ms));
  return {
    status: job.status,
    error: job.error,
    fine_tuned_model: job.fineTunedModel,
    file_tokens: job.fileTokens,
    trained_tokens: job.trainedTokens,
    provider_file: job.providerFile,
    provider_validation_file: job.providerValidationFile,
    provider_job: job.providerJob,
    create_tries: job.createTries,
    troubles: job.failedCalls,
    useless_answers: job.uselessAnswers,
    is_cleaned_up: job.isCleanedUp,
    result_file: job.resultFile,
    running_since: time(job.runningSinceMs),
    estimated_finish: time(job.estimatedFinishMs),
    finished_at: time(job.finishedAtMs),
    version: job.version,
  } as Record<string, unknown> as Record<string, never>;
}
