import type { Clock } from "../../../lib/clock.ts";
import { type GatewayError, overloaded } from "../../../lib/errors.ts";
import {
  ONE_ADMISSION,
  type RateAmount,
  type RateDecision,
  type RateWindows,
  recounting,
} from "../interface.ts";
import type { SlidingWindow } from "../sliding-window.ts";
import { LocalShares, type OwnAdmissions } from "./local-shares.ts";
import {
  type Answer,
  CountersLost,
  GenerationChanged,
  type RateScripts,
  RESEND_MS,
  type Recount,
} from "./rate-scripts.ts";

/*
 * An instance is in one of three states towards the counters in Redis:
 *
 * - apart: it decides by its own share of each limit, R / n, counting everything that it admitted itself
 *   within a window, through Redis or not. Here it begins, and here it comes back to when a command fails or
 *   is late, when the generation of the counters is another, or when a window of its own is missing.
 * - joining: Redis answers again and is being told the last of what this instance admitted without it.
 *   Takes wait for that, which is little.
 * - joined: the script decides. What this instance admitted is in the counters, all of it.
 *
 * Only `#attend`, which runs twice a second and at once after a loss, leads from apart to joined.
 *
 * Why this keeps the limit R: the script leaves the share of every instance that lives and is not joined to
 * it, and lets those who are joined have the rest. So in a window that sees no loss, those joined admit at
 * most R less those shares, and each that is apart its share. In a window that sees a loss, an instance i
 * had admitted a_i before it, the sum of which is at most R, and ends with at most max(a_i, R / n): less
 * than 2 R together. It does not matter who comes back first, or whether the counters are the old ones.
 */

interface RedisRateWindowsOptions {
  readonly scripts: RateScripts;
  /** Runs steadily: the ages of admissions are measured with it. */
  readonly clock: Clock;
  readonly windowMs: number;
  /** Ids of the instances that live, this one among them; known without Redis. */
  liveInstances(): readonly string[];
  /** Drops a connection on which nothing is answered, for a new one. */
  reconnect(): void;
  onLost(reason: Error): void;
  onBack(lostForMs: number, admittedApart: number): void;
}

/** How often an instance attends within a window: each half second. */
const ATTENDS_A_WINDOW = 120;
/** After a loss that Redis itself reported, so that it answers. */
const ATTEND_SOON_MS = 20;
/** Takes that wait for Redis at a time, and keys that are to be recounted. */
const MAX_WAITING = 20_000;
/** Of one script, so that it stops Redis for less than a millisecond. */
const MAX_TAKES_A_SCRIPT = 128;
/** Keys of one script: the oldest bucket of a full window costs half a millisecond. */
const MAX_RECOUNTS_A_SCRIPT = 4;
/** Reports must be small while takes wait. */
const MAX_LAST_KEYS = 64;
/** Of one report, so that it stops Redis for about a millisecond. */
const MAX_KEYS = 64;
const MAX_PIECES = 1_000;
/** A take that saw the counters start over asks once more. */
const MAX_ATTEMPTS = 2;
/** Recounts without an answer that are kept to be sent again. */
const MAX_UNCERTAIN = 5_000;
/** Of attends, until the connection is dropped: what is late yet would be lost with it. */
const FAILURES_A_CONNECTION = 2;
/** Clocks and expiry differ by less than this at the end of a window. */
const RECENT_MARGIN_BUCKETS = 20;

interface WaitingTake {
  readonly key: string;
  readonly limit: number;
  readonly amount: RateAmount;
  readonly window: SlidingWindow;
  attempts: number;
  resolve(decision: RateDecision): void;
  reject(error: unknown): void;
}

/** A recount that was sent. */
interface Sent {
  readonly name: string;
  readonly generation: string;
  readonly recounts: readonly Recount[];
  readonly firstSentMs: number;
}

