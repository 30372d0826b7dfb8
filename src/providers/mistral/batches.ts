import {
  BatchHttpClient,
  CLOCK_SKEW_MS,
  countIn,
  endlessList,
  type Fields,
  hasStatus,
  nameIn,
  objectsIn,
  withQuery,
} from "../batch-wire.ts";
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
} from "../batches.ts";
import { BrokenAnswer } from "../fine-tuning.ts";
import type { ProviderSettings } from "../interface.ts";
import { BatchEndpoints, BatchFiles, namesIn } from "../openai/batches/batch-files.ts";
import type { OpenAiBatchDependencies } from "../openai/batches/openai-batches.ts";
import { requestHeaders } from "../openai/chat/chat-provider.ts";
import { failureOfStatus } from "../openai/failure-mapping.ts";
import { openAiVariant } from "../openai/openai-variants.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { statusFailure } from "../transport/status-failure.ts";

/**
 * Limits of a batch. Mistral itself accepts a million requests (https://docs.mistral.ai/capabilities/batch).
 */
const LIMITS: BatchLimits = { maxRequests: 50_000, maxBytes: 200_000_000 };
const PATHS = ["/chat/completions", "/embeddings"];
const MARK_KEY = "gateway_batch";
const JOBS_A_PAGE = 50;
const MAX_PAGES = 100;
const TIMEOUT_HOURS = 24;
const ENDED: ReadonlySet<unknown> = new Set(["SUCCESS", "FAILED", "TIMEOUT_EXCEEDED", "CANCELLED"]);

/** Mistral's batch jobs. Their files have OpenAI's form. */
export class MistralBatches implements BatchInterface {
  readonly limits = LIMITS;
  readonly #jobsUrl: string;
  readonly #endpoints: BatchEndpoints;
  readonly #wire: BatchHttpClient;
  readonly #files: BatchFiles;

  constructor(settings: ProviderSettings, dependencies: OpenAiBatchDependencies) {
    const { baseUrl, type } = settings;
    this.#jobsUrl = endpointUrl(baseUrl, "/batch/jobs");
    this.#endpoints = new BatchEndpoints(baseUrl, PATHS);
    const headers = requestHeaders(settings, openAiVariant(type));
    this.#wire = new BatchHttpClient({ ...dependencies, settings, headers, failureOfStatus });
    this.#files = new BatchFiles({
      ...{ wire: this.#wire, baseUrl, canExpire: false },
      newest: "page_size",
    });
  }

  groupOf(request: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined {
    return this.#endpoints.groupOf(request);
  }

  async create(batch: NewBatch, signal: AbortSignal): Promise<string> {
    const { mark, kind, model } = batch;
    const head = (id: string) => `{"custom_id":${JSON.stringify(id)},"body":`;
    const create = (fileId: string) => {
      const body = {
        input_files: [fileId],
        endpoint: kind,
        model,
        timeout_hours: TIMEOUT_HOURS,
        metadata: { [MARK_KEY]: mark },
      };
      return this.#wire.object({ method: "POST", url: this.#jobsUrl, body }, signal);
    };
    return this.#files.batchOf(batch, head, create, signal);
  }

  async find({ mark, sinceMs }: BatchSearch, signal: AbortSignal): Promise<FoundBatches> {
    const jobs: Fields[] = [];
    for await (const job of this.#jobsSince(sinceMs - CLOCK_SKEW_MS, signal)) {
      const { metadata } = job as { readonly metadata?: Fields | null };
      if (metadata?.[MARK_KEY] === mark) jobs.push(job);
    }
    jobs.sort((left, right) => countIn(left, "created_at") - countIn(right, "created_at"));
    if (jobs.length === 0) await this.#files.removeOf(mark, signal);
    return { batchIds: jobs.map(({ id }) => nameIn(id, "batch")), isCertain: true };
  }

  async readState(batchId: string, signal: AbortSignal): Promise<BatchState> {
    const job = await this.#read(batchId, signal);
    const hasEnded = ENDED.has(job.status);
    // A batch that failed after its first requests has results.
    if (job.status !== "FAILED" || namesIn(filesOf(job)).length > 0) return { hasEnded };
    const [error = {}] = Array.isArray(job.errors) ? objectsIn(job.errors, "errors") : [];
    const message = typeof error.message === "string" ? error.message : "the batch failed";
    const failure = { kind: "rejected", message } as const;
    return { hasEnded, failure: statusFailure(400, failure, this.#wire.failureContext) };
  }

  async *results(batch: BatchOfResults, signal: AbortSignal): AsyncGenerator<BatchResult> {
    const job = await this.#read(batch.batchId, signal);
    if (!ENDED.has(job.status)) throw new BrokenAnswer("a batch that is still running");
    const succeeded = countIn(job, "succeeded_requests");
    yield* this.#files.results(filesOf(job), succeeded, batch, signal);
  }

  cancel(batchId: string, signal: AbortSignal): Promise<void> {
    const url = this.#urlOf(batchId, "/cancel");
    return this.#wire.ensure({ method: "POST", url }, signal, [400, 409, 422]);
  }

  async remove(batchId: string, signal: AbortSignal): Promise<void> {
    const job: Fields = await this.#read(batchId, signal).catch((error: unknown) => {
      if (hasStatus(error, [404])) return {};
      throw error;
    });
    const [input] = Array.isArray(job.input_files) ? job.input_files : [];
    await this.#files.removeAll([input, ...filesOf(job)], signal);
  }

  async *#jobsSince(sinceMs: number, signal: AbortSignal): AsyncGenerator<Fields> {
    const since = encodeURIComponent(new Date(sinceMs).toISOString());
    for (let page = 0; page < MAX_PAGES; page++) {
      const query = `page=${page}&page_size=${JOBS_A_PAGE}&created_after=${since}`;
      const url = withQuery(this.#jobsUrl, query);
      const listed = await this.#wire.object({ method: "GET", url }, signal);
      const jobs = objectsIn(listed.data ?? [], "batches");
      yield* jobs;
      if (jobs.length < JOBS_A_PAGE) return;
    }
    throw endlessList();
  }

  #read(batchId: string, signal: AbortSignal): Promise<Fields> {
    return this.#wire.batch(this.#urlOf(batchId), batchId, signal);
  }

  #urlOf(batchId: string, rest = ""): string {
    return endpointUrl(this.#jobsUrl, `/${encodeURIComponent(batchId)}${rest}`);
  }
}

/** Returns the ids of the result files, if the job has any. */
function filesOf({ output_file: output, error_file: errors }: Fields): unknown[] {
  return [output, errors];
}
