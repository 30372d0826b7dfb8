import { setTimeout as wait } from "node:timers/promises";
import type { CollectorConfig } from "../config/telemetry-settings.ts";
import type { Telemetry } from "./interface.ts";

export interface OtlpExporterOptions<Batch> {
  readonly collector: CollectorConfig;
  /** As the body of its request, in protobuf. */
  serialize(batch: Batch): Uint8Array | undefined;
  /** What is sent, for the log. */
  readonly what: "traces" | "metrics";
  readonly log: Telemetry["log"];
}

/** Of an export with its repetitions and their answers. */
const EXPORT_TIMEOUT_MS = 5_000;
/** Those that follow each other wait for the one before, except the last one of a gateway that ends. */
const MAX_CONCURRENT = 2;
/** OTLP/HTTP, "Retryable Response Codes". */
const RETRYABLE: readonly number[] = [429, 502, 503, 504];
const FIRST_RETRY_MS = 1_000;
const RETRY_FACTOR = 1.5;
/** Of an answer, whose connection is used again where it was read to its end. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** Sends to a collector by OTLP over HTTP in protobuf, and repeats what it asks to have repeated. */
export class OtlpExporter<Batch> {
  readonly #options: OtlpExporterOptions<Batch>;
  #running = 0;
  #isFailing = false;

  constructor(options: OtlpExporterOptions<Batch>) {
    this.#options = options;
  }

  /** Whether the collector has taken it. Never rejects. */
  async send(batch: Batch): Promise<boolean> {
    const { log, what } = this.#options;
    const fault = await this.#export(batch).catch((error: unknown) => error);
    if (fault !== undefined && !this.#isFailing) {
      log.warn({ err: fault }, `the collector takes no ${what}; they are dropped`);
    } else if (fault === undefined && this.#isFailing) {
      log.info(`the collector takes ${what} again`);
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
      const askedMs = Number(header ?? Number.NaN) * 1_000;
      const delayMs = (askedMs >= 0 ? askedMs : retryMs) * (0.8 + 0.4 * Math.random());
      if (delayMs >= EXPORT_TIMEOUT_MS) throw fault;
      await wait(delayMs, undefined, { signal }).catch(() => {
        throw fault;
      });
    }
  }

  /** Resolves when the answer has come whole, or its status is known and the rest is not wanted. */
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

/** What the collector says in it changes nothing, and it may not come to an end. */
async function discard({ body }: Response): Promise<void> {
  let bytes = 0;
  try {
    for await (const piece of body ?? []) {
      bytes += piece.byteLength;
      if (bytes > MAX_ANSWER_BYTES) return;
    }
  } catch {
    // Broken off, or out of time: the status stands.
  }
}
