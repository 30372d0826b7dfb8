import type { FemtoUsd } from "../lib/money.ts";
import type { Provider, ProviderFailure } from "./interface.ts";

/**
 * What a provider is to the gateway that answers many requests together, within a day and for less. Methods reject
 * with ProviderFailure for what is no answer, its kind `unavailable` where nothing is known of the outcome. Nothing is
 * tried again here. Besides `signal` each has time limits of its own.
 */
export interface BatchInterface {
  readonly limits: BatchLimits;
  /** Whether, and with which others, a request may stand in a batch; undefined where the provider takes none such. */
  placeOf(request: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined;
  /** Creates a batch and resolves with its id. What `requests` throws is thrown as it is, and nothing is created. */
  create(batch: NewBatch, signal: AbortSignal): Promise<string>;
  /**
   * Looks for what a creator left that did not learn the outcome. Where there is no batch it removes the files that
   * were meant for one.
   */
  find(search: BatchSearch, signal: AbortSignal): Promise<FoundBatches>;
  /** Fails with status 404 where the provider knows of no such batch. */
  look(batchId: string, signal: AbortSignal): Promise<BatchState>;
  /**
   * The results of a batch that has ended, in any order: each of the requests once at most, those that were not run
   * never. They are read as they are taken; ids that the batch does not have are passed over. Throws BrokenAnswer where
   * there are more lines than requests, or lines that are too long.
   */
  results(batch: BatchOfResults, signal: AbortSignal): AsyncIterable<BatchResult>;
  /** Requests that run end, others are not run; it is no failure where the batch has ended, or is not there. */
  cancel(batchId: string, signal: AbortSignal): Promise<void>;
  /** Deletes what the provider keeps of a batch that has ended; what is not there, or stays, is no failure. */
  remove(batchId: string, signal: AbortSignal): Promise<void>;
}

/** The same with the wire that the provider has for live calls, which makes the requests and reads the answers. */
export interface ProviderBatches extends BatchInterface {
  /** What of the usual prices its batches cost, as the operator has stated, in 1/10000. */
  readonly priceShare: BasisPoints;
  /**
   * What a live call would send. Undefined where the provider takes none such in batches. Rejects as the call does
   * where it cannot be sent.
   *
   * @param call calls the provider that it is given once, for a whole answer
   */
  request(call: (provider: Provider) => Promise<unknown>): Promise<BatchRequest | undefined>;
  /** The provider, where the next call is answered with what a batch brought: decoded as if it had come live. */
  answering(answer: RecordedAnswer): Provider;
}

export type BasisPoints = number;

export interface BatchLimits {
  /** By `BatchRequest.count`. */
  readonly maxRequests: number;
  /** Of all requests of a batch, by `BatchRequest.bytes`. */
  readonly maxBytes: number;
}

/** A request of a live call that was written down in place of being sent. */
export interface RecordedRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON, as text or in UTF-8. */
  readonly body: string | Uint8Array;
}

export interface BatchRequest {
  /** Those of one batch have one kind, and one model. */
  readonly kind: string;
  /** JSON, as text or in UTF-8. */
  readonly body: string | Uint8Array;
  /** What it takes of a batch, an upper bound. */
  readonly bytes: number;
  /** As how many requests it counts: of embeddings each input is one. */
  readonly count: number;
}

export interface NewBatch {
  /** Names the batch, so that it can be found: at most 40 of `A-Z a-z 0-9 _ -`. No other batch ever has it. */
  readonly mark: string;
  readonly kind: string;
  /** Of all requests, by the name that the provider knows it by. */
  readonly model: string;
  /** Read once. An id is at most 16 of the same characters, and no other request of the batch has it. */
  readonly requests: AsyncIterable<{ readonly id: string; readonly body: string | Uint8Array }>;
}

export interface BatchSearch {
  readonly mark: string;
  /** How many requests it has. */
  readonly requests: number;
  /** It was not created before: Unix milliseconds by this machine's clock. */
  readonly sinceMs: number;
  /** Whether a batch of the provider is known to be another one. */
  isOther(batchId: string): boolean;
}

export interface FoundBatches {
  /** With the mark, oldest first; more than one where creating was tried again. */
  readonly batchIds: readonly string[];
  /** False where a batch that has not ended may be one too, which only its results tell: to be looked for again. */
  readonly isCertain: boolean;
}

export interface BatchState {
  readonly hasEnded: boolean;
  /** The batch as a whole, of which no request was run: `rejected`, or what may pass. Set where it has ended. */
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
  /** It was not answered. Nothing is billed by the provider. */
  | { readonly id: string; readonly failure: ProviderFailure };

/** The response that a live call would have got; one that reports an error, too. It may be stored. */
export interface RecordedAnswer {
  readonly status: number;
  /** JSON, in UTF-8. */
  readonly body: Uint8Array;
}

const BASIS_POINTS = 10_000n;

/** Multiplies each price of a list by the share, and rounds it up to a femto-USD. */
export function pricesAtShare<Prices extends object>(prices: Prices, share: BasisPoints): Prices {
  return priceAtShare(prices, BigInt(share)) as Prices;
}

function priceAtShare(value: unknown, share: bigint): unknown {
  if (typeof value === "bigint") {
    return ((value * share + BASIS_POINTS - 1n) / BASIS_POINTS) satisfies FemtoUsd;
  }
  if (Array.isArray(value)) return value.map((one) => priceAtShare(one, share));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [name, priceAtShare(one, share)]),
  );
}
