import type { Clock } from "../../../lib/clock.ts";
import { type GatewayError, overloaded } from "../../../lib/errors.ts";
import {
  createRecount,
  ONE_ADMISSION,
  type RateAmount,
  type RateDecision,
  type RateWindows,
} from "../interface.ts";
import type { SlidingWindow } from "../sliding-window.ts";
import { type InstanceAdmissions, LocalShares } from "./local-shares.ts";
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
 * - apart: it decides by its share of each limit, R / n, and counts everything that it admitted
 *   within a window, with and without Redis. It starts in this state. It returns to it when a
 *   command fails or is late, when the counters have another generation, or when a window with its
 *   admissions is missing.
 * - joining: Redis answers again, and the instance reports the last of its admissions without
 *   Redis. Takes wait for that, which is short.
 * - joined: the script decides. The counters include all admissions of this instance.
 *
 * Only `#attend`, which runs twice a second and immediately after a loss, leads from apart to
 * joined.
 *
 * Why this keeps the limit R: the script leaves the share of every live instance that is not joined
 * to that instance, and gives the rest to the joined ones. So in a window without a loss, the
 * joined instances admit at most R minus those shares, and each instance that is apart admits its
 * share. In a window with a loss, an instance i had admitted a_i before it, and the sum of all a_i
 * is at most R. It ends with at most max(a_i, R / n), so all together admit less than 2 R. It does
 * not matter which instance returns first, or whether the counters are the old ones.
 */

interface RedisRateWindowsOptions {
  readonly scripts: RateScripts;
  /** A steady clock, with which the ages of admissions are measured. */
  readonly clock: Clock;
  readonly windowMs: number;
  /** Returns the ids of the live instances, including this one. Does not need Redis. */
  liveInstances(): readonly string[];
  /** Replaces a connection that does not answer. */
  reconnect(): void;
  onLost(reason: Error): void;
  onBack(lostForMs: number, admittedWithoutRedis: number): void;
}

/** Attends within a window: one each half second. */
const ATTENDS_A_WINDOW = 120;
/**
 * Milliseconds until the next attend after a loss that Redis itself reported, so that it is known
 * to answer.
 */
const ATTEND_SOON_MS = 20;
/** Takes that wait for Redis at a time, and keys that wait to be recounted. */
const MAX_WAITING = 20_000;
/** Takes in one script, so that it blocks Redis for less than a millisecond. */
const MAX_TAKES_A_SCRIPT = 128;
/** Keys in one recount. The oldest bucket of a full window costs half a millisecond. */
const MAX_RECOUNTS_A_SCRIPT = 4;
/** Unreported keys from which takes wait, because the last reports must be small. */
const MAX_LAST_KEYS = 64;
/** Keys in one report, so that it blocks Redis for about a millisecond. */
const MAX_KEYS = 64;
/** Buckets in one report. */
const MAX_PIECES = 1_000;
/** Attempts of a take. A take that saw the counters restart has a second one. */
const MAX_ATTEMPTS = 2;
/** Unanswered recounts that are kept to be sent again. */
const MAX_UNCERTAIN = 5_000;
/** Failed attends after which the connection is dropped. Late answers are lost with it. */
const FAILURES_A_CONNECTION = 2;
/** Buckets by which clocks and expiry can differ at most at the end of a window. */
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

/**
 * Rate windows of several instances, counted in Redis. If Redis is unavailable, each instance has
 * its share.
 */
