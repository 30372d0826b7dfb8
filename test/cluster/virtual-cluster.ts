import type { Redis } from "ioredis";
import { VirtualClock } from "../../src/lib/clock.ts";
import { RateScripts } from "../../src/platform/cluster/redis/rate-scripts.ts";
import { RedisRateWindows } from "../../src/platform/cluster/redis/rate-windows.ts";
import type { Admission } from "./admissions.ts";

const WINDOW_MS = 60_000;
const TICK_MS = 500;

/** Scripts behind a network that can be cut for one instance, or too slow for its answers. */
class CuttableScripts extends RateScripts {
  isCut = false;
  /** Of the next commands that are carried out, how many have answers that come late. */
  late = 0;
  /** Called as often as one is late. */
  noteLate = (): void => {};
  /** Hands out the answers that are late. */
  readonly lateAnswers: (() => void)[] = [];
  /** Until it resolves, answers to takes are on their way. */
  delay: Promise<void> | undefined;

  override attend(known: string | undefined, lost: string | undefined): Promise<string> {
    return this.isCut ? Promise.reject(new Error("cut")) : super.attend(known, lost);
  }

  override async take(...args: Parameters<RateScripts["take"]>) {
    if (this.isCut) throw new Error("cut");
    const answers = await super.take(...args);
    await this.delay;
    return this.#inTime(answers, args[3]);
  }

  override async merge(...args: Parameters<RateScripts["merge"]>) {
    if (this.isCut) throw new Error("cut");
    return this.#inTime(await super.merge(...args), args[4]);
  }

  override async recount(...args: Parameters<RateScripts["recount"]>) {
    await super.recount(...args);
    this.#inTime(undefined, () => {});
  }

  #inTime<Answer>(answer: Answer, onLate: (answer: Answer) => void): Answer {
    if (this.late === 0) return answer;
    this.late--;
    this.noteLate();
    this.lateAnswers.push(() => onLate(answer));
    throw new Error("late");
  }
}

interface VirtualInstance {
  readonly windows: RedisRateWindows;
  readonly scripts: CuttableScripts;
}

/** Instances on a real Redis whose time, like theirs, is moved by hand. */
export class VirtualCluster {
  readonly admissions: Admission[] = [];
  readonly #redis: Redis;
  readonly #keyPrefix: string;
  readonly #clock = new VirtualClock();
  readonly #instances: VirtualInstance[] = [];
  #live = 0;
  /** How far Redis's clock was set. */
  #redisAheadMs = 0;

  constructor(redis: Redis, keyPrefix: string) {
    this.#redis = redis;
    this.#keyPrefix = keyPrefix;
  }

  get nowMs(): number {
    return this.#clock.nowMs();
  }

  get isAllJoined(): boolean {
    return this.#instances.every(({ windows }) => windows.isJoined);
  }

  instance(i: number): RedisRateWindows {
    return this.#instances[i]!.windows;
  }

  async start(instances: number): Promise<void> {
    await this.#tellRedis();
    this.#live = instances;
    for (let i = 0; i < instances; i++) await this.add(false);
  }

  /** Starts a further instance, of which the others may not have heard yet; returns its number. */
  async add(isCut: boolean, isKnown = true): Promise<number> {
    const number = this.#instances.length;
    if (isKnown) this.#live = Math.max(this.#live, number + 1);
    // Nothing happens by itself: `advance` lets each instance attend when its time has come.
    const clock = { nowMs: () => this.#clock.nowMs(), after: () => () => {} };
    const scripts = new CuttableScripts({
      redis: this.#redis,
      clock,
      instanceId: `ins_${number}`,
      keyPrefix: this.#keyPrefix,
      windowMs: WINDOW_MS,
      clockKey: `${this.#keyPrefix}clock`,
    });
    scripts.isCut = isCut;
    const windows = new RedisRateWindows({
      scripts,
      clock,
      windowMs: WINDOW_MS,
      liveInstances: () => Array.from({ length: this.#live }, (_, i) => `ins_${i}`),
      reconnect: () => {},
      onLost: () => {},
      onBack: () => {},
    });
    await windows.start();
    this.#instances.push({ windows, scripts });
    return number;
  }

  async advance(byMs: number): Promise<void> {
    let leftMs = byMs;
    while (leftMs > 0) {
      const stepMs = Math.min(leftMs, TICK_MS);
      leftMs -= stepMs;
      this.#clock.advance(stepMs);
      await this.#tellRedis();
      if (stepMs === TICK_MS) await this.attend();
    }
  }

  async attend(): Promise<void> {
    for (const { windows } of this.#instances) await windows.start();
  }

  async take(i: number, limit: number): Promise<boolean> {
    const { isAdmitted } = await this.#instances[i]!.windows.take("key", limit);
    const nowMs = this.nowMs;
    if (isAdmitted) this.admissions.push({ instance: i, askedMs: nowMs, answeredMs: nowMs });
    return isAdmitted;
  }

  /** An amount that can be recounted, which is noted as what it counts for at last; undefined where it is refused. */
  async takeAmount(i: number, limit: number, full: number) {
    const amount = { full, reduced: full, least: full };
    const { admittedAmount: taken, recount } = await this.#instances[i]!.windows.take(
      "key",
      limit,
      amount,
    );
    if (recount === undefined) return undefined;
    const nowMs = this.nowMs;
    const admission = { instance: i, askedMs: nowMs, answeredMs: nowMs, amount: taken };
    this.admissions.push(admission);
    return {
      recount(to: number) {
        admission.amount = to;
        recount(to);
      },
    };
  }

  /** It ends in order; the others have not heard of that. */
  stop(i: number): Promise<void> {
    return this.#instances[i]!.windows.close();
  }

  cut(i: number, isCut: boolean): void {
    this.#instances[i]!.scripts.isCut = isCut;
  }

  /** What the instance asks next is carried out, and answered late: when `handOutLate` is called. */
  makeLate(i: number, commands: number, noteLate = (): void => {}): void {
    Object.assign(this.#instances[i]!.scripts, { late: commands, noteLate });
  }

  handOutLate(): void {
    for (const { scripts } of this.#instances) {
      scripts.late = 0;
      for (const handOut of scripts.lateAnswers.splice(0)) handOut();
    }
  }

  /** Holds up the answers to takes of the instance; returns the way to let them through. */
  delay(i: number): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#instances[i]!.scripts.delay = promise;
    return resolve;
  }

  /** As a Redis that was restarted, or that evicted: everything but the clock is gone, or what is named. */
  async lose(pattern = "rate*"): Promise<number> {
    const keys = await this.#keys(pattern);
    return keys.length === 0 ? 0 : await this.#redis.del(...keys);
  }

  async count(pattern: string): Promise<number> {
    return (await this.#keys(pattern)).length;
  }

  async setRedisClock(byMs: number): Promise<void> {
    this.#redisAheadMs += byMs;
    await this.#tellRedis();
  }

  async clear(): Promise<void> {
    await Promise.all(this.#instances.map(({ windows }) => windows.close()));
    await this.lose("*");
  }

  #keys(pattern: string): Promise<string[]> {
    return this.#redis.keys(`${this.#keyPrefix}${pattern}`);
  }

  async #tellRedis(): Promise<void> {
    await this.#redis.set(`${this.#keyPrefix}clock`, this.nowMs + this.#redisAheadMs);
  }
}
