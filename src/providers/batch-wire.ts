import type { Clock } from "../lib/clock.ts";
import { isFields } from "../lib/json.ts";
import { JsonLineError, loopPauses, readPiecedLines } from "../lib/json-lines.ts";
import { type SharedBytes, SharedBytesWriter } from "../lib/shared-bytes.ts";
import type { BatchResult } from "./batches.ts";
import { BrokenAnswer, isNotOffered } from "./fine-tuning.ts";
import { ProviderFailure } from "./interface.ts";
import { type AnswerRead, type AnswerReading, readAnswerText } from "./thread-work.ts";
import { MAX_COMPLETION_BYTES, MAX_QUICK_ANSWER_BYTES } from "./transport/bounded-body.ts";
import { CallAbort } from "./transport/call-abort.ts";
import { failureOfThrown } from "./transport/call-failures.ts";
import { HttpJsonProvider, type HttpJsonProviderOptions } from "./transport/http-json-provider.ts";
import type { FailureContext } from "./transport/status-failure.ts";

/** Time limit of a short call, such as reading a batch's state. */
const SHORT_CALL_MS = 60_000;
/** Time limit of an upload, including the time to build its body. */
const UPLOAD_MS = 1_800_000;
/** Limits while results are read: without any data, and in total. */
const RESULTS_IDLE_MS = 60_000;
const RESULTS_WAIT_MS = 3_600_000;
/** Limit of one line of results: a completion and its envelope. */
const MAX_LINE_BYTES = MAX_COMPLETION_BYTES + 65_536;
/** Limit of a whole results file: this allowance and a mean for each request. No real file reaches it. */
const SPARE_RESULT_BYTES = 2 * MAX_LINE_BYTES;
const MAX_MEAN_RESULT_BYTES = 4 * 1024 * 1024;
const SPARE_LINES = 100;
const COPIED_AT_A_TIME = 1_048_576;

export type Fields = Readonly<Record<string, unknown>>;

type Headers = Readonly<Record<string, string>>;

interface JsonCall {
  readonly method: string;
  readonly url: string;
  readonly headers?: Headers;
  readonly body?: Fields;
}

interface UploadCall {
  readonly url: string;
  readonly headers: Headers;
  readonly body: ReadableStream<Uint8Array>;
}

/** A provider's list of batches, newest first. */
interface BatchList {
  readonly url: string;
  /** The query parameter that takes the id of the last batch of the previous page. */
  readonly cursor: string;
  readonly pageSize: number;
  readonly maxPages: number;
  /** Returns the time of creation in Unix milliseconds, or undefined if the batch states none. */
  createdMs(batch: Fields): number | undefined;
}

/** One line of a results file. A structured clone. */
export type ResultLine =
  | { readonly id: string; readonly status: number; readonly body: string | Uint8Array }
  | { readonly id: string; readonly failed: Pick<ProviderFailure, "kind" | "message"> }
  /** The provider did not run the request. */
  | { readonly id: string };

interface LinesCall<Options> {
  readonly url: string;
  readonly read: AnswerRead<Options, ResultLine>;
  readonly options: Options;
}

interface ResultsCall<Options> extends LinesCall<Options> {
  readonly ids: ReadonlySet<string>;
  /** Ids whose results were already returned. `results` adds to it. */
  readonly seen: Set<string>;
  /** Text that the provider's ids have in front of the gateway's ids. */
  readonly prefix?: string;
}

/** HTTP calls to a provider's batch API. Methods reject with ProviderFailure. */
export class BatchHttpClient {
  readonly headers: Headers;
  readonly #wire: HttpJsonProvider;
  readonly #clock: Clock;
  readonly #reading: AnswerReading;

  constructor(options: HttpJsonProviderOptions & { readonly headers: Headers }) {
    this.headers = options.headers;
    this.#wire = new HttpJsonProvider(options);
    this.#clock = options.clock;
    this.#reading = { thread: options.workThread, owner: `provider ${options.settings.id}` };
  }

  get failureContext(): FailureContext {
    return this.#wire.failureContext;
  }

  get nowMs(): number {
    return this.#clock.nowMs();
  }

  async object(call: JsonCall, signal: AbortSignal): Promise<Fields> {
    const { method, url, headers = this.headers, body } = call;
    const text = body === undefined ? "" : JSON.stringify(body);
    const request = { method, url, headers, body: text };
    return this.#sent(request, signal, SHORT_CALL_MS);
  }

  /** Reads a batch. Throws BrokenAnswer if the provider answers with another one. */
  async batch(url: string, batchId: string, signal: AbortSignal): Promise<Fields> {
    const batch = await this.object({ method: "GET", url }, signal);
    if (batch.id !== batchId) throw new BrokenAnswer("another batch");
    return batch;
  }

