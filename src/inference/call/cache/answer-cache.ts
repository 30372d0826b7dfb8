import type { Database } from "../../../../db/client.ts";
import {
  type AnswerKey,
  type AnswerNote,
  type AnswerUse,
  type CacheBounds,
  type CacheHits,
  countCacheHits,
  findCachedAnswers,
  keepAnswer,
  noteAnswersUsed,
  type SealedAnswer,
} from "../../../../db/queries/response-cache.ts";
import type { Clock } from "../../../lib/clock.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import type { Usage } from "../../../lib/usage.ts";

/** The largest answer that is stored, in UTF-8 bytes. A larger answer is not stored. */
export const MAX_STORED_BYTES = 1_048_576;
/** The longest wait of a request for the cache. A slow cache counts as a miss. */
const MAX_WAIT_MS = 500;
/** Maximum keys in one query. Their answers are in memory at the same time. */
const MAX_KEYS_A_QUERY = 16;
/** Last uses are written in batches, after this delay. */
const WRITE_USES_MS = 1_000;
const MAX_NOTED_USES = 10_000;

/** A stored answer, which equal requests get. */
export interface CachedAnswer extends AnswerNote {
  readonly usage: Usage & Readonly<Record<string, unknown>>;
  /** The answer in the endpoint's cache format. */
  readonly text: string;
}

/** The result of a look-up. */
export interface LookupResult {
  readonly answer: CachedAnswer | undefined;
  /**
   * The generation of the organization's cache. Undefined if the cache did not answer; then nothing can be
   * stored either.
   */
  readonly generation: number | undefined;
}

export interface AnswerCacheDependencies {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  /** A monotonic clock for timeouts. */
  readonly steadyClock: Clock;
  readonly bounds: CacheBounds;
  onError(error: unknown): void;
}

/**
 * The response cache of all organizations. If the cache cannot be reached in time, a look-up finds nothing
 * and nothing is stored. Never rejects.
 */
export class AnswerCache {
  readonly #dependencies: AnswerCacheDependencies;
  /** The last use of each answer, by key. */
  readonly #uses = new Map<string, AnswerUse>();
  /** The hits that are not written yet, by organization. */
  #hits = new Map<string, CacheHits>();
  #isWriting = false;
  /** The look-ups for the next query, by key. One query runs at a time, whatever the number of look-ups. */
  readonly #pending = new Map<string, Lookup>();
  #isLooking = false;

  constructor(dependencies: AnswerCacheDependencies) {
    this.#dependencies = dependencies;
  }

  find(key: AnswerKey): Promise<LookupResult> {
    return this.#withTimeout(this.#find(key), NOTHING);
  }

  /**
   * Stores an answer. Returns true if the answer can be found from now on. Returns false if the answer is too
   * large, if the cache was purged since the look-up, or if it did not answer in time.
   */
  store(
    key: AnswerKey,
    generation: number,
    answer: CachedAnswer,
    lifetimeMs: number,
  ): Promise<boolean> {
    return this.#withTimeout(this.#store(key, generation, answer, lifetimeMs), false);
  }

  #find(key: AnswerKey): Promise<LookupResult> {
    const name = nameOf(key);
    const pending = this.#pending.get(name);
    if (pending !== undefined) return pending.promise;
    const look = { key, ...Promise.withResolvers<LookupResult>() };
    this.#pending.set(name, look);
    if (!this.#isLooking) void this.#runLookups();
    return look.promise;
  }

