import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  type DeploymentMode,
  heartbeat,
  INSTANCE_LEASE_MS,
  keepGatewayLock,
  leave,
} from "../../../db/queries/instances.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ChangeFeed } from "./change-feed.ts";

interface ClusterMembershipDependencies {
  /** A session of its own, behind no other query; it holds the lock of the gateway. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly deploymentMode: DeploymentMode;
  readonly changeFeed: ChangeFeed;
  /** Renewed by the heartbeats here. */
  readonly lease: OwnLease;
  /**
   * Replaces the connection, so that the statements under way on it reject, if it has stood for `minAgeMs`
   * without an answer. One that is still being opened keeps its own timeout.
   */
  reconnect(minAgeMs: number): void;
  /** News may have been missed: nothing in memory can be trusted. */
  onGap(): void;
  /** A heartbeat came so late that others may have acted on it. What it rejects with is tried again. */
  onLateHeartbeat(): Promise<void>;
  /** Another instance is silent, or has died and left something to settle. Only where that can be told. */
  onOrphanedWork(): void;
  /** This instance was declared dead and must stop. */
  onFenced(): void;
  onError(error: unknown): void;
}

const HEARTBEAT_MS = 250;
/**
 * A heartbeat that takes longer was swallowed on its way, or comes too late to be of use: requests wait
 * for less. With the beats that follow, requests are admitted again within 2 s of the network's return.
 */
const MAX_BEAT_MS = 1_200;
/** Without news for longer than this, a key that was switched off could still be admitted: nothing is. */
const MAX_NEWS_AGE_MS = 1_000;
/** How long a request waits for a heartbeat before it fails with "database unavailable". */
const MAX_WAIT_FOR_NEWS_MS = 900;
/** Requests that wait for a heartbeat at a time; further ones fail at once. */
export const MAX_WAITING_REQUESTS = 20_000;

/** This instance's life in the database: heartbeats, and what they tell of the others. */
export class ClusterMembership {
  readonly lease: OwnLease;
  readonly #dependencies: ClusterMembershipDependencies;
  #liveIds: readonly string[];
  #freshAtMs = Number.NEGATIVE_INFINITY;
  readonly #waiting = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  constructor(dependencies: ClusterMembershipDependencies) {
    this.#dependencies = dependencies;
    this.lease = dependencies.lease;
    this.#liveIds = [dependencies.instance.id];
  }

  async start(): Promise<void> {
    this.#dependencies.changeFeed.start();
    await this.#beat();
    this.#schedule();
  }

  /** Rejects where the database could not be told. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#dependencies.changeFeed.stop();
    await leave(this.#dependencies.sql, this.#dependencies.instance);
  }

  get isFresh(): boolean {
    return performance.now() - this.#freshAtMs <= MAX_NEWS_AGE_MS;
  }

  /** The instances that were alive at the last heartbeat, this one among them. */
  liveInstances(): readonly string[] {
    return this.#liveIds;
  }

  /** How many share the work, and this one's place among them. */
  peers(): { readonly count: number; readonly rank: number } {
    const rank = this.#liveIds.indexOf(this.#dependencies.instance.id);
    return { count: this.#liveIds.length, rank };
  }

  /**
   * Undefined while no instance can have declared this one dead; else resolves when that is certain
   * again. A single-node gateway is declared dead by none.
   */
  whenCurrent(): Promise<void> | undefined {
    return this.#dependencies.deploymentMode === "single-node"
      ? undefined
      : this.lease.whenCurrent();
  }

  /** Undefined where requests may be admitted; else a promise of it. Rejects with 503. */
  whenFresh(): Promise<void> | undefined {
    if (this.isFresh) return undefined;
    if (this.#waiting.size >= MAX_WAITING_REQUESTS) return Promise.reject(outOfReach());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(goOn);
        reject(outOfReach());
      }, MAX_WAIT_FOR_NEWS_MS);
      const goOn = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#waiting.add(goOn);
    });
  }

  /** Requests that wait for news. */
  get waitingRequests(): number {
    return this.#waiting.size;
  }

  #schedule(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(async () => {
      await this.#beat();
      this.#schedule();
    }, HEARTBEAT_MS);
  }

  async #beat(): Promise<void> {
    const { sql, instance, deploymentMode, changeFeed, onFenced, onError } = this.#dependencies;
    const beganMs = performance.now();
    const endWatch = this.#watch();
    try {
      const [pulse, isLocked, changes] = await Promise.all([
        heartbeat(sql, instance),
        keepGatewayLock(sql, deploymentMode),
        changeFeed.recent(),
      ]);
      if (!pulse.isAlive || !isLocked) return onFenced();
      this.#liveIds = pulse.liveIds;
      if (!this.lease.isCurrent) await this.#dependencies.onLateHeartbeat();
      this.lease.renew(beganMs);
      if (beganMs - this.#freshAtMs > MAX_NEWS_AGE_MS * 5) this.#dependencies.onGap();
      changeFeed.tell(changes);
      this.#freshAtMs = beganMs;
      const waiting = [...this.#waiting];
      this.#waiting.clear();
      for (const goOn of waiting) goOn();
      if (pulse.hasOrphanedWork && this.lease.mayJudgeOthers) this.#dependencies.onOrphanedWork();
    } catch (error) {
      this.lease.interrupt();
      if (!this.#isStopped) onError(error);
    } finally {
      endWatch();
    }
  }

  /** Reconnects if the beat takes too long, and again while it goes on. The returned function ends that. */
  #watch(): () => void {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (delayMs: number): void => {
      const dueMs = performance.now() + delayMs;
      timer = setTimeout(() => {
        // A process that stood still has not read yet what may have come.
        const stoodStill = performance.now() - dueMs > HEARTBEAT_MS;
        if (!stoodStill) this.#dependencies.reconnect(MAX_BEAT_MS);
        // Instances that lost their database together do not all try again together.
        wait(stoodStill ? MAX_BEAT_MS : MAX_BEAT_MS * (0.75 + Math.random() / 2));
      }, delayMs);
    };
    wait(MAX_BEAT_MS);
    return () => clearTimeout(timer);
  }
}