  /**
   * Yields the batches of a list that begins with the newest, up to the first one that was created before `sinceMs`.
   * Throws BrokenAnswer if the list has too many pages.
   */
  async *newestBatches(
    { url, cursor, pageSize, maxPages, createdMs }: BatchList,
    sinceMs: number,
    signal: AbortSignal,
  ): AsyncGenerator<Fields> {
    let after = "";
    for (let page = 0; page < maxPages; page++) {
      const pageUrl = withQuery(url, `limit=${pageSize}${after}`);
      const listed = await this.object({ method: "GET", url: pageUrl }, signal);
      const batches = objectsIn(listed.data, "batches");
      for (const batch of batches) {
        const created = createdMs(batch);
        if (created !== undefined && created < sinceMs) return;
        yield batch;
      }
      const last = batches.at(-1);
      if (last === undefined || listed.has_more !== true) return;
      after = `&${cursor}=${encodeURIComponent(nameIn(last.id, "batch"))}`;
    }
    throw endlessList();
  }

  upload(call: UploadCall, signal: AbortSignal): Promise<Fields> {
    return this.#sent({ method: "POST", ...call }, signal, UPLOAD_MS);
  }

  /** Sends the call. Also succeeds if the provider answers 404, 405, 501 or one of the `settled` statuses. */
  async ensure(
    call: JsonCall,
    signal: AbortSignal,
    settled: readonly number[] = [],
  ): Promise<void> {
    try {
      await this.object(call, signal);
    } catch (error) {
      if (isNotOffered(error) || hasStatus(error, settled)) return;
      throw error;
    }
  }

  /**
   * Yields the results in a file of lines while reading it. A line that cannot be parsed is skipped; its error is
   * thrown after the last line, so that the other results are read.
   */
  async *results<Options>(
    { ids, seen, prefix = "", ...file }: ResultsCall<Options>,
    signal: AbortSignal,
  ): AsyncGenerator<BatchResult> {
    let broken: ProviderFailure | undefined;
    for await (const line of this.#lines(file, ids.size, signal)) {
      if (line instanceof ProviderFailure) {
        broken = line;
        continue;
      }
      const id = line.id.startsWith(prefix) ? line.id.slice(prefix.length) : "";
      if (!ids.has(id) || seen.has(id)) continue;
      seen.add(id);
      const result = resultOf({ ...line, id });
      if (result !== undefined) yield result;
    }
    if (broken !== undefined) throw broken;
  }

  /** Returns the id in the first line of a file, or undefined if the file is empty. */
  async firstId<Options>(
    file: LinesCall<Options>,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    for await (const line of this.#lines(file, 1, signal)) {
      if (line instanceof ProviderFailure) throw line;
      return line.id;
    }
    return undefined;
  }

