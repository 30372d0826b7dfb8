import type { Redis } from "ioredis";
import type { Clock } from "../../../lib/clock.ts";
import type { RateAmount } from "../interface.ts";
import { BUCKET_MS, bucketsOf } from "../sliding-window.ts";
import { ANSWER_TIMEOUT_MS, answerInTime, RedisTime } from "./connection.ts";
import type { Untold } from "./local-shares.ts";
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

/** A generation of counters without an instance for so long is forgotten. */
const MARKER_LIFE_MS = 3_600_000;
/**
 * An instance takes part for a fifteenth of a window after its last report. That is four seconds: longer
 * than it counts as alive after it died.
 */
const PRESENT_PARTS = 15;
/** A command may still be executed for a moment after its caller has stopped waiting. */
const LATE_MS = 250;
/** A recount may be sent again for so long; Redis remembers its name for longer. */
export const RESEND_MS = 10_000;
const RECOUNT_LIFE_MS = 2 * RESEND_MS;
const NUMBERS_OF_A_TAKE = 6;

export interface Asked {
  readonly key: string;
  readonly limit: number;
  readonly amount: RateAmount;
}

/** By how much what the admissions of one key count for has changed, by bucket. */
export type Recount = readonly [key: string, changes: ReadonlyMap<number, number>];

/** The bucket by Redis's clock in which an admission of a bucket of this instance was counted. */
export type PlaceOf = (bucket: number) => number;

/** A take as Redis decided it. */
export interface Answer {
  readonly isAdmitted: boolean;
  /** The key had no window in Redis before. */
  readonly isNew: boolean;
  readonly remaining: number;
  readonly resetInMs: number;
  readonly retryAfterMs: number;
  readonly taken: number;
  /** By Redis's clock. */
  readonly bucket: number;
}

/** The counters are others than this instance took them for; it has to attend again. */
export class GenerationChanged extends Error {}

/** The counters cannot be trusted and have to start over. */
export class CountersLost extends Error {}

interface RateScriptsOptions {
  readonly redis: Redis;
  readonly clock: Clock;
  readonly instanceId: string;
  readonly keyPrefix: string;
  readonly windowMs: number;
  /** For tests: a key that holds the time in milliseconds, in place of Redis's own clock. */
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

/** The scripts of rate windows as functions. Each rejects where Redis does not answer in time. */
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
   * Says that this instance is there, and takes part if `known` still is the generation; returns the one
   * that is. Counters start over if they were lost, which `lost` claims of a generation. Throws
   * CountersLost where a clock was set: ages cannot be compared over that.
   */
  async attend(known: string | undefined, lost: string | undefined): Promise<string> {
    const word = crypto.randomUUID().slice(0, 8);
    const { instanceId } = this.#options;
    const [, , generation] = await this.#timed(() =>
      this.#scripts.gatewayAttend(
        this.#marker,
        this.#present(known ?? ""),
        word,
        lost ?? "",
        known ?? "",
        instanceId,
        MARKER_LIFE_MS,
        this.#deadlineMs(),
      ),
    );
    return generation;
  }

  /**
   * `live` are the ids of all instances that live, this one among them. Throws GenerationChanged where
   * `generation` is no longer the one, and CountersLost as `attend` does. Answers that come after the
   * rejection go to `onLate`.
   */
  async take(
    generation: string,
    asked: readonly Asked[],
    live: readonly string[],
    onLate: (answers: Answer[]) => void,
  ): Promise<Answer[]> {
    const words: (string | number)[] = [asked.length + 2, this.#marker, this.#present(generation)];
    const prefix = this.#windowPrefix(generation);
    for (const { key } of asked) words.push(prefix + key);
    words.push(generation, this.#options.instanceId, this.#deadlineMs());
    words.push(live.length, this.#options.windowMs / PRESENT_PARTS, this.#buckets);
    for (const { limit, amount } of asked) {
      words.push(limit, amount.full, amount.reduced, amount.least);
    }
    words.push(...live);
    const sent = () => this.#scripts.gatewayTake(...words);
    return readAnswers(await this.#timed(sent, (numbers) => onLate(readAnswers(numbers))));
  }

  /**
   * Changes what admissions count for, as long as they are in their windows. Under the same name, which nothing
   * else has, it is carried out once within RESEND_MS, however often it is sent. Throws as `take`.
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

  /** What the window of a key holds. Throws as `take`. */
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
   * Adds what was admitted without Redis; with `isAll` this instance takes part from then on. Throws as `take`,
   * and reports to `onLate` as that does.
   */
  async merge(
    generation: string,
    told: readonly Untold[],
    isAll: boolean,
    ageMs: (bucket: number) => number,
    onLate: (placeOf: PlaceOf) => void,
  ): Promise<PlaceOf> {
    const words: (string | number)[] = [told.length + 2, this.#marker, this.#present(generation)];
    const prefix = this.#windowPrefix(generation);
    for (const { key } of told) words.push(prefix + key);
    words.push(generation, this.#options.instanceId, this.#deadlineMs());
    words.push(isAll ? 1 : 0, this.#buckets);
    const agesMs = new Map<number, number>();
    for (const { counts } of told) {
      words.push(counts.size);
      for (const [bucket, admitted] of counts) {
        if (!agesMs.has(bucket)) agesMs.set(bucket, ageMs(bucket));
        words.push(agesMs.get(bucket)!, admitted);
      }
    }
    const placesAt =
      ([, nowMs]: readonly number[]): PlaceOf =>
      (bucket) =>
        Math.floor((nowMs! - agesMs.get(bucket)!) / BUCKET_MS);
    const sent = () => this.#scripts.gatewayMerge(...words);
    return placesAt(await this.#timed(sent, (reply) => onLate(placesAt(reply))));
  }

  /** Takes part no longer, and admits nothing from now on. */
  async leave(generation: string): Promise<void> {
    const { instanceId, windowMs } = this.#options;
    const left = this.#scripts.gatewayLeave(this.#present(generation), instanceId, windowMs);
    await answerInTime(this.#options.clock, left);
  }

  /** A late reply is passed on only if the command was carried out. */
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
    if (reply[0] === GENERATION_CHANGED) throw new GenerationChanged("its counters started over");
    if (!isSteady) throw new CountersLost("a clock was set");
    if (reply[0] === TOO_LATE) throw new Error("it answers too late");
    if (reply[0] !== CARRIED_OUT) throw new Error("it answers with something unknown");
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
      taken: numbers[at + 4]!,
      bucket: numbers[at + 5]!,
    });
  }
  return answers;
}

/** A generation is named `<run id of the server>:<word>`. */
function wordOf(generation: string): string {
  return generation.slice(generation.lastIndexOf(":") + 1);
}
