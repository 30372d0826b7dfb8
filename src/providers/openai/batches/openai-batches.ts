import {
  BatchWire,
  bodyOf,
  CLOCK_SKEW_MS,
  countIn,
  type Fields,
  hasStatus,
  nameIn,
  objectsIn,
  withQuery,
} from "../../batch-wire.ts";
import type {
  BatchInterface,
  BatchLimits,
  BatchOfResults,
  BatchRequest,
  BatchResult,
  BatchSearch,
  BatchState,
  FoundBatches,
  NewBatch,
  RecordedRequest,
} from "../../batches.ts";
import { BrokenAnswer } from "../../fine-tuning.ts";
import type { ProviderFailure, ProviderSettings } from "../../interface.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import { statusFailure } from "../../transport/status-failure.ts";
import type { OpenAiDependencies } from "../chat/chat-provider.ts";
import { requestHeaders } from "../chat/chat-provider.ts";
import { failureOfStatus } from "../failure-mapping.ts";
import { wireDialect } from "../wire-dialects.ts";
import { BatchFiles } from "./batch-files.ts";

/** What OpenAI takes (https://platform.openai.com/docs/guides/batch). */
const LIMITS: BatchLimits = { maxRequests: 50_000, maxBytes: 200_000_000 };
/** Below the base URL. */
const PATHS = ["/chat/completions", "/responses", "/embeddings"];
const EMBEDDINGS = "/embeddings";
const MARK_KEY = "gateway_batch";
const BATCHES_A_PAGE = 20;
const MAX_PAGES = 250;
const ENDED: ReadonlySet<unknown> = new Set(["completed", "expired", "cancelled", "failed"]);
/** A batch that an account has no room for now, which OpenAI says after it has taken it. */
const NO_ROOM = "token_limit_exceeded";
/** Statuses of a request that was certainly not served. */
const REFUSALS = [400, 401, 403, 404, 413, 422];

type Dependencies = OpenAiDependencies & Required<Pick<OpenAiDependencies, "httpClient">>;

/** OpenAI's Batch API (schemas of its published description) at a provider's base URL. */
export class OpenAiBatches implements BatchInterface {
  readonly limits = LIMITS;
  readonly #baseUrl: string;
  /** By address, what lines and batches call it. */
  readonly #endpoints: ReadonlyMap<string, string>;
  readonly #wire: BatchWire;
  readonly #files: BatchFiles;

  constructor(settings: ProviderSettings, dependencies: Dependencies) {
    const { baseUrl, type } = settings;
    this.#baseUrl = baseUrl;
    this.#endpoints = new Map(PATHS.map((path) => [endpointUrl(baseUrl, path), `/v1${path}`]));
    const headers = requestHeaders(settings, wireDialect(type));
    this.#wire = new BatchWire({ ...dependencies, settings, headers, failureOfStatus });
    this.#files = new BatchFiles({ wire: this.#wire, baseUrl, expire: type === "openai" });
  }

