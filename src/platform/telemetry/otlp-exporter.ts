import { setTimeout as wait } from "node:timers/promises";
import type { CollectorConfig } from "../config/telemetry-settings.ts";
import type { Telemetry } from "./interface.ts";

export interface OtlpExporterOptions<Batch> {
  readonly collector: CollectorConfig;
  /** Returns the batch as a request body, in protobuf. */
  serialize(batch: Batch): Uint8Array | undefined;
  /** The kind of data, for the log. */
  readonly what: "traces" | "metrics";
  readonly log: Telemetry["log"];
}

/** Milliseconds of one export, with its retries and their answers. */
const EXPORT_TIMEOUT_MS = 5_000;
/**
 * Exports at the same time. Each regular export waits for the previous one, but the last export of
 * a stopping gateway does not.
 */
const MAX_CONCURRENT = 2;
/** Statuses that allow a retry (OTLP/HTTP, "Retryable Response Codes"). */
const RETRYABLE: readonly number[] = [429, 502, 503, 504];
const FIRST_RETRY_MS = 1_000;
const RETRY_FACTOR = 1.5;
/** Bytes that are read of an answer. A connection is reused if its answer was read completely. */
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Sends data to a collector by OTLP over HTTP in protobuf. Retries if the collector asks for it.
 */
export class OtlpExporter<Batch> {
  readonly #options: OtlpExporterOptions<Batch>;
  #running = 0;
  #isFailing = false;

  constructor(options: OtlpExporterOptions<Batch>) {
    this.#options = options;
  }

  /** Sends a batch. Resolves with true if the collector has accepted it. Never rejects. */
  async send(batch: Batch): Promise<boolean> {
    const { log, what } = this.#options;
    const fault = await this.#export(batch).catch((error: unknown) => error);
    if (fault !== undefined && !this.#isFailing) {
      log.warn({ err: fault }, `the collector does not accept ${what}; they are dropped`);
    } else if (fault === undefined && this.#isFailing) {
      log.info(`the collector accepts ${what} again`);
    }
    this.#isFailing = fault !== undefined;
    return fault === undefined;
  }

  async #export(batch: Batch): Promise<void> {
    const body = this.#options.serialize(batch);
    if (body === undefined) throw new Error("there is nothing to send");
    if (this.#running >= MAX_CONCURRENT) throw new Error("earlier exports still run");
    this.#running++;
    try {
      await this.#repeat(body, AbortSignal.timeout(EXPORT_TIMEOUT_MS));
    } finally {
      this.#running--;
    }
  }

  async #repeat(body: Uint8Array, signal: AbortSignal): Promise<void> {
    for (let retryMs = FIRST_RETRY_MS; ; retryMs *= RETRY_FACTOR) {
      const answer = await this.#post(body, signal).catch((error: unknown) => error as Error);
      if (answer instanceof Response && answer.ok) return;
      const fault =
        answer instanceof Response
          ? new Error(`the collector answers ${answer.status}`)
          : new Error(answer.message, { cause: answer });
      const isRetryable = !(answer instanceof Response) || RETRYABLE.includes(answer.status);
      if (signal.aborted || !isRetryable) throw fault;
      const header = answer instanceof Response ? answer.headers.get("retry-after") : null;
      const retryAfterMs = Number(header ?? Number.NaN) * 1_000;
      const delayMs = (retryAfterMs >= 0 ? retryAfterMs : retryMs) * (0.8 + 0.4 * Math.random());
      if (delayMs >= EXPORT_TIMEOUT_MS) throw fault;
      await wait(delayMs, undefined, { signal }).catch(() => {
        throw fault;
      });
    }
  }

  /**
   * Sends a body. Resolves when the answer was read completely, or when its status is known and the
   * rest is not needed.
   */
  async #post(body: Uint8Array, signal: AbortSignal): Promise<Response> {
    const { url, headers } = this.#options.collector;
    const answer = await fetch(url, {
      method: "POST",
      headers: { ...headers, "content-type": "application/x-protobuf" },
      body: body as Uint8Array<ArrayBuffer>,
      redirect: "manual",
      signal,
    });
    await discard(answer);
    return answer;
  }
}

/** Reads and drops a body, up to the limit. Its content changes nothing, and it may never end. */
async function discard({ body }: Response): Promise<void> {
  let bytes = 0;
  try {
    for await (const piece of body ?? []) {
      bytes += piece.byteLength;
      if (bytes > MAX_ANSWER_BYTES) return;
    }
  } catch {
    // The body broke off or took too long. The status is still valid.
  }
}