export class RedisRateWindows implements RateWindows {
  readonly #options: RedisRateWindowsOptions;
  readonly #shares: LocalShares;
  readonly #admissions: InstanceAdmissions;
  #state: "apart" | "joining" | "joined" = "apart";
  #generation: string | undefined;
  /** A generation in which this instance noticed missing admissions. */
  #lostGeneration: string | undefined;
  #lostAtMs: number | undefined;
  #admittedWithoutRedisBefore = 0;
  #waiting: WaitingTake[] = [];
  /** Changes that the counters of this generation do not include yet. */
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
      recountReported: (key, bucket, by) => this.#recount(key, bucket, by),
    });
    this.#admissions = this.#shares.admissions;
  }

  get isJoined(): boolean {
    return this.#state === "joined";
  }

  /** The number of admissions that were decided without Redis since the start. */
  get admittedWithoutRedis(): number {
    return this.#shares.admitted;
  }

  /** Resolves after the first attempt to reach Redis. Further attempts follow until `close`. */
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

  /** Takes an amount or rejects. Throws 503 if too many keys are in use or too many takes wait. */
  take(key: string, limit: number, amount = ONE_ADMISSION): RateDecision | Promise<RateDecision> {
    if (this.#state === "apart") return this.#takeApart(key, limit, amount);
    const window = this.#admissions.reserve(key);
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
        // The next take handles the failure of Redis.
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
    // The takes of other requests in this turn of the event loop share the script.
    setImmediate(() => {
      this.#isFlushing = false;
      if (this.#state !== "joining") this.#flush();
    });
  }

  #flush(): void {
    if (this.#state === "joined") this.#sendRecounts();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_TAKES_A_SCRIPT);
      if (this.#state === "joined") void this.#send(batch);
      else for (const take of batch) this.#decideApart(take);
    }
  }

  async #send(batch: readonly WaitingTake[]): Promise<void> {
    const { scripts, liveInstances } = this.#options;
    const generation = this.#generation!;
    this.#inFlight += batch.length;
    try {
      const answers = await scripts.take(generation, batch, liveInstances(), (late) => {
        for (const [i, take] of batch.entries()) this.#reverse(take, late[i]!, generation);
      });
      for (const [i, take] of batch.entries()) this.#answer(take, answers[i]!, generation);
    } catch (error) {
      if (this.#generation === generation) {
        if (error instanceof CountersLost) this.#lostGeneration = generation;
        this.#part(error as Error);
      }
      for (const take of batch) this.#retry(take);
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
      // The name of the recount keeps it from being executed twice.
      if (this.#generation !== generation || this.#uncertain.length >= MAX_UNCERTAIN) return;
      this.#uncertain.push(sent);
    }
  }

  /**
   * Sends unanswered recounts again. Without its recount an admission keeps its amount until it
   * leaves the window.
   */
  #sendUncertain(): void {
    const oldestMs = this.#options.clock.nowMs() - RESEND_MS;
    for (const sent of this.#uncertain.splice(0)) {
      if (sent.firstSentMs > oldestMs) void this.#sendRecount(sent);
    }
  }

  /** Reverses a take that Redis counted late, after it was decided without Redis. */
  #reverse(take: WaitingTake, answer: Answer, generation: string): void {
    this.#noticeLoss(take, answer, generation);
    if (answer.isAdmitted && this.#generation === generation) {
      this.#recount(take.key, answer.bucket, -answer.admittedAmount);
    }
  }

  /**
   * Detects a lost window: Redis does not have it, although it has counted recent admissions of
   * this instance in it.
   */
  #noticeLoss({ window }: WaitingTake, { isNew }: Answer, generation: string): void {
    if (!isNew || !this.#admissions.hasRecent(window, RECENT_MARGIN_BUCKETS)) return;
    this.#lostGeneration = generation;
    if (this.#generation === generation) this.#part(new Error("it lost a window"));
  }

  #answer(take: WaitingTake, answer: Answer, generation: string): void {
    const { key, window } = take;
    const { isAdmitted, admittedAmount, bucket } = answer;
    this.#noticeLoss(take, answer, generation);
    let recount: RateDecision["recount"];
    if (isAdmitted) {
      const localBucket =
        this.#generation === generation
          ? this.#admissions.recordReported(window, admittedAmount)
          : this.#admissions.recordUnreported(key, window, admittedAmount);
      if (take.amount !== ONE_ADMISSION) {
        recount = createRecount(admittedAmount, (by) => {
          window.change(localBucket, by);
          if (this.#generation === generation) this.#recount(key, bucket, by);
          else this.#admissions.change(key, localBucket, by);
        });
      }
    }
    take.resolve({
      isAdmitted,
      admittedAmount,
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

  /**
   * Repeats a take that Redis failed if Redis is available again. Otherwise decides it without
   * Redis.
   */
  #retry(take: WaitingTake): void {
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
    // Redis needs a report of local decisions before it decides again.
    if (this.#state !== "apart") this.#part(new Error("it did not answer"));
    return this.#shares.take(key, limit, amount);
  }

  #part(reason: Error): void {
    const wasApart = this.#state === "apart";
    this.#state = "apart";
    if (this.#lostAtMs === undefined) {
      this.#lostAtMs = this.#options.clock.nowMs();
      this.#admittedWithoutRedisBefore = this.admittedWithoutRedis;
      this.#options.onLost(reason);
    }
    if (!wasApart) void this.#attend();
    this.#flush();
  }

  #joined(): void {
    this.#state = "joined";
    this.#shares.endInitialWait();
    if (this.#lostAtMs !== undefined) {
      const lostForMs = this.#options.clock.nowMs() - this.#lostAtMs;
      this.#lostAtMs = undefined;
      this.#options.onBack(lostForMs, this.admittedWithoutRedis - this.#admittedWithoutRedisBefore);
    }
    this.#flush();
  }

  /** Attends. Only one attend runs at a time, and a further call waits for it. */
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
      const joinedGeneration = this.#state === "joined" ? this.#generation : undefined;
      const lostGeneration = this.#lostGeneration;
      const generation = await scripts.attend(joinedGeneration, lostGeneration);
      this.#failedAttends = 0;
      if (this.#lostGeneration === lostGeneration) this.#lostGeneration = undefined;
      if (generation !== this.#generation) {
        if (this.#state !== "apart") this.#part(new GenerationChanged("its counters restarted"));
        this.#generation = generation;
        this.#admissions.markAllUnreported();
        this.#recounts.clear();
        this.#uncertain = [];
      }
      if (this.#isClosed) return;
      // Missing admissions were noticed during the attend. They have to be reported first.
      if (this.#lostGeneration === generation) this.#attendsSoon = true;
      else if (this.#state === "apart") await this.#join(generation);
      else if (this.#admissions.unreportedKeys > 0) await this.#reportNext(generation);
      if (this.#state === "joined") this.#sendUncertain();
    } catch (error) {
      this.#failed(error as Error);
    }
  }

  /** Reports everything unreported to Redis, the last of it while takes wait. */
  async #join(generation: string): Promise<void> {
    while (this.#admissions.unreportedKeys > MAX_LAST_KEYS) await this.#reportNext(generation);
    this.#state = "joining";
    do await this.#reportNext(generation, true);
    while (this.#admissions.unreportedKeys > 0);
    // A take that failed in the meantime may have been decided without Redis. The next round
    // reports it.
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
   * Sends one report to Redis. With `takesPart` this instance is joined as soon as nothing is
   * unreported. A report that fails stays unreported.
   */
  async #reportNext(generation: string, takesPart = false): Promise<void> {
    const admissions = this.#admissions;
    const report = admissions.takeReport(MAX_KEYS, MAX_PIECES);
    const isAll = takesPart && admissions.unreportedKeys === 0;
    const ageMs = (bucket: number) => admissions.ageMs(bucket);
    try {
      const { scripts } = this.#options;
      const redisBucketOf = await scripts.merge(
        generation,
        report,
        isAll,
        ageMs,
        (lateRedisBucketOf) => {
          if (this.#generation !== generation) return;
          // The report stayed unreported and will be counted again, so its late execution is
          // reversed.
          for (const { key, counts } of report) {
            for (const [bucket, count] of counts)
              this.#recount(key, lateRedisBucketOf(bucket), -count);
          }
        },
      );
      admissions.confirmReport(report, redisBucketOf);
    } catch (error) {
      admissions.cancelReport(report);
      throw error;
    }
  }
}

function tooManyWaiting(): GatewayError {
  return overloaded("Too many requests are waiting. Try again shortly.");
}
