import { BASIS_POINTS, type FemtoUsd } from "../lib/money.ts";
import type { Provider, ProviderFailure } from "./interface.ts";

/**
 * Batches at a provider: many requests that it answers together, within a day and at a lower price. Methods reject with
 * ProviderFailure; its kind is `unavailable` if the outcome is unknown. They do not retry. Besides `signal`, each
 * method has its own time limits.
 */
export interface BatchInterface {
  readonly limits: BatchLimits;
  /**
   * Returns which requests this one can share a batch with, and how much it counts. Returns undefined if the provider
   * does not accept it in batches.
   */
  groupOf(request: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined;
  /** Creates a batch and returns its id. If reading `requests` throws, rethrows that error; no batch is created. */
  create(batch: NewBatch, signal: AbortSignal): Promise<string>;
  /**
   * Searches for a batch whose creator did not learn the outcome. If there is none, deletes the files that were
   * uploaded for it.
   */
  find(search: BatchSearch, signal: AbortSignal): Promise<FoundBatches>;
  /** Reads the state of a batch. Fails with status 404 if the provider does not know it. */
  readState(batchId: string, signal: AbortSignal): Promise<BatchState>;
  /**
   * Yields the results of an ended batch in any order and at most one for each request. Requests that were not run have
   * no result. Results are read as the caller iterates. Results with unknown ids are skipped. Throws BrokenAnswer if
   * there are far more lines than requests, or if a line is too long.
   */
  results(batch: BatchOfResults, signal: AbortSignal): AsyncIterable<BatchResult>;
  /**
   * Cancels a batch. Running requests finish, the others are not run. Succeeds if the batch has ended or does not
   * exist.
   */
  cancel(batchId: string, signal: AbortSignal): Promise<void>;
  /** Deletes the provider's files of an ended batch. Succeeds if they do not exist or cannot be deleted. */
  remove(batchId: string, signal: AbortSignal): Promise<void>;
}

/** Batches of a provider, combined with its live calls: these build the requests and decode the results. */
export interface ProviderBatches extends BatchInterface {
  /** Price of batches as a share of the live prices, in 1/10,000. Set by the operator. */
  readonly priceShare: BasisPoints;
  /**
   * Returns the request that a live call would send, or undefined if the provider does not accept it in batches.
   * Rejects like the call if it cannot be sent.
   *
   * @param call calls the given provider once, without streaming
   */
  request(call: (provider: Provider) => Promise<unknown>): Promise<BatchRequest | undefined>;
  /**
   * Returns the provider with a transport that answers the next call with a batch result. The provider decodes the
   * result like a live response.
   */
  answering(answer: RecordedAnswer): Provider;
}

export type BasisPoints = number;

export interface BatchLimits {
  /** Requests in a batch, counted by `BatchRequest.count`. */
  readonly maxRequests: number;
  /** Bytes of all requests in a batch, counted by `BatchRequest.bytes`. */
  readonly maxBytes: number;
}

/** The HTTP request of a live call, recorded and not sent. */
export interface RecordedRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON, as text or in UTF-8. */
  readonly body: string | Uint8Array;
}

export interface BatchRequest {
  /** Requests in one batch have the same kind and the same model. */
  readonly kind: string;
  /** JSON, as text or in UTF-8. */
  readonly body: string | Uint8Array;
  /** Upper bound of the bytes that it takes in a batch. */
  readonly bytes: number;
  /** The number of requests that it counts as. In an embeddings request, each input counts. */
  readonly count: number;
}

export interface NewBatch {
  /** A unique name to find the batch by: 1 to 40 of `A-Z a-z 0-9 _ -`. */
  readonly mark: string;
  readonly kind: string;
  /** The model of all requests, by the provider's name for it. */
  readonly model: string;
  /** The requests, which are read once. An id has 1 to 16 of the characters of `mark` and is unique in the batch. */
  readonly requests: AsyncIterable<{ readonly id: string; readonly body: string | Uint8Array }>;
}

export interface BatchSearch {
  readonly mark: string;
  /** Number of requests in the batch. */
  readonly requests: number;
  /** The batch was created no earlier than this: Unix milliseconds by this machine's clock. */
  readonly sinceMs: number;
  /** Returns true if the provider's batch is known to be a different one. */
  isOther(batchId: string): boolean;
}

export interface FoundBatches {
  /** Batches with the mark, oldest first. More than one if its creation was retried. */
  readonly batchIds: readonly string[];
  /** False if a batch that is still running could also match, which only its results show. Search again later. */
  readonly isCertain: boolean;
}

export interface BatchState {
  readonly hasEnded: boolean;
  /**
   * The failure of the whole batch: no request was run. The kind is `rejected` or a retryable one. Only set if the
   * batch has ended.
   */
  readonly failure?: ProviderFailure | undefined;
}

export interface BatchOfResults {
  readonly batchId: string;
  readonly mark: string;
  /** Ids of the requests. */
  readonly ids: ReadonlySet<string>;
}

export type BatchResult =
  | { readonly id: string; readonly answer: RecordedAnswer }
  /** The request was not answered. The provider does not bill it. */
  | { readonly id: string; readonly failure: ProviderFailure };

/** The response that a live call would have received, error responses included. It can be stored. */
export interface RecordedAnswer {
  readonly status: number;
  /** JSON, in UTF-8. */
  readonly body: Uint8Array;
}

/** Multiplies each price of a list by the share and rounds up to a femto-USD. */
export function pricesAtShare<Prices extends object>(prices: Prices, share: BasisPoints): Prices {
  return priceAtShare(prices, BigInt(share)) as Prices;
}

function priceAtShare(value: unknown, share: bigint): unknown {
  if (typeof value === "bigint") {
    return ((value * share + BASIS_POINTS - 1n) / BASIS_POINTS) satisfies FemtoUsd;
  }
  if (Array.isArray(value)) return value.map((item) => priceAtShare(item, share));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, priceAtShare(item, share)]),
  );
}
