import {
  BatchHttpClient,
  CLOCK_SKEW_MS,
  countIn,
  type Fields,
  hasStatus,
  nameIn,
  objectsIn,
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
import { openAiVariant } from "../openai-variants.ts";
import { BatchEndpoints, BatchFiles, namesIn } from "./batch-files.ts";

/** OpenAI's limits (https://platform.openai.com/docs/guides/batch). */
const LIMITS: BatchLimits = { maxRequests: 50_000, maxBytes: 200_000_000 };
/** Paths below the base URL. */
const PATHS = ["/chat/completions", "/responses", "/embeddings"];
const MARK_KEY = "gateway_batch";
const BATCHES_A_PAGE = 20;
const MAX_PAGES = 250;
const ENDED: ReadonlySet<unknown> = new Set(["completed", "expired", "cancelled", "failed"]);
/** OpenAI's code for a batch that exceeds the account's queue limit. It is reported after the batch was accepted. */
const QUEUE_FULL = "token_limit_exceeded";

export type OpenAiBatchDependencies = OpenAiDependencies &
  Required<Pick<OpenAiDependencies, "httpClient">>;

/** OpenAI's Batch API (schemas of its published description) at a provider's base URL. */
export class OpenAiBatches implements BatchInterface {
  readonly limits = LIMITS;
  readonly #baseUrl: string;
  readonly #endpoints: BatchEndpoints;
  readonly #wire: BatchHttpClient;
  readonly #files: BatchFiles;

  constructor(settings: ProviderSettings, dependencies: OpenAiBatchDependencies) {
    const { baseUrl, type } = settings;
    this.#baseUrl = baseUrl;
    this.#endpoints = new BatchEndpoints(baseUrl, PATHS);
    const headers = requestHeaders(settings, openAiVariant(type));
    this.#wire = new BatchHttpClient({ ...dependencies, settings, headers, failureOfStatus });
    this.#files = new BatchFiles({ wire: this.#wire, baseUrl, canExpire: type === "openai" });
  }

  groupOf(request: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined {
    return this.#endpoints.groupOf(request);
  }

  async create(batch: NewBatch, signal: AbortSignal): Promise<string> {
    const { mark, kind } = batch;
    const rest = `,"method":"POST","url":${JSON.stringify(kind)},"body":`;
    const head = (id: string) => `{"custom_id":${JSON.stringify(id)}${rest}`;
    const headers = { ...this.#wire.headers, "idempotency-key": mark };
    const call = { method: "POST", url: this.#url("/batches"), headers };
    const create = (fileId: string) => {
      const body = {
        input_file_id: fileId,
        endpoint: kind,
        completion_window: "24h",
        metadata: { [MARK_KEY]: mark },
        ...this.#files.expiryOfResults,
      };
      return this.#wire.object({ ...call, body }, signal);
    };
    return this.#files.batchOf(batch, head, create, signal);
  }

  async find({ mark, sinceMs }: BatchSearch, signal: AbortSignal): Promise<FoundBatches> {
    const batchIds: string[] = [];
    const list = {
      url: this.#url("/batches"),
      cursor: "after",
      pageSize: BATCHES_A_PAGE,
      maxPages: MAX_PAGES,
      createdMs,
    };
    for await (const batch of this.#wire.newestBatches(list, sinceMs - CLOCK_SKEW_MS, signal)) {
      const { metadata } = batch as { readonly metadata?: Fields | null };
      if (metadata?.[MARK_KEY] === mark) batchIds.unshift(nameIn(batch.id, "batch"));
    }
    if (batchIds.length === 0) await this.#files.removeOf(mark, signal);
    return { batchIds, isCertain: true };
  }

  async readState(batchId: string, signal: AbortSignal): Promise<BatchState> {
    const batch = await this.#read(batchId, signal);
    const hasEnded = ENDED.has(batch.status);
    // A batch that failed after its first requests has results.
    if (batch.status !== "failed" || namesIn(filesOf(batch)).length > 0) return { hasEnded };
    return { hasEnded, failure: this.#failureOf(batch) };
  }

  async *results(batch: BatchOfResults, signal: AbortSignal): AsyncGenerator<BatchResult> {
    const state = await this.#read(batch.batchId, signal);
    if (!ENDED.has(state.status)) throw new BrokenAnswer("a batch that has not ended");
    const succeeded = countIn(state.request_counts, "completed");
    yield* this.#files.results(filesOf(state), succeeded, batch, signal);
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
    await this.#files.removeAll([batch.input_file_id, ...filesOf(batch)], signal);
  }

  #read(batchId: string, signal: AbortSignal): Promise<Fields> {
    return this.#wire.batch(this.#urlOf(batchId), batchId, signal);
  }

  #failureOf({ errors }: Fields): ProviderFailure {
    const { data } = (errors ?? {}) as { readonly data?: unknown };
    const [error = {}] = Array.isArray(data) ? objectsIn(data, "errors") : [];
    const message = typeof error.message === "string" ? error.message : "the batch failed";
    const kind = error.code === QUEUE_FULL ? "rate_limited" : "rejected";
    return statusFailure(400, { kind, message }, this.#wire.failureContext);
  }

  #urlOf(batchId: string, rest = ""): string {
    return this.#url(`/batches/${encodeURIComponent(batchId)}${rest}`);
  }

  #url(path: string): string {
    return endpointUrl(this.#baseUrl, path);
  }
}

function createdMs({ created_at: seconds }: Fields): number | undefined {
  return typeof seconds === "number" ? seconds * 1_000 : undefined;
}

/** Returns the ids of the result files, undefined for a missing one. */
function filesOf({ output_file_id: output, error_file_id: errors }: Fields): unknown[] {
  return [output, errors];
}