  /** Yields the lines of a file. A line that cannot be parsed is yielded as a failure. */
  async *#lines<Options>(
    { url, read, options }: LinesCall<Options>,
    requests: number,
    signal: AbortSignal,
  ): AsyncGenerator<ResultLine | ProviderFailure> {
    const pause = loopPauses();
    let lines = 0;
    try {
      const content = this.#content(url, requests, signal);
      for await (const pieces of readPiecedLines(content, MAX_LINE_BYTES)) {
        await pause();
        lines += 1;
        if (lines > 2 * requests + SPARE_LINES) throw endless();
        const text = await textOf(pieces, pause);
        yield await lineOf(() => readAnswerText(this.#reading, read, text, options, signal));
      }
    } catch (error) {
      if (error instanceof JsonLineError)
        throw new BrokenAnswer("a line of results without an end");
      throw failureOfThrown(error, signal);
    }
  }

  /** Yields the bytes of a file. The time that the caller takes between reads does not count towards the limits. */
  async *#content(url: string, requests: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const maxBytes = SPARE_RESULT_BYTES + requests * MAX_MEAN_RESULT_BYTES;
    const timed = new TimedCall(this.#clock, signal);
    let leftMs = RESULTS_WAIT_MS;
    let bytes = 0;
    const next = async <Result>(step: () => Promise<Result>): Promise<Result> => {
      const beganMs = this.#clock.nowMs();
      const result = await timed.within(Math.min(RESULTS_IDLE_MS, leftMs), step);
      leftMs = Math.max(0, leftMs - Math.max(0, this.#clock.nowMs() - beganMs));
      return result;
    };
    try {
      const request = { method: "GET", url, headers: this.headers, body: "" };
      const response = await next(() =>
        this.#wire.send(request, { signal, abortNotice: timed.abort, onNewConnection: true }),
      );
      const reader = response.reader?.() ?? response.body?.getReader();
      if (reader === undefined) return;
      for (;;) {
        const { done, value } = await next(() => reader.read());
        if (done || value === undefined) return;
        bytes += value.byteLength;
        if (bytes > maxBytes) throw endless();
        yield value;
      }
    } finally {
      timed.end();
    }
  }

  async #sent(
    request: Parameters<HttpJsonProvider["object"]>[0],
    signal: AbortSignal,
    limitMs: number,
  ): Promise<Fields> {
    const timed = new TimedCall(this.#clock, signal);
    const call = { signal, abortNotice: timed.abort, onNewConnection: true };
    try {
      return await timed.within(limitMs, () => this.#wire.object(request, call));
    } catch (error) {
      throw failureOfThrown(error, signal);
    } finally {
      timed.end();
    }
  }
}

/** Aborts a call if the signal aborts or if a step exceeds its time limit. */
class TimedCall {
  readonly abort = new CallAbort();
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  readonly #listener = { handleEvent: () => this.abort.abort() };

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#signal = signal;
    if (signal.aborted) this.abort.abort();
    else signal.addEventListener("abort", this.#listener);
  }

  async within<Result>(limitMs: number, step: () => Promise<Result>): Promise<Result> {
    let isLate = false;
    const stop = this.#clock.after(limitMs, () => {
      isLate = true;
      this.abort.abort();
    });
    try {
      return await step();
    } catch (error) {
      if (!isLate || this.#signal.aborted) throw error;
      throw new ProviderFailure("timeout", "the provider took too long to answer");
    } finally {
      stop();
    }
  }

  /** Closes the connection if the response body was not read to its end. */
  end(): void {
    this.#signal.removeEventListener("abort", this.#listener);
    this.abort.abort();
  }
}

/** Returns the failure for a list of batches with too many pages. */
export function endlessList(): BrokenAnswer {
  return new BrokenAnswer("a list of batches without an end");
}

function endless(): BrokenAnswer {
  return new BrokenAnswer("more results than the batch has requests");
}

async function textOf(
  pieces: readonly Uint8Array[],
  pause: () => Promise<void>,
): Promise<string | SharedBytes> {
  const byteLength = pieces.reduce((sum, piece) => sum + piece.byteLength, 0);
  if (byteLength <= MAX_QUICK_ANSWER_BYTES) {
    return new TextDecoder().decode(pieces.length === 1 ? pieces[0] : Buffer.concat(pieces));
  }
  const writer = new SharedBytesWriter();
  for (const piece of pieces) {
    for (let at = 0; at < piece.byteLength; at += COPIED_AT_A_TIME) {
      writer.push(piece.subarray(at, at + COPIED_AT_A_TIME));
      await pause();
    }
  }
  return writer.end();
}

/** Returns the line, or the failure if the line cannot be parsed. */
async function lineOf(
  read: () => ResultLine | Promise<ResultLine>,
): Promise<ResultLine | ProviderFailure> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ProviderFailure && error.kind === "unavailable") return error;
    throw error;
  }
}

function resultOf(line: ResultLine): BatchResult | undefined {
  const { id } = line;
  if ("failed" in line) {
    return { id, failure: new ProviderFailure(line.failed.kind, line.failed.message) };
  }
  if (!("body" in line)) return undefined;
  const { status, body } = line;
  return {
    id,
    answer: { status, body: typeof body === "string" ? new TextEncoder().encode(body) : body },
  };
}

export function hasStatus(error: unknown, statuses: readonly number[]): boolean {
  return error instanceof ProviderFailure && statuses.includes(error.status ?? 0);
}

/** Ids that a provider assigns. They are used in URLs and stored in the database. */
const NAME = /^[\x21-\x7e]{1,256}$/;

/** Returns a provider's id. Throws BrokenAnswer if the value is not a valid one. */
export function nameIn(value: unknown, what: string): string {
  if (typeof value === "string" && NAME.test(value)) return value;
  throw new BrokenAnswer(`an invalid ${what}`);
}

/** Returns the objects of a list. Throws BrokenAnswer if the value is not a list. */
export function objectsIn(list: unknown, what: string): readonly Fields[] {
  if (!Array.isArray(list)) throw new BrokenAnswer(`an invalid list of ${what}`);
  return list.filter(isFields);
}

export function countIn(counts: unknown, name: string): number {
  const value = (counts as Fields | null | undefined)?.[name];
  return typeof value === "number" && Number.isSafeInteger(value) ? value : 0;
}

/** Largest assumed difference between the clocks of this machine and a provider. */
export const CLOCK_SKEW_MS = 3_600_000;

export function withQuery(url: string, query: string): string {
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}
