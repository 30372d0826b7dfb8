import type { Redis } from "ioredis";
import type { Clock } from "../../../lib/clock.ts";
import type { RateAmount } from "../interface.ts";
import { BUCKET_MS, bucketsOf } from "../sliding-window.ts";
import { ANSWER_TIMEOUT_MS, answerInTime, RedisTime } from "./connection.ts";
import type { UnreportedAdmissions } from "./local-shares.ts";
import {
  attendLua,
  CARRIED_OUT,
  countLua,
  GENERATION_CHANGED,
  leaveLua,
  mergeLua,
  recountLua,
  TOO_LATE,
  takeLua,
} from "./rate-lua.ts";

/** Milliseconds without an instance after which a generation of counters expires. */
const MARKER_LIFE_MS = 3_600_000;
/**
 * An instance counts as joined for this fraction of a window after its last report. That is four
 * seconds, longer than a dead instance counts as alive.
 */
const PRESENT_PARTS = 15;
/**
 * Milliseconds for which Redis may still execute a command after its caller has stopped waiting.
 */
const LATE_MS = 250;
/** Milliseconds for which a recount can be sent again. Redis remembers its name for longer. */
export const RESEND_MS = 10_000;
const RECOUNT_LIFE_MS = 2 * RESEND_MS;
const NUMBERS_OF_A_TAKE = 6;

export interface RateRequest {
  readonly key: string;
  readonly limit: number;
  readonly amount: RateAmount;
}

/** Changes of the amounts of one key's admissions, by bucket. */
export type Recount = readonly [key: string, changes: ReadonlyMap<number, number>];

/**
 * Returns the bucket, by Redis's clock, in which the admissions of a bucket of this instance were
 * counted.
 */
export type RedisBucketOf = (bucket: number) => number;

/** Redis's decision about one take. */
export interface Answer {
  readonly isAdmitted: boolean;
  /** True if Redis had no window of the key before. */
  readonly isNew: boolean;
  readonly remaining: number;
  readonly resetInMs: number;
  readonly retryAfterMs: number;
  readonly admittedAmount: number;
  /** The bucket of the admission, by Redis's clock. */
  readonly bucket: number;
}

/**
 * Thrown if the generation of the counters is not the one that this instance knows. The instance
 * has to attend again.
 */
export class GenerationChanged extends Error {}

/** Thrown if the counters cannot be trusted and have to restart. */
export class CountersLost extends Error {}

interface RateScriptsOptions {
  readonly redis: Redis;
  readonly clock: Clock;
  readonly instanceId: string;
  readonly keyPrefix: string;
  readonly windowMs: number;
  /** Name of a key with the time in milliseconds, which tests use instead of Redis's clock. */
  readonly clockKey?: string | undefined;
}

interface Scripts {
  gatewayAttend(...words: (string | number)[]): Promise<[number, number, string]>;
  gatewayTake(...words: (string | number)[]): Promise<number[]>;
  gatewayMerge(...words: (string | number)[]): Promise<number[]>;
  gatewayCount(...words: (string | number)[]): Promise<number[]>;
  gatewayRecount(...words: (string | number)[]): Promise<number[]>;
  gatewayLeave(...words: (string | number)[]): Promise<number[]>;
}

/** The scripts of rate windows as functions. Each rejects if Redis does not answer in time. */
export class RateScripts {
  readonly #options: RateScriptsOptions;
  readonly #scripts: Scripts;
  readonly #time = new RedisTime();
  readonly #marker: string;
  readonly #buckets: number;

