import type { Database } from "../../db/client.ts";
import { eventsAfter, MAX_PROVIDER_EVENTS } from "../../db/queries/fine-tuning-events.ts";
import { resultFileOf } from "../../db/queries/fine-tuning-jobs.ts";
import type { JobFiles } from "../files/job-files.ts";
import { GatewayError } from "../lib/errors.ts";
import { type JobRecord, resultFileId } from "../lib/fine-tuning-job.ts";

/** The bytes of a file that the job keeps, deleted by its owner or not; undefined where it keeps none. */
export async function openFile(
  files: JobFiles,
  { id, organizationId }: JobRecord,
  fileId: string,
): Promise<ReadableStream<Uint8Array> | undefined> {
  try {
    return await files.read({ fileId, organizationId, holder: id });
  } catch (error) {
    if (error instanceof GatewayError && error.code === "file_not_found") return undefined;
    throw error;
  }
}

/** What the events measured that they say by themselves, in the order of the columns. */
const COLUMNS = ["step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"] as const;

/**
 * Writes what was measured in training into the job's file of results, as a table, one line a step; what
 * is written already stays. Null where the organization has deleted it.
 */
export async function writeResults(
  files: JobFiles,
  sql: Database,
  job: JobRecord,
): Promise<string | null> {
  const events = await eventsAfter(sql, job.id, 0, 2 * MAX_PROVIDER_EVENTS);
  const rows = events
    .filter(({ type }) => type === "metrics")
    .map(({ data }) => COLUMNS.map((column) => numberText(data[column])).join(","));
  const endedAtMs = job.finishedAtMs ?? job.createdAtMs;
  const result = resultFileOf(job, job.resultFile ?? resultFileId(job.id, endedAtMs));
  const table = new TextEncoder().encode(`${[COLUMNS.join(","), ...rows].join("\n")}\n`);
  try {
    // The version before ended jobs without a file.
    if (job.resultFile === null) await files.announceResult(result);
    await files.writeResult(result, [table]);
    return result.id;
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    // The organization has deleted it already.
    if (error.code === "file_not_found") return null;
    // It is in error: there was no room for it before.
    if (error.code === "invalid_body") return result.id;
    if (error.code !== "quota_exceeded") throw error;
    await files.trigger(result, "fail", "The organization has no room left for it.");
    return result.id;
  }
}

function numberText(value: unknown): string {
  return typeof value === "number" && Number.isFinite(value) ? String(value) : "";
}
