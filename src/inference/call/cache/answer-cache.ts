import type { Database } from "../../../../db/client.ts";
import {
  type AnswerNote,
  type AnswerPlace,
  type CacheBounds,
  findCachedAnswers,
  keepAnswer,
  noteAnswersUsed,
  type SealedAnswer,
} from "../../../../db/queries/response-cache.ts";
import type { Clock } from "../../../lib/clock.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import type { Usage } from "../../../lib/usage.ts";

/** Longer answers are not kept, in UTF-8 bytes. */
export const MAX_KEPT_BYTES = 1_048_576;
/** How long a request waits for the cache: one that is slow is a miss. */
const MAX_WAIT_MS = 500;
/** Places that are looked at in one query: their answers are in memory together. */
const MAX_PLACES = 16;
/** Uses are written together. */
const WRITE_USES_MS = 1_000;
const MAX_NOTED_USES = 10_000;

/** An answer that equal requests get. */
export interface CachedAnswer extends AnswerNote {
  readonly usage: Usage & Readonly<Record<string, unknown>>;
  /** In the form that its endpoint keeps. */
  readonly text: string;
}

/** What a look for an answer found. */
export interface Found {
  readonly answer: CachedAnswer | undefined;
  /** Undefined where the cache did not say: then nothing can be kept either. */
  readonly generation: number | undefined;
}

export interface AnswerCacheDependencies {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  /** Time that no one sets, for waits. */
  readonly steadyClock: Clock;
  readonly bounds: CacheBounds;
  onError(error: unknown): void;
}

/** The response cache of all organizations. Where it cannot be reached in time, nothing is in it. Never rejects. */
export class AnswerCache {
  readonly #dependencies: AnswerCacheDependencies;
  /** When each was used last, by place. */
  readonly #uses = new Map<string, AnswerPlace & { readonly usedAtMs: number }>();
  #isWriting = false;
  /** Places that the next query looks at, by name: one runs at a time, however many ask. */
  readonly #asked = new Map<string, Look>();
  #isLooking = false;

  constructor(dependencies: AnswerCacheDependencies) {
    this.#dependencies = dependencies;
  }

  find(place: AnswerPlace): Promise<Found> {
    return this.#inTime(this.#find(place), NOTHING);
  }

  /** Whether it can be found from now on. False where the cache was purged since it was asked for. */
  keep(
    place: AnswerPlace,
    generation: number,
    answer: CachedAnswer,
    lifetimeMs: number,
  ): Promise<boolean> {
    return this.#inTime(this.#keep(place, generation, answer, lifetimeMs), false);
  }

  #find(place: AnswerPlace): Promise<Found> {
    const name = nameOf(place);
    const before = this.#asked.get(name);
    if (before !== undefined) return before.promise;
    const look = { place, ...Promise.withResolvers<Found>() };
    this.#asked.set(name, look);
    if (!this.#isLooking) void this.#lookOn();
    return look.promise;
  }

  async #lookOn(): Promise<void> {
    this.#isLooking = true;
    while (this.#asked.size > 0) {
      const looks = [...this.#asked.values()].slice(0, MAX_PLACES);
      for (const { place } of looks) this.#asked.delete(nameOf(place));
      await this.#look(looks).catch((error) => {
        for (const { reject } of looks) reject(error);
      });
    }
    this.#isLooking = false;
  }

  async #look(looks: readonly Look[]): Promise<void> {
    const { sql, clock } = this.#dependencies;
    const nowMs = clock.nowMs();
    const places = looks.map(({ place }) => place);
    const found = await findCachedAnswers(sql, places, nowMs);
    for (const [at, { place, resolve }] of looks.entries()) {
      const { generation, answer } = found[at]!;
      const opened = answer && this.#opened(answer);
      if (opened !== undefined) this.#noteUse(place, nowMs);
      resolve({ generation, answer: opened });
    }
  }

  /** What no known key opens any more is not there. */
  #opened({ sealed, usage, ...note }: SealedAnswer): CachedAnswer | undefined {
    const opened = this.#dependencies.keyring.tryOpen(sealed);
    if (opened === undefined) return undefined;
    const text = new TextDecoder().decode(opened.plain);
    return { ...note, usage: usage as CachedAnswer["usage"], text };
  }

  async #keep(
    place: AnswerPlace,
    generation: number,
    { text, ...note }: CachedAnswer,
    lifetimeMs: number,
  ): Promise<boolean> {
    const plain = new TextEncoder().encode(text);
    if (plain.length > MAX_KEPT_BYTES) return false;
    const { sql, keyring, clock, bounds } = this.#dependencies;
    // Else a full cache would remove what was used a moment ago.
    await this.#writeUses();
    const nowMs = clock.nowMs();
    const seal = (keyId: string) => keyring.sealUnder(keyId, plain);
    const kept = { ...note, place, generation, seal, expiresAtMs: nowMs + lifetimeMs };
    return keepAnswer(sql, kept, bounds, nowMs);
  }

  #noteUse(place: AnswerPlace, usedAtMs: number): void {
    const name = nameOf(place);
    if (!this.#uses.has(name) && this.#uses.size >= MAX_NOTED_USES) return;
    this.#uses.set(name, { ...place, usedAtMs });
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#dependencies.steadyClock.after(WRITE_USES_MS, () => {
      this.#isWriting = false;
      void this.#writeUses();
    });
  }

  /** What the database does not take is lost: the order of removal is then less exact. */
  async #writeUses(): Promise<void> {
    if (this.#uses.size === 0) return;
    const uses = [...this.#uses.values()];
    this.#uses.clear();
    await noteAnswersUsed(this.#dependencies.sql, uses).catch(this.#dependencies.onError);
  }

  async #inTime<Result>(work: Promise<Result>, otherwise: Result): Promise<Result> {
    const { promise, resolve } = Promise.withResolvers<Result>();
    const cancel = this.#dependencies.steadyClock.after(MAX_WAIT_MS, () => resolve(otherwise));
    work.then(resolve, (error) => {
      this.#dependencies.onError(error);
      resolve(otherwise);
    });
    return promise.finally(cancel);
  }
}

interface Look extends PromiseWithResolvers<Found> {
  readonly place: AnswerPlace;
}

function nameOf({ organizationId, keyHash }: AnswerPlace): string {
  return `${organizationId} ${keyHash}`;
}

const NOTHING: Found = { answer: undefined, generation: undefined };