  constructor(options: RateScriptsOptions) {
    const { redis, clockKey, keyPrefix, windowMs } = options;
    this.#options = options;
    this.#marker = `${keyPrefix}rate`;
    this.#buckets = bucketsOf(windowMs);
    redis.defineCommand("gatewayAttend", { numberOfKeys: 2, lua: attendLua(clockKey) });
    redis.defineCommand("gatewayTake", { lua: takeLua(BUCKET_MS, clockKey) });
    redis.defineCommand("gatewayMerge", { lua: mergeLua(BUCKET_MS, clockKey) });
    redis.defineCommand("gatewayCount", { numberOfKeys: 3, lua: countLua(BUCKET_MS, clockKey) });
    redis.defineCommand("gatewayRecount", { lua: recountLua(clockKey) });
    redis.defineCommand("gatewayLeave", { numberOfKeys: 1, lua: leaveLua(clockKey) });
    this.#scripts = redis as unknown as Scripts;
  }

  /**
   * Reports that this instance is alive, and that it is joined if `knownGeneration` is still the
   * generation. Returns the current generation. Counters restart if they were lost, or if
   * `lostGeneration` is theirs. Throws CountersLost if a clock was set, because ages cannot be
   * compared then.
   */
  async attend(
    knownGeneration: string | undefined,
    lostGeneration: string | undefined,
  ): Promise<string> {
    const word = crypto.randomUUID().slice(0, 8);
    const { instanceId } = this.#options;
    const [, , generation] = await this.#timed(() =>
      this.#scripts.gatewayAttend(
        this.#marker,
        this.#present(knownGeneration ?? ""),
        word,
        lostGeneration ?? "",
        knownGeneration ?? "",
        instanceId,
        MARKER_LIFE_MS,
        this.#deadlineMs(),
      ),
    );
    return generation;
  }

  /**
   * Takes the requested amounts. `live` has the ids of all live instances, including this one.
   * Throws GenerationChanged if `generation` is no longer the current one, and CountersLost like
   * `attend`. An answer after the rejection goes to `onLate`.
   */
  async take(
    generation: string,
    requests: readonly RateRequest[],
    live: readonly string[],
    onLate: (answers: Answer[]) => void,
  ): Promise<Answer[]> {
    const words: (string | number)[] = [
      requests.length + 2,
      this.#marker,
      this.#present(generation),
    ];
    const prefix = this.#windowPrefix(generation);
    for (const { key } of requests) words.push(prefix + key);
    words.push(generation, this.#options.instanceId, this.#deadlineMs());
    words.push(live.length, this.#options.windowMs / PRESENT_PARTS, this.#buckets);
    for (const { limit, amount } of requests) {
      words.push(limit, amount.full, amount.reduced, amount.least);
    }
    words.push(...live);
    const sent = () => this.#scripts.gatewayTake(...words);
    return readAnswers(await this.#timed(sent, (numbers) => onLate(readAnswers(numbers))));
  }

  /**
   * Changes the amounts of admissions that are still in their windows. A recount with a unique name
   * is executed once within RESEND_MS, however often it is sent. Throws like `take`.
   */
  async recount(generation: string, name: string, recounts: readonly Recount[]): Promise<void> {
    const { instanceId } = this.#options;
    const prefix = this.#windowPrefix(generation);
    const words: (string | number)[] = [
      recounts.length + 3,
      this.#marker,
      this.#present(generation),
      `${this.#marker}:${wordOf(generation)}:recount:${name}`,
    ];
    for (const [key] of recounts) words.push(prefix + key);
    words.push(generation, instanceId, this.#deadlineMs(), RECOUNT_LIFE_MS);
    for (const [, changes] of recounts) {
      words.push(changes.size);
      for (const [bucket, by] of changes) words.push(bucket, by);
    }
    await this.#timed(() => this.#scripts.gatewayRecount(...words));
  }

  /** Returns the number of admissions in the window of a key. Throws like `take`. */
  async count(generation: string, key: string): Promise<number> {
    const reply = await this.#timed(() =>
      this.#scripts.gatewayCount(
        this.#marker,
        this.#present(generation),
        this.#windowPrefix(generation) + key,
        generation,
        this.#options.instanceId,
        this.#deadlineMs(),
        this.#buckets,
      ),
    );
    return reply[2]!;
  }

  /**
   * Adds admissions without Redis. With `isAll` this instance is joined from then on. Throws like
   * `take`, and calls `onLate` like it.
   */
  async merge(
    generation: string,
    report: readonly UnreportedAdmissions[],
    isAll: boolean,
    ageMs: (bucket: number) => number,
    onLate: (redisBucketOf: RedisBucketOf) => void,
  ): Promise<RedisBucketOf> {
    const words: (string | number)[] = [report.length + 2, this.#marker, this.#present(generation)];
    const prefix = this.#windowPrefix(generation);
    for (const { key } of report) words.push(prefix + key);
    words.push(generation, this.#options.instanceId, this.#deadlineMs());
    words.push(isAll ? 1 : 0, this.#buckets);
    const agesMs = new Map<number, number>();
    for (const { counts } of report) {
      words.push(counts.size);
      for (const [bucket, admitted] of counts) {
        if (!agesMs.has(bucket)) agesMs.set(bucket, ageMs(bucket));
        words.push(agesMs.get(bucket)!, admitted);
      }
    }
    const redisBucketsAt =
      ([, nowMs]: readonly number[]): RedisBucketOf =>
      (bucket) =>
        Math.floor((nowMs! - agesMs.get(bucket)!) / BUCKET_MS);
    const sent = () => this.#scripts.gatewayMerge(...words);
    return redisBucketsAt(await this.#timed(sent, (reply) => onLate(redisBucketsAt(reply))));
  }

  /** Leaves the joined instances. This instance admits nothing from now on. */
  async leave(generation: string): Promise<void> {
    const { instanceId, windowMs } = this.#options;
    const left = this.#scripts.gatewayLeave(this.#present(generation), instanceId, windowMs);
    await answerInTime(this.#options.clock, left);
  }

  /**
   * Sends a command and checks its reply. A late reply goes to `onLate` only if the command was
   * executed.
   */
  async #timed<Reply extends readonly unknown[]>(
    send: () => Promise<Reply>,
    onLate: (reply: Reply) => void = () => {},
  ): Promise<Reply> {
    const { clock } = this.#options;
    const sentMs = clock.nowMs();
    const reply = await answerInTime(clock, send(), (late) => {
      if (late[0] === CARRIED_OUT) onLate(late);
    });
    const isSteady = this.#time.observe(reply[1] as number, sentMs, clock.nowMs());
    if (reply[0] === GENERATION_CHANGED) throw new GenerationChanged("its counters restarted");
    if (!isSteady) throw new CountersLost("a clock was set");
    if (reply[0] === TOO_LATE) throw new Error("it answered too late");
    if (reply[0] !== CARRIED_OUT) throw new Error("it sent an unknown answer");
    return reply;
  }

  #deadlineMs(): number {
    return this.#time.latestMs(this.#options.clock.nowMs()) + ANSWER_TIMEOUT_MS + LATE_MS;
  }

  #present(generation: string): string {
    return `${this.#marker}:${wordOf(generation)}:present`;
  }

  #windowPrefix(generation: string): string {
    return `${this.#marker}:${wordOf(generation)}:of:`;
  }
}

function readAnswers(numbers: readonly number[]): Answer[] {
  const answers: Answer[] = [];
  for (let at = 2; at < numbers.length; at += NUMBERS_OF_A_TAKE) {
    answers.push({
      isAdmitted: numbers[at]! > 0,
      isNew: numbers[at] === 2,
      remaining: numbers[at + 1]!,
      resetInMs: numbers[at + 2]!,
      retryAfterMs: numbers[at + 3]!,
      admittedAmount: numbers[at + 4]!,
      bucket: numbers[at + 5]!,
    });
  }
  return answers;
}

/** Returns the word of a generation, which is named `<run id of the server>:<word>`. */
function wordOf(generation: string): string {
  return generation.slice(generation.lastIndexOf(":") + 1);
}
