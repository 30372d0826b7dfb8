import { BatchUpload } from "../../batch-upload.ts";
import {
  BatchHttpClient,
  CLOCK_SKEW_MS,
  countIn,
  type Fields,
  hasStatus,
  nameIn,
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
import type { ProviderSettings } from "../../interface.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import type { AnthropicDependencies } from "../chat-provider.ts";
import { failureOfStatus } from "../failure-mapping.ts";
import { requestHeaders } from "../request-headers.ts";
import { resultLine } from "./result-line.ts";

/** Limits of a batch (https://platform.claude.com/docs/en/build-with-claude/batch-processing). */
const LIMITS: BatchLimits = { maxRequests: 100_000, maxBytes: 256_000_000 };
const BETA_HEADER = "anthropic-beta";
const KIND = "messages";
const BATCHES_A_PAGE = 100;
const MAX_PAGES = 100;
const COUNTS = ["processing", "succeeded", "errored", "canceled", "expired"];
/** Statuses for an operation that the state of the batch does not allow. */
const INVALID_STATE_STATUSES = [400, 409];

/**
 * Anthropic's Message Batches. A batch carries no metadata of its creator. Only the ids of its requests do,
 * which begin with the gateway's mark and which appear in its results alone.
 */
export class MessageBatches implements BatchInterface {
  readonly limits = LIMITS;
  readonly #messagesUrl: string;
  readonly #wire: BatchHttpClient;

  constructor(settings: ProviderSettings, dependencies: AnthropicDependencies) {
    this.#messagesUrl = endpointUrl(settings.baseUrl, "/messages");
    const headers = requestHeaders(settings);
    this.#wire = new BatchHttpClient({ ...dependencies, settings, headers, failureOfStatus });
  }

  groupOf({ url, headers }: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined {
    if (url !== this.#messagesUrl) return undefined;
    const betas = headers[BETA_HEADER];
    return { kind: betas === undefined ? KIND : `${KIND} ${betas}`, count: 1 };
  }

  async create({ mark, kind, requests }: NewBatch, signal: AbortSignal): Promise<string> {
    const upload = new BatchUpload(requests, {
      begin: '{"requests":[',
      head: (id) => `{"custom_id":${JSON.stringify(prefixOf(mark) + id)},"params":`,
      tail: "}",
      between: ",",
      end: "]}",
    });
    const betas = kind.slice(KIND.length + 1);
    const headers = { ...this.#wire.headers, ...(betas !== "" && { [BETA_HEADER]: betas }) };
    try {
      const call = { url: this.#url(), headers, body: upload.stream() };
      return nameIn((await this.#wire.upload(call, signal)).id, "batch");
    } catch (error) {
      upload.assertRead();
      throw error;
    }
  }

  async find(search: BatchSearch, signal: AbortSignal): Promise<FoundBatches> {
    const { mark, requests, sinceMs, isOther } = search;
    const batchIds: string[] = [];
    let isCertain = true;
    const list = {
      url: this.#url(),
      cursor: "after_id",
      pageSize: BATCHES_A_PAGE,
      maxPages: MAX_PAGES,
      createdMs: (batch: Fields) => Date.parse(String(batch.created_at)),
    };
    for await (const batch of this.#wire.newestBatches(list, sinceMs - CLOCK_SKEW_MS, signal)) {
      const id = nameIn(batch.id, "batch");
      if (isOther(id) || totalOf(batch) !== requests) continue;
      if (!hasEnded(batch)) isCertain = false;
      else if (await this.#hasMark(id, mark, signal)) batchIds.unshift(id);
    }
    return { batchIds, isCertain };
  }

  async readState(batchId: string, signal: AbortSignal): Promise<BatchState> {
    return { hasEnded: hasEnded(await this.#wire.batch(this.#url(batchId), batchId, signal)) };
  }

  async *results({ batchId, mark, ids }: BatchOfResults, signal: AbortSignal) {
    const batch = await this.#wire.batch(this.#url(batchId), batchId, signal);
    if (!hasEnded(batch)) throw new BrokenAnswer("a batch that is still running");
    const expected = { ids, seen: new Set<string>(), prefix: prefixOf(mark) };
    const results: AsyncGenerator<BatchResult> = this.#wire.results(
      { ...this.#resultsOf(batchId), ...expected },
      signal,
    );
    let count = 0;
    for await (const result of results) {
      count += 1;
      yield result;
    }
    if (count < countIn(batch.request_counts, "succeeded")) {
      throw new BrokenAnswer("fewer results than the batch counts");
    }
  }

  cancel(batchId: string, signal: AbortSignal): Promise<void> {
    return this.#wire.ensure(
      { method: "POST", url: this.#url(batchId, "/cancel") },
      signal,
      INVALID_STATE_STATUSES,
    );
  }

  remove(batchId: string, signal: AbortSignal): Promise<void> {
    return this.#wire.ensure(
      { method: "DELETE", url: this.#url(batchId) },
      signal,
      INVALID_STATE_STATUSES,
    );
  }

  /** Returns true if the ids of the batch begin with the mark. Returns false if its results have expired. */
  async #hasMark(batchId: string, mark: string, signal: AbortSignal): Promise<boolean> {
    try {
      const id = await this.#wire.firstId(this.#resultsOf(batchId), signal);
      return id?.startsWith(prefixOf(mark)) === true;
    } catch (error) {
      if (hasStatus(error, [400, 404])) return false;
      throw error;
    }
  }

  #resultsOf(batchId: string) {
    return { url: this.#url(batchId, "/results"), read: resultLine, options: undefined };
  }

  #url(batchId?: string, rest = ""): string {
    const path = batchId === undefined ? "" : `/${encodeURIComponent(batchId)}${rest}`;
    return endpointUrl(this.#messagesUrl, `/batches${path}`);
  }
}

function prefixOf(mark: string): string {
  return `${mark}-`;
}

function hasEnded({ processing_status: status }: Fields): boolean {
  return status === "ended";
}

function totalOf({ request_counts: counts }: Fields): number {
  return COUNTS.reduce((total, name) => total + countIn(counts, name), 0);
}
