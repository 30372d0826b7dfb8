import type { Database } from "../../../db/client.ts";
import { eventsAfter, MAX_PROVIDER_EVENTS } from "../../../db/queries/fine-tuning-events.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { JobRecord } from "../../lib/fine-tuning-job.ts";
import type { JobFiles } from "../files/job-files.ts";

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

/** Of an id: milliseconds since the epoch (RFC 9562, section 5.7). */
const TIME_DIGITS = 12;
/** What the events measured that they say by themselves, in the order of the columns. */
const COLUMNS = ["step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"] as const;

/**
 * Stores what was measured in training as a table, one line a step. Null where the organization has
 * deleted it.
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
  const result = {
    id: resultFileId(job),
    organizationId: job.organizationId,
    filename: "step_metrics.csv",
    contentType: "text/csv",
  };
  const table = new TextEncoder().encode(`${[COLUMNS.join(","), ...rows].join("\n")}\n`);
  try {
    await files.announceResult(result);
    await files.writeResult(result, [table]);
    return result.id;
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    // The organization has deleted it already.
    if (error.code === "file_not_found") return null;
    if (error.code !== "quota_exceeded") throw error;
    await files.trigger(result, "fail", "The organization has no room left for it.");
    return result.id;
  }
}

/**
 * Follows from the job, so that a crash leaves no second file. Its time is that of the job's end, for
 * files are listed and dated by their ids.
 */
function resultFileId({ id, createdAtMs, finishedAtMs }: JobRecord): string {
  const unique = id.slice("ftjob_".length + TIME_DIGITS);
  return `file_${(finishedAtMs ?? createdAtMs).toString(16).padStart(TIME_DIGITS, "0")}${unique}`;
}

function numberText(value: unknown): string {
  return typeof value === "number" && Number.isFinite(value) ? String(value) : "";
}