/** Rate windows of several instances, counted in Redis; where it is gone, in each instance's own share. */
export class RedisRateWindows implements RateWindows {
  readonly #options: RedisRateWindowsOptions;
  readonly #shares: LocalShares;
  readonly #own: OwnAdmissions;
  #state: "apart" | "joining" | "joined" = "apart";
  #generation: string | undefined;
  /** A generation of which this instance saw that something is missing. */
  #lostGeneration: string | undefined;
  #lostAtMs: number | undefined;
  #admittedApartBefore = 0;
  #waiting: WaitingTake[] = [];
  /** What the counters of this generation do not know yet. */
  readonly #recounts = new Map<string, Map<number, number>>();
  /** Recounts that Redis may or may not have carried out. */
  #uncertain: Sent[] = [];
  #inFlight = 0;
  #isFlushing = false;
  #attending: Promise<void> | undefined;
  #attendsSoon = false;
  #failedAttends = 0;
  #cancelTimer: () => void = () => {};
  #isClosed = false;

  constructor(options: RedisRateWindowsOptions) {
    this.#options = options;
    this.#shares = new LocalShares({
      ...options,
      recountTold: (key, bucket, by) => this.#recount(key, bucket, by),
    });
    this.#own = this.#shares.own;
  }

  get isJoined(): boolean {
    return this.#state === "joined";
  }

  /** Admissions that were decided without Redis since the start. */
  get admittedApart(): number {
    return this.#shares.admitted;
  }

  /** Resolves when Redis was tried once. It is tried again until `close`. */
  start(): Promise<void> {
    return this.#attend();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer();
    await this.#attending;
    if (this.#state !== "joined" || this.#generation === undefined) return;
    this.#state = "apart";
    await this.#options.scripts.leave(this.#generation).catch(() => {});
  }

  /** Throws 503 where more keys than fit, or more takes than can wait, are there at once. */
  take(key: string, limit: number, amount = ONE_ADMISSION): RateDecision | Promise<RateDecision> {
    if (this.#state === "apart") return this.#takeApart(key, limit, amount);
    const window = this.#own.reserve(key);
    if (this.#waiting.length + this.#inFlight >= MAX_WAITING) throw tooManyWaiting();
    return new Promise((resolve, reject) => {
      this.#wait({ key, limit, amount, window, attempts: 0, resolve, reject });
    });
  }

  async remaining(key: string, limit: number): Promise<number> {
    if (this.#state === "joined") {
      this.#sendRecounts();
      try {
        const admitted = await this.#options.scripts.count(this.#generation!, key);
        return Math.max(0, limit - admitted);
      } catch {
        // The next take notices what is wrong with Redis.
      }
    }
    return this.#shares.remaining(key, limit);
  }

  #wait(take: WaitingTake): void {
    this.#waiting.push(take);
    this.#flushSoon();
  }

  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    // What other requests ask in this round of the event loop shares the script.
    setImmediate(() => {
      this.#isFlushing = false;
      if (this.#state !== "joining") this.#flush();
    });
  }

  #flush(): void {
    if (this.#state === "joined") this.#sendRecounts();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_TAKES_A_SCRIPT);
      if (this.#state === "joined") void this.#ask(batch);
      else for (const take of batch) this.#decideApart(take);
    }
  }

  async #ask(batch: readonly WaitingTake[]): Promise<void> {
    const { scripts, liveInstances } = this.#options;
    const generation = this.#generation!;
    this.#inFlight += batch.length;
    try {
      const answers = await scripts.take(generation, batch, liveInstances(), (late) => {
        for (const [i, take] of batch.entries()) this.#giveBack(take, late[i]!, generation);
      });
      for (const [i, take] of batch.entries()) this.#answer(take, answers[i]!, generation);
    } catch (error) {
      if (this.#generation === generation) {
        if (error instanceof CountersLost) this.#lostGeneration = generation;
        this.#part(error as Error);
      }
      for (const take of batch) this.#askAgain(take);
    } finally {
      this.#inFlight -= batch.length;
    }
  }

  #sendRecounts(): void {
    const generation = this.#generation!;
    const firstSentMs = this.#options.clock.nowMs();
    const recounts: Recount[] = [...this.#recounts];
    this.#recounts.clear();
    for (let at = 0; at < recounts.length; at += MAX_RECOUNTS_A_SCRIPT) {
      const batch = recounts.slice(at, at + MAX_RECOUNTS_A_SCRIPT);
      const name = crypto.randomUUID();
      void this.#sendRecount({ name, generation, recounts: batch, firstSentMs });
    }
  }

  async #sendRecount(sent: Sent): Promise<void> {
    const { generation, name, recounts } = sent;
    try {
      await this.#options.scripts.recount(generation, name, recounts);
    } catch {
      // Its name keeps it from being carried out twice.
      if (this.#generation !== generation || this.#uncertain.length >= MAX_UNCERTAIN) return;
      this.#uncertain.push(sent);
    }
  }

  /** What is not sent again stays counted as it was, until it leaves its window. */
  #sendUncertain(): void {
    const oldestMs = this.#options.clock.nowMs() - RESEND_MS;
    for (const sent of this.#uncertain.splice(0)) {
      if (sent.firstSentMs > oldestMs) void this.#sendRecount(sent);
    }
  }

  /** Redis counted a take that was decided otherwise meanwhile. */
  #giveBack(take: WaitingTake, answer: Answer, generation: string): void {
    this.#noticeLoss(take, answer, generation);
    if (answer.isAdmitted && this.#generation === generation) {
      this.#recount(take.key, answer.bucket, -answer.taken);
    }
  }

  /** A window that Redis does not have, into which this instance was admitted, is lost. */
  #noticeLoss({ window }: WaitingTake, { isNew }: Answer, generation: string): void {
    if (!isNew || !this.#own.hasRecent(window, RECENT_MARGIN_BUCKETS)) return;
    this.#lostGeneration = generation;
    if (this.#generation === generation) this.#part(new Error("it lost a window"));
  }

  #answer(take: WaitingTake, answer: Answer, generation: string): void {
    const { key, window } = take;
    const { isAdmitted, taken, bucket } = answer;
    this.#noticeLoss(take, answer, generation);
    let recount: RateDecision["recount"];
    if (isAdmitted) {
      const ownBucket =
        this.#generation === generation
          ? this.#own.noteTold(window, taken)
          : this.#own.noteUntold(key, window, taken);
      if (take.amount !== ONE_ADMISSION) {
        recount = recounting(taken, (by) => {
          window.change(ownBucket, by);
          if (this.#generation === generation) this.#recount(key, bucket, by);
          else this.#own.change(key, ownBucket, by);
        });
      }
    }
    take.resolve({
      isAdmitted,
      taken,
      recount,
      limit: take.limit,
      remaining: answer.remaining,
      resetMs: this.#options.clock.nowMs() + answer.resetInMs,
      retryAfterMs: answer.retryAfterMs,
    });
  }

  #recount(key: string, bucket: number, by: number): void {
    let changes = this.#recounts.get(key);
    if (changes === undefined) {
      if (this.#recounts.size >= MAX_WAITING) return;
      changes = new Map();
      this.#recounts.set(key, changes);
    }
    changes.set(bucket, (changes.get(bucket) ?? 0) + by);
    this.#flushSoon();
  }

  /** Redis failed the take. Where it is there, or is there again, it decides. */
  #askAgain(take: WaitingTake): void {
    take.attempts++;
    if (this.#state !== "apart" && take.attempts < MAX_ATTEMPTS) this.#wait(take);
    else this.#decideApart(take);
  }

  #decideApart(take: WaitingTake): void {
    try {
      take.resolve(this.#takeApart(take.key, take.limit, take.amount));
    } catch (error) {
      take.reject(error);
    }
  }

  #takeApart(key: string, limit: number, amount: RateAmount): RateDecision {
    // Of what is decided here Redis has to be told before it decides again.
    if (this.#state !== "apart") this.#part(new Error("it did not answer"));
    return this.#shares.take(key, limit, amount);
  }

  #part(reason: Error): void {
    const wasApart = this.#state === "apart";
    this.#state = "apart";
    if (this.#lostAtMs === undefined) {
      this.#lostAtMs = this.#options.clock.nowMs();
      this.#admittedApartBefore = this.admittedApart;
      this.#options.onLost(reason);
    }
    if (!wasApart) void this.#attend();
    this.#flush();
  }

  #joined(): void {
    this.#state = "joined";
    this.#shares.knowPast();
    if (this.#lostAtMs !== undefined) {
      const lostForMs = this.#options.clock.nowMs() - this.#lostAtMs;
      this.#lostAtMs = undefined;
      this.#options.onBack(lostForMs, this.admittedApart - this.#admittedApartBefore);
    }
    this.#flush();
  }

  /** One at a time; a further call waits for the one that runs. */
  #attend(): Promise<void> {
    this.#attending ??= this.#attendOnce().finally(() => {
      this.#attending = undefined;
      if (this.#isClosed) return;
      const delayMs = this.#attendsSoon
        ? ATTEND_SOON_MS
        : this.#options.windowMs / ATTENDS_A_WINDOW;
      this.#attendsSoon = false;
      this.#cancelTimer();
      this.#cancelTimer = this.#options.clock.after(delayMs, () => void this.#attend());
    });
    return this.#attending;
  }

  async #attendOnce(): Promise<void> {
    const { scripts } = this.#options;
    try {
      this.#shares.countInstances();
      const joined = this.#state === "joined" ? this.#generation : undefined;
      const lost = this.#lostGeneration;
      const generation = await scripts.attend(joined, lost);
      this.#failedAttends = 0;
      if (this.#lostGeneration === lost) this.#lostGeneration = undefined;
      if (generation !== this.#generation) {
        if (this.#state !== "apart") this.#part(new GenerationChanged("its counters started over"));
        this.#generation = generation;
        this.#own.forgetTold();
        this.#recounts.clear();
        this.#uncertain = [];
      }
      if (this.#isClosed) return;
      // Something was found missing while Redis was asked: that has to be reported first.
      if (this.#lostGeneration === generation) this.#attendsSoon = true;
      else if (this.#state === "apart") await this.#join(generation);
      else if (this.#own.untoldKeys > 0) await this.#tellNext(generation);
      if (this.#state === "joined") this.#sendUncertain();
    } catch (error) {
      this.#failed(error as Error);
    }
  }

  /** Tells Redis what it does not know, the last of it while takes wait. */
  async #join(generation: string): Promise<void> {
    while (this.#own.untoldKeys > MAX_LAST_KEYS) await this.#tellNext(generation);
    this.#state = "joining";
    do await this.#tellNext(generation, true);
    while (this.#own.untoldKeys > 0);
    // A take that failed meanwhile may have been decided apart; the next round tells of it.
    if (this.#state === "joining") this.#joined();
  }

  #failed(reason: Error): void {
    if (reason instanceof CountersLost) this.#lostGeneration = this.#generation;
    this.#attendsSoon = reason instanceof CountersLost || reason instanceof GenerationChanged;
    if (!this.#attendsSoon && ++this.#failedAttends >= FAILURES_A_CONNECTION) {
      this.#options.reconnect();
    }
    this.#part(reason);
  }

  /**
   * Tells Redis a part of what it does not know; with `takesPart` this instance takes part as soon as nothing
   * is left to tell. What could not be told stays to be told.
   */
  async #tellNext(generation: string, takesPart = false): Promise<void> {
    const own = this.#own;
    const told = own.tell(MAX_KEYS, MAX_PIECES);
    const isAll = takesPart && own.untoldKeys === 0;
    const ageMs = (bucket: number) => own.ageMs(bucket);
    try {
      const { scripts } = this.#options;
      const placeOf = await scripts.merge(generation, told, isAll, ageMs, (latePlaceOf) => {
        if (this.#generation !== generation) return;
        // It stayed to be told, and will be counted again.
        for (const { key, counts } of told) {
          for (const [bucket, count] of counts) this.#recount(key, latePlaceOf(bucket), -count);
        }
      });
      own.confirmTold(told, placeOf);
    } catch (error) {
      own.untell(told);
      throw error;
    }
  }
}

function tooManyWaiting(): GatewayError {
  return overloaded("Too many requests wait at once. Try again shortly.");
}