  placeOf(request: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined {
    const kind = this.#endpoints.get(request.url);
    if (kind === undefined) return undefined;
    const { input } = kind.endsWith(EMBEDDINGS) ? bodyOf(request) : {};
    return { kind, count: Array.isArray(input) ? input.length : 1 };
  }

  async create(batch: NewBatch, signal: AbortSignal): Promise<string> {
    const { mark, kind } = batch;
    const rest = `,"method":"POST","url":${JSON.stringify(kind)},"body":`;
    const head = (id: string) => `{"custom_id":${JSON.stringify(id)}${rest}`;
    const fileId = await this.#files.upload(batch, head, signal);
    const body = {
      input_file_id: fileId,
      endpoint: kind,
      completion_window: "24h",
      metadata: { [MARK_KEY]: mark },
      ...this.#files.expiryOfResults,
    };
    const headers = { ...this.#wire.headers, "idempotency-key": mark };
    const call = { method: "POST", url: this.#url("/batches"), headers, body };
    try {
      const created = await this.#wire.object(call, signal);
      return nameIn(created.id, "batch");
    } catch (error) {
      if (hasStatus(error, REFUSALS)) await this.#files.remove(fileId, signal);
      throw error;
    }
  }

  async find({ mark, sinceMs }: BatchSearch, signal: AbortSignal): Promise<FoundBatches> {
    const batchIds: string[] = [];
    for await (const batch of this.#newestBatches(sinceMs - CLOCK_SKEW_MS, signal)) {
      const { metadata } = batch as { readonly metadata?: Fields | null };
      if (metadata?.[MARK_KEY] === mark) batchIds.unshift(nameIn(batch.id, "batch"));
    }
    if (batchIds.length === 0) await this.#files.removeOf(mark, signal);
    return { batchIds, isCertain: true };
  }

  async look(batchId: string, signal: AbortSignal): Promise<BatchState> {
    const batch = await this.#read(batchId, signal);
    const hasEnded = ENDED.has(batch.status);
    // One that failed behind its first requests has results.
    if (batch.status !== "failed" || filesOf(batch).length > 0) return { hasEnded };
    return { hasEnded, failure: this.#failureOf(batch) };
  }

  async *results(batch: BatchOfResults, signal: AbortSignal): AsyncGenerator<BatchResult> {
    const state = await this.#read(batch.batchId, signal);
    if (!ENDED.has(state.status)) throw new BrokenAnswer("a batch that has not ended");
    let answered = 0;
    for await (const result of this.#files.results(filesOf(state), batch, signal)) {
      answered += 1;
      yield result;
    }
    if (answered < countIn(state.request_counts, "completed")) {
      throw new BrokenAnswer("fewer results than it counts");
    }
  }

  cancel(batchId: string, signal: AbortSignal): Promise<void> {
    const url = this.#urlOf(batchId, "/cancel");
    return this.#wire.ensure({ method: "POST", url }, signal, [400, 409]);
  }

  async remove(batchId: string, signal: AbortSignal): Promise<void> {
    const batch: Fields = await this.#read(batchId, signal).catch((error: unknown) => {
      if (hasStatus(error, [404])) return {};
      throw error;
    });
    const { input_file_id: input } = batch;
    const files = typeof input === "string" ? [nameIn(input, "file")] : [];
    for (const fileId of [...files, ...filesOf(batch)]) await this.#files.remove(fileId, signal);
  }

  /** Newest first, down to the first that was created before. */
  async *#newestBatches(sinceMs: number, signal: AbortSignal): AsyncGenerator<Fields> {
    let after = "";
    for (let page = 0; page < MAX_PAGES; page++) {
      const url = withQuery(this.#url("/batches"), `limit=${BATCHES_A_PAGE}${after}`);
      const listed = await this.#wire.object({ method: "GET", url }, signal);
      const batches = objectsIn(listed.data, "batches");
      for (const batch of batches) {
        const { created_at: createdAt } = batch;
        if (typeof createdAt === "number" && createdAt * 1_000 < sinceMs) return;
        yield batch;
      }
      const last = batches.at(-1);
      if (last === undefined || listed.has_more !== true) return;
      after = `&after=${encodeURIComponent(nameIn(last.id, "batch"))}`;
    }
    throw new BrokenAnswer("a list of batches without an end");
  }

  async #read(batchId: string, signal: AbortSignal): Promise<Fields> {
    const batch = await this.#wire.object({ method: "GET", url: this.#urlOf(batchId) }, signal);
    if (batch.id !== batchId) throw new BrokenAnswer("another batch");
    return batch;
  }

  #failureOf({ errors }: Fields): ProviderFailure {
    const { data } = (errors ?? {}) as { readonly data?: unknown };
    const [error = {}] = Array.isArray(data) ? objectsIn(data, "errors") : [];
    const message = typeof error.message === "string" ? error.message : "the batch failed";
    const kind = error.code === NO_ROOM ? "rate_limited" : "rejected";
    return statusFailure(400, { kind, message }, this.#wire.failureContext);
  }

  #urlOf(batchId: string, rest = ""): string {
    return this.#url(`/batches/${encodeURIComponent(batchId)}${rest}`);
  }

  #url(path: string): string {
    return endpointUrl(this.#baseUrl, path);
  }
}

/** Those that hold results; there is none where it would be empty. */
function filesOf({ output_file_id: output, error_file_id: errors }: Fields): string[] {
  return [output, errors]
    .filter((id) => typeof id === "string" && id !== "")
    .map((id) => nameIn(id, "file"));
}
