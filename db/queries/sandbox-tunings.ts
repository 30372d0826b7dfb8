import type { Database } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { sandboxTunings } from "../schema/fine-tuning.ts";

export interface SandboxTuning {
  readonly id: string;
  readonly tokens: number;
  /** Undefined if no job uses the file yet. */
  readonly job: SandboxJob | undefined;
}

export interface SandboxJob {
  readonly tag: string;
  readonly model: string;
  readonly epochs: number;
  readonly startedAtMs: number;
  readonly cancelledAtMs: number | undefined;
}

const tuningOf = recordReader(sandboxTunings, "fileName", "learned", "uploadedAt", "fileDeletedAt");

/** Files that no job has used, and deleted rows, are removed after a day. */
const UNUSED_HOURS = 24;
const REMOVED_AT_A_TIME = 100;

export async function insertSandboxFile(
  sql: Database,
  file: { id: string; name: string; learnedJson: string; tokens: number },
): Promise<void> {
  await sql`DELETE FROM sandbox_tunings WHERE id IN (
    SELECT id FROM sandbox_tunings
    WHERE uploaded_at < clock_timestamp() - make_interval(hours => ${UNUSED_HOURS})
      AND (tag IS NULL OR (learned IS NULL AND file_deleted_at IS NOT NULL))
    LIMIT ${REMOVED_AT_A_TIME})`;
  await sql`INSERT INTO sandbox_tunings (id, file_name, learned, tokens)
    VALUES (${file.id}, ${file.name}, ${file.learnedJson}, ${file.tokens})`;
}

export async function findSandboxFile(sql: Database, name: string): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`
    SELECT id FROM sandbox_tunings WHERE file_name = ${name} AND file_deleted_at IS NULL
    ORDER BY uploaded_at DESC LIMIT 1`;
  return row?.id;
}

/**
 * Deletes a file. The lessons that a job has learned from it stay with the job's model, unless that model is
 * `modelless`.
 */
export async function deleteSandboxFile(
  sql: Database,
  id: string,
  modelless: string,
): Promise<void> {
  await sql`UPDATE sandbox_tunings SET file_deleted_at = clock_timestamp(),
      learned = CASE WHEN tag IS NULL OR model = ${modelless} THEN NULL ELSE learned END
    WHERE id = ${id} AND file_deleted_at IS NULL`;
}

/**
 * Starts a job with a file. Returns false if the file does not exist, or if a job uses it already.
 */
export async function startSandboxJob(
  sql: Database,
  id: string,
  job: Omit<SandboxJob, "cancelledAtMs">,
): Promise<boolean> {
  const started = await sql`UPDATE sandbox_tunings SET tag = ${job.tag}, model = ${job.model},
      epochs = ${job.epochs}, started_at_ms = ${job.startedAtMs}
    WHERE id = ${id} AND file_deleted_at IS NULL AND tag IS NULL`;
  return started.count === 1;
}

export async function findSandboxTuning(
  sql: Database,
  by: { readonly id: string } | { readonly tag: string },
): Promise<SandboxTuning | undefined> {
  const [row] = await sql<RowOf<typeof sandboxTunings>[]>`
    SELECT id, tokens, tag, model, epochs, started_at_ms, cancelled_at_ms FROM sandbox_tunings
    WHERE ${"id" in by ? sql`id = ${by.id}` : sql`tag = ${by.tag}`}`;
  if (row === undefined) return undefined;
  const { tokens, tag, model, epochs, startedAtMs, cancelledAtMs } = tuningOf(row);
  const job =
    tag === null || model === null || epochs === null || startedAtMs === null
      ? undefined
      : { tag, model, epochs, startedAtMs, cancelledAtMs: cancelledAtMs ?? undefined };
  return { id: row.id, tokens, job };
}

/** Cancels a job that started after `startedAfterMs`. An older job has ended. */
export async function cancelSandboxJob(
  sql: Database,
  id: string,
  nowMs: number,
  startedAfterMs: number,
): Promise<void> {
  await sql`UPDATE sandbox_tunings SET cancelled_at_ms = ${nowMs}, learned = NULL
    WHERE id = ${id} AND cancelled_at_ms IS NULL AND started_at_ms > ${startedAfterMs}`;
}

/** Returns what a model has learned, as its stored JSON. Undefined if the model does not exist. */
export async function readSandboxLearned(sql: Database, id: string): Promise<string | undefined> {
  const [row] = await sql<{ learned: string | null }[]>`
    SELECT learned FROM sandbox_tunings WHERE id = ${id} AND tag IS NOT NULL`;
  return row?.learned ?? undefined;
}

export async function deleteSandboxModel(sql: Database, id: string): Promise<void> {
  await sql`UPDATE sandbox_tunings SET learned = NULL WHERE id = ${id}`;
}
