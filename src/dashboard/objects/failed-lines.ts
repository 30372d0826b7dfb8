import type { Database } from "../../../db/client.ts";
import { readContents } from "../../../db/queries/batch-lines.ts";
import type { CostedBatch } from "../../../db/queries/object-lists.ts";
import type { FileLibrary } from "../../jobs/files/file-library.ts";
import { isEnded } from "../../lib/batch.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";

/** A line of a batch without an answer. */
export interface FailedLine {
  readonly customId: string | null;
  /** HTTP status. Null if the line was not called. */
  readonly status: number | null;
  readonly code: string | null;
  readonly message: string | null;
  readonly requestId: string | null;
}

export interface FailedLines {
  /** The first lines, at most MAX_SHOWN_LINES. */
  readonly lines: readonly FailedLine[];
  /** Number of lines by error, the most frequent first. At most MAX_ERRORS. */
  readonly errors: readonly { readonly code: string; readonly count: number }[];
  /** Number of lines that `errors` counts. */
  readonly counted: number;
  /** True if the file with the lines was deleted. */
  readonly isDeleted: boolean;
}

const MAX_SHOWN_LINES = 100;
const MAX_ERRORS = 20;
/** Bytes of failed lines that are read. The error file has the others. */
const MAX_READ_BYTES = 4_194_304;
const MAX_MESSAGE_CHARACTERS = 1_000;
const NO_CODE = "unknown";
const LINES_BETWEEN_YIELDS = 500;

interface FailedLinesDependencies {
  readonly sql: Database;
  readonly files: FileLibrary;
  readonly keyring: Pick<Keyring, "open">;
}

/**
 * Reads the failed lines of a batch: of an ended one from its error file, of a running one from its stored results. At
 * most MAX_READ_BYTES are read.
 */
export async function readFailedLines(
  dependencies: FailedLinesDependencies,
  batch: CostedBatch,
): Promise<FailedLines> {
  const lines: FailedLine[] = [];
  const counts = new Map<string, number>();
  let counted = 0;
  try {
    for await (const text of linesIn(piecesOf(dependencies, batch))) {
      const line = failedLine(text);
      if (lines.length < MAX_SHOWN_LINES) lines.push(line);
      const code = line.code ?? NO_CODE;
      if (counts.size < MAX_ERRORS || counts.has(code)) {
        counts.set(code, (counts.get(code) ?? 0) + 1);
      }
      counted++;
      if (counted % LINES_BETWEEN_YIELDS === 0) await yieldToEventLoop();
    }
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "file_not_found") throw error;
    return { lines: [], errors: [], counted: 0, isDeleted: true };
  }
  const errors = [...counts]
    .map(([code, count]) => ({ code, count }))
    .toSorted((one, other) => other.count - one.count);
  return { lines, errors, counted, isDeleted: false };
}

async function* piecesOf(
  { sql, files, keyring }: FailedLinesDependencies,
  { id, organizationId, status, errorFile, failed }: CostedBatch,
): AsyncGenerator<Uint8Array> {
  if (failed === 0) return;
  let bytes = 0;
  if (!isEnded(status)) {
    for await (const sealed of readContents(sql, id, { isFailed: true })) {
      const piece = keyring.open(sealed);
      yield piece;
      bytes += piece.length;
      if (bytes >= MAX_READ_BYTES) return;
    }
    return;
  }
  if (errorFile === null) return;
  const file = await files.find(organizationId, errorFile);
  const range = { start: 0, end: Math.min(file.bytes, MAX_READ_BYTES) };
  yield* await files.read(file, range);
}

/** Returns the lines of pieces that end with a line break. A line that is cut off is left out. */
async function* linesIn(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of pieces) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
}

/** Returns the line of an error file: see line-results.ts. */
function failedLine(text: string): FailedLine {
  const line = fieldsOf(jsonValue(text));
  const response = fieldsOf(line.response);
  // A line that was called has the error of its answer.
  const error = fieldsOf(line.error ?? fieldsOf(response.body).error);
  const message = textOrNull(error.message);
  return {
    customId: textOrNull(line.custom_id),
    status: typeof response.status_code === "number" ? response.status_code : null,
    code: textOrNull(error.code),
    message: message === null ? null : message.slice(0, MAX_MESSAGE_CHARACTERS),
    requestId: textOrNull(response.request_id),
  };
}

const fieldsOf = (value: unknown) => (isFields(value) ? value : {});
const textOrNull = (value: unknown) => (typeof value === "string" ? value : null);
