import type { AnswerKey } from "../../../../db/queries/response-cache.ts";
import type { Hold } from "../../../billing/ledger/interface.ts";
import type { Usage } from "../../../lib/usage.ts";
import { providerCallHeaders } from "../answer-headers.ts";
import type { MeteredFigures } from "../call-charge.ts";
import type { AcceptedRequest, AnswerGatherer, CacheFormat } from "../endpoint.ts";
import type { AnswerCache, CachedAnswer } from "./answer-cache.ts";
import type { CacheOrder } from "./order.ts";

interface CacheWriterParts {
  readonly answers: AnswerCache;
  readonly format: CacheFormat<AcceptedRequest>;
  readonly key: AnswerKey;
  /** Undefined if nothing can be stored. */
  readonly generation: number | undefined;
  readonly order: CacheOrder;
  /**
   * True if the client gets a stream. An answer that the gateway gathered from a provider's stream counts as
   * whole.
   */
  readonly isStream: boolean;
  /** Called once, with the answer if it was stored. */
  onEnd(answer: CachedAnswer | undefined): void;
}

type Metered = Pick<MeteredFigures, "model" | "provider" | "chargeNano">;

/**
 * Stores the answer of a call that missed the cache, as its client gets it. Does not store an answer that was
 * cut off, abandoned or failed.
 */
export class CacheWriter {
  readonly #parts: CacheWriterParts;
  #metered: (Metered & { readonly usage: Usage }) | undefined;
  #gatherer: AnswerGatherer | undefined;
  #headers: Readonly<Record<string, string>> = {};
  #hasEnded = false;

  constructor(parts: CacheWriterParts) {
    this.#parts = parts;
  }

  /**
   * Records the current charge of the answer; the last call counts. An answer with a lowered output limit is
   * not stored.
   */
  note({ isLowered }: Hold, { model, provider, chargeNano }: Metered, usage: Usage): void {
    this.#metered = isLowered ? undefined : { model, provider, chargeNano, usage };
  }

  noteHeaders(headers: Readonly<Record<string, string>>): void {
    this.#headers = providerCallHeaders(headers);
  }

  /** Adds bytes of a stream as they are delivered. */
  push(bytes: Uint8Array): void {
    if (this.#hasEnded || !this.#parts.isStream) return;
    this.#gatherer ??= this.#parts.format.gather?.();
    this.#gatherer?.push(bytes);
  }

  /**
   * Stores a stream that is complete and charged, after adding its last bytes. Resolves when the answer is
   * stored, or when it is clear that it will not be.
   */
  async wholeStream(ending: Uint8Array): Promise<void> {
    if (!this.#parts.isStream) return;
    this.push(ending);
    await this.#store(this.#gatherer?.end());
  }

  /** Stores a whole answer. Resolves as `wholeStream` does. */
  async whole(body: string | Uint8Array): Promise<void> {
    await this.#store(this.#parts.format.ofWhole(body));
  }

  /** Ends the writer after a stream, whether complete or not. */
  endStream(): void {
    if (this.#parts.isStream) this.end();
  }

  /** Ends the writer. Can be called again without effect. */
  end(answer?: CachedAnswer): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#parts.onEnd(answer);
  }

  async #store(text: string | undefined): Promise<void> {
    if (this.#hasEnded) return;
    const { answers, key, generation, order } = this.#parts;
    const metered = this.#metered;
    if (text === undefined || metered === undefined || generation === undefined) return this.end();
    const { model, provider, chargeNano: costNano, usage } = metered;
    const headers = this.#headers;
    const answer = { model, provider, costNano, usage: { ...usage }, headers, text };
    const isStored = await answers.store(key, generation, answer, order.lifetimeMs);
    this.end(isStored ? answer : undefined);
  }
}
