import type { AnswerPlace } from "../../../../db/queries/response-cache.ts";
import type { Hold } from "../../../billing/ledger/interface.ts";
import type { Usage } from "../../../lib/usage.ts";
import { headersOfAsking } from "../answer-headers.ts";
import type { MeteredFigures } from "../call-charge.ts";
import type { AcceptedRequest, AnswerGatherer, CacheFormat } from "../endpoint.ts";
import type { AnswerCache, CachedAnswer } from "./answer-cache.ts";
import type { CacheOrder } from "./order.ts";

interface KeepingParts {
  readonly answers: AnswerCache;
  readonly form: CacheFormat<AcceptedRequest>;
  readonly place: AnswerPlace;
  /** Undefined where nothing can be kept. */
  readonly generation: number | undefined;
  readonly order: CacheOrder;
  /** Whether the client gets a stream; what is gathered from one for it comes whole. */
  readonly isStream: boolean;
  /** Called once: with the answer where it is kept. */
  onEnd(answer: CachedAnswer | undefined): void;
}

type Metered = Pick<MeteredFigures, "model" | "provider" | "chargeNano">;

/**
 * Keeps the answer of a call that missed the cache, as its client gets it. One that is cut, abandoned or fails ends
 * without having been whole, and is not kept.
 */
export class CacheWriter {
  readonly #parts: KeepingParts;
  #metered: (Metered & { readonly usage: Usage }) | undefined;
  #gatherer: AnswerGatherer | undefined;
  #headers: Readonly<Record<string, string>> = {};
  #hasEnded = false;

  constructor(parts: KeepingParts) {
    this.#parts = parts;
  }

  /** What the answer costs as it stands; the last word holds. An answer shorter than was asked for is not kept. */
  note({ isLowered }: Hold, { model, provider, chargeNano }: Metered, usage: Usage): void {
    this.#metered = isLowered ? undefined : { model, provider, chargeNano, usage };
  }

  noteHeaders(headers: Readonly<Record<string, string>>): void {
    this.#headers = headersOfAsking(headers);
  }

  /** Bytes of a stream, as they are delivered. */
  push(bytes: Uint8Array): void {
    if (this.#hasEnded || !this.#parts.isStream) return;
    this.#gatherer ??= this.#parts.form.gather?.();
    this.#gatherer?.push(bytes);
  }

  /** The stream is whole and charged, and ends with these bytes. Resolves when its answer is kept, or never will be. */
  async wholeStream(ending: Uint8Array): Promise<void> {
    if (!this.#parts.isStream) return;
    this.push(ending);
    await this.#keep(this.#gatherer?.end());
  }

  /** The same of an answer in one piece. */
  async whole(body: string | Uint8Array): Promise<void> {
    await this.#keep(this.#parts.form.ofWhole(body));
  }

  /** The stream has ended, as a whole or not. */
  endStream(): void {
    if (this.#parts.isStream) this.end();
  }

  /** Nothing more comes. May be repeated. */
  end(answer?: CachedAnswer): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#parts.onEnd(answer);
  }

  async #keep(text: string | undefined): Promise<void> {
    if (this.#hasEnded) return;
    const { answers, place, generation, order } = this.#parts;
    const metered = this.#metered;
    if (text === undefined || metered === undefined || generation === undefined) return this.end();
    const { model, provider, chargeNano: costNano, usage } = metered;
    const headers = this.#headers;
    const answer = { model, provider, costNano, usage: { ...usage }, headers, text };
    const isKept = await answers.keep(place, generation, answer, order.lifetimeMs);
    this.end(isKept ? answer : undefined);
  }
}