  async #runLookups(): Promise<void> {
    this.#isLooking = true;
    while (this.#pending.size > 0) {
      const looks = [...this.#pending.values()].slice(0, MAX_KEYS_A_QUERY);
      for (const { key } of looks) this.#pending.delete(nameOf(key));
      await this.#lookUp(looks).catch((error) => {
        for (const { reject } of looks) reject(error);
      });
    }
    this.#isLooking = false;
  }

  async #lookUp(looks: readonly Lookup[]): Promise<void> {
    const { sql, clock } = this.#dependencies;
    const nowMs = clock.nowMs();
    const keys = looks.map(({ key }) => key);
    const results = await findCachedAnswers(sql, keys, nowMs);
    for (const [at, { key, resolve }] of looks.entries()) {
      const { generation, answer } = results[at]!;
      const opened = answer && this.#decrypt(answer);
      if (opened !== undefined) this.#noteUse(key, nowMs);
      resolve({ generation, answer: opened });
    }
  }

  /** Decrypts an answer. Returns undefined if no configured key can decrypt it. */
  #decrypt({ sealed, usage, ...note }: SealedAnswer): CachedAnswer | undefined {
    const opened = this.#dependencies.keyring.tryOpen(sealed);
    if (opened === undefined) return undefined;
    const text = new TextDecoder().decode(opened.plain);
    return { ...note, usage: usage as CachedAnswer["usage"], text };
  }

  async #store(
    key: AnswerKey,
    generation: number,
    { text, ...note }: CachedAnswer,
    lifetimeMs: number,
  ): Promise<boolean> {
    const plain = new TextEncoder().encode(text);
    if (plain.length > MAX_STORED_BYTES) return false;
    const { sql, keyring, clock, bounds } = this.#dependencies;
    // Otherwise a full cache would remove answers that were used a moment ago.
    await this.#writeUses();
    const nowMs = clock.nowMs();
    const seal = (keyId: string) => keyring.sealUnder(keyId, plain);
    const entry = { ...note, key, generation, seal, expiresAtMs: nowMs + lifetimeMs };
    return keepAnswer(sql, entry, bounds, nowMs);
  }

  /** Counts a request that got an answer, and the charge that this saved. */
  noteHit(key: AnswerKey, costNano: bigint): void {
    const { organizationId } = key;
    const { hits, savedNano } = this.#hits.get(organizationId) ?? { hits: 0, savedNano: 0n };
    this.#hits.set(organizationId, { hits: hits + 1, savedNano: savedNano + costNano });
    this.#noteUse(key, this.#dependencies.clock.nowMs(), 1);
  }

  #noteUse(key: AnswerKey, usedAtMs: number, hits = 0): void {
    const name = nameOf(key);
    const noted = this.#uses.get(name);
    if (noted !== undefined || this.#uses.size < MAX_NOTED_USES) {
      const { organizationId, keyHash } = key;
      this.#uses.set(name, { organizationId, keyHash, usedAtMs, hits: (noted?.hits ?? 0) + hits });
    }
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#dependencies.steadyClock.after(WRITE_USES_MS, () => {
      this.#isWriting = false;
      void this.#writeUses();
    });
  }

  /** Writes the last uses and the hits. If a write fails they are lost, and the order of removal is less exact. */
  async #writeUses(): Promise<void> {
    const { sql, onError } = this.#dependencies;
    const [uses, hits] = [[...this.#uses.values()], this.#hits];
    this.#uses.clear();
    this.#hits = new Map();
    if (uses.length > 0) await noteAnswersUsed(sql, uses).catch(onError);
    if (hits.size > 0) await countCacheHits(sql, hits).catch(onError);
  }

  async #withTimeout<Result>(work: Promise<Result>, otherwise: Result): Promise<Result> {
    const { promise, resolve } = Promise.withResolvers<Result>();
    const cancel = this.#dependencies.steadyClock.after(MAX_WAIT_MS, () => resolve(otherwise));
    work.then(resolve, (error) => {
      this.#dependencies.onError(error);
      resolve(otherwise);
    });
    return promise.finally(cancel);
  }
}

interface Lookup extends PromiseWithResolvers<LookupResult> {
  readonly key: AnswerKey;
}

function nameOf({ organizationId, keyHash }: AnswerKey): string {
  return `${organizationId} ${keyHash}`;
}

const NOTHING: LookupResult = { answer: undefined, generation: undefined };