function outOfReach(): GatewayError {
  return new GatewayError(
    "database_unavailable",
    "The gateway's database cannot be reached at the moment.",
    { retryAfterSeconds: 1 },
  );
}

/** Some heartbeats were missed, or one hung. */
const MAX_STEADY_GAP_MS = 1_000;

/**
 * This instance's own lease, by its monotonic clock. A heartbeat counts from the moment at which it was
 * begun, which is never later than the moment that the database noted: while this lease lasts, no instance
 * declares this one dead.
 */
export class OwnLease {
  readonly #nowMs: () => number;
  readonly #threadAgeMs: () => number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #steadySinceMs = Number.POSITIVE_INFINITY;
  #waiting: (() => void)[] = [];

  /** `threadAgeMs`: how long ago the last heartbeat of the heartbeat thread began, where there is one. */
  constructor(
    nowMs: () => number = () => performance.now(),
    threadAgeMs: () => number = () => Number.POSITIVE_INFINITY,
  ) {
    this.#nowMs = nowMs;
    this.#threadAgeMs = threadAgeMs;
  }

  get isCurrent(): boolean {
    if (this.#nowMs() - this.#beganMs < INSTANCE_LEASE_MS) return true;
    return this.#threadAgeMs() < INSTANCE_LEASE_MS;
  }

  /** Undefined while the lease lasts; else resolves when it does again. */
  whenCurrent(): Promise<void> | undefined {
    if (this.isCurrent) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * True if the database was in reach for a whole lease without a pause, so that each live instance sent
   * a heartbeat in it: before that an outage would look like the death of all.
   */
  get mayJudgeOthers(): boolean {
    return this.isCurrent && this.#nowMs() - this.#steadySinceMs >= INSTANCE_LEASE_MS;
  }

  /** A heartbeat that began at `beganMs` was answered. */
  renew(beganMs: number): void {
    const endedMs = this.#nowMs();
    const isPause = endedMs - this.#beganMs > MAX_STEADY_GAP_MS;
    if (isPause || !Number.isFinite(this.#steadySinceMs)) this.#steadySinceMs = endedMs;
    this.#beganMs = beganMs;
    if (this.isCurrent) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** A heartbeat failed. */
  interrupt(): void {
    this.#steadySinceMs = Number.POSITIVE_INFINITY;
  }
}
