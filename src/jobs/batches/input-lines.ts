import type { BatchFault } from "../../lib/batch.ts";
import {
  JsonLineError,
  loopPauses,
  parseJsonLine,
  type RawLine,
  readLines,
} from "../../lib/json-lines.ts";
import { checkBatchLine, MAX_LINE_BYTES } from "../files/json-lines-check.ts";

export const MAX_INPUT_BYTES = 200 * 1024 * 1024;
export const MAX_LINES = 50_000;
const MAX_FAULTS = 100;
/** Models of a batch that are recorded, so that an operator does not delete them. */
const MAX_MODELS = 1_000;

/** A request of a batch. */
export interface BatchLine {
  readonly line: number;
  readonly customId: string;
  readonly url: string;
  readonly body: Readonly<Record<string, unknown>>;
}

interface ReadLine extends BatchLine {
  /** Bytes of the line in the file. */
  readonly size: number;
}

/** Yields the requests of an input file in order. Blank and unwanted lines are skipped. Throws JsonLineError. */
export async function* readBatchLines(
  content: ReadableStream<Uint8Array>,
  isWanted: (line: number) => boolean = () => true,
): AsyncGenerator<ReadLine> {
  const pause = loopPauses();
  for await (const raw of readLines(content, MAX_LINE_BYTES)) {
    await pause();
    if (!isWanted(raw.line)) continue;
    const line = batchLine(raw);
    if (line !== undefined) yield line;
  }
}

/** Limits of the lines that are read ahead. */
const LINES_A_GROUP = 250;
const CHARACTERS_A_GROUP = 4_194_304;

/** Yields the wanted requests in groups. */
export async function* readSomeLines(
  content: ReadableStream<Uint8Array>,
  isWanted: (line: number) => boolean,
): AsyncGenerator<readonly BatchLine[]> {
  let lines: BatchLine[] = [];
  let characters = 0;
  for await (const { size, ...line } of readBatchLines(content, isWanted)) {
    lines.push(line);
    characters += size;
    if (lines.length < LINES_A_GROUP && characters < CHARACTERS_A_GROUP) continue;
    yield lines;
    lines = [];
    characters = 0;
  }
  if (lines.length > 0) yield lines;
}

function batchLine({ line, bytes }: RawLine): ReadLine | undefined {
  const decode = () => new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  const value = parseJsonLine(line, decode) as Record<string, unknown> | undefined;
  if (value === undefined) return undefined;
  const fault = checkBatchLine(value);
  if (fault !== undefined) throw new JsonLineError(line, `${fault.field ?? ""} ${fault.what}`);
  const { custom_id, url, body } = value as unknown as Pick<BatchLine, "url" | "body"> & {
    readonly custom_id: string;
  };
  return { line, customId: custom_id, url, body, size: bytes.byteLength };
}

/** Fields that make the answer streamed or delayed. */
const UNFIT_FIELDS = ["stream", "background"] as const;
const IDEMPOTENCY_FIELD = "metadata.idempotency_key";

interface CheckedInput {
  readonly total: number;
  readonly models: readonly string[];
}

/**
 * Reads an input file to its end. Returns the number of requests and the models that they name, or up to a hundred
 * faults. The upload has already checked each line separately.
 */
export async function checkInput(
  content: ReadableStream<Uint8Array>,
  endpoint: string,
): Promise<CheckedInput | { readonly faults: readonly BatchFault[] }> {
  const customIds = new Set<string>();
  const models = new Set<string>();
  const faults: BatchFault[] = [];
  try {
    for await (const line of readBatchLines(content)) {
      const fault = faultOf(line, endpoint, customIds);
      if (fault !== undefined) faults.push(fault);
      customIds.add(line.customId);
      const { model } = line.body;
      if (typeof model === "string" && models.size < MAX_MODELS) models.add(model);
      if (customIds.size > MAX_LINES) {
        faults.push(
          wholeFault("too_many_requests", `The file has more than ${MAX_LINES} requests.`),
        );
      }
      if (faults.length >= MAX_FAULTS || customIds.size > MAX_LINES) return { faults };
    }
  } catch (error) {
    if (!(error instanceof JsonLineError)) throw error;
    const { line, message } = error;
    return { faults: [...faults, { code: "invalid_json_line", message, line, param: null }] };
  }
  if (customIds.size === 0) return { faults: [wholeFault("empty_file", "The file is empty.")] };
  return faults.length > 0 ? { faults } : { total: customIds.size, models: [...models] };
}

function faultOf(
  { line, customId, url, body }: BatchLine,
  endpoint: string,
  customIds: ReadonlySet<string>,
): BatchFault | undefined {
  if (customIds.has(customId)) {
    const message = "The custom_id is already used by an earlier line.";
    return { code: "duplicate_custom_id", message, line, param: "custom_id" };
  }
  if (url !== endpoint) {
    const message = `The url is not the endpoint of the batch, ${endpoint}.`;
    return { code: "mismatched_url", message, line, param: "url" };
  }
  const code = "unsupported_parameter";
  const unfit = UNFIT_FIELDS.find((field) => body[field] === true);
  if (unfit !== undefined) {
    const message = `Requests of a batch cannot have "${unfit}": true.`;
    return { code, message, line, param: `body.${unfit}` };
  }
  if (!statesIdempotencyKey(body)) return undefined;
  const message = `Requests of a batch cannot have "${IDEMPOTENCY_FIELD}": each is charged once without it.`;
  return { code, message, line, param: `body.${IDEMPOTENCY_FIELD}` };
}

function statesIdempotencyKey({ metadata }: BatchLine["body"]): boolean {
  if (typeof metadata !== "object" || metadata === null) return false;
  const { idempotency_key } = metadata as Record<string, unknown>;
  return idempotency_key !== undefined && idempotency_key !== null;
}

function wholeFault(code: string, message: string): BatchFault {
  return { code, message, line: null, param: "input_file_id" };
}
