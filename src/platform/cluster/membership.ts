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
  /**
   * A dedicated session, in which no other query delays the heartbeats. It holds the gateway lock.
   */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly deploymentMode: DeploymentMode;
  readonly changeFeed: ChangeFeed;
  /** The lease of this instance, which the heartbeats renew. */
  readonly lease: InstanceLease;
  /**
   * Replaces the connection if it was opened at least `minAgeMs` ago. Its running statements then
   * reject. A connection that is still being opened keeps its own timeout.
   */
  reconnect(minAgeMs: number): void;
  /**
   * Called when a heartbeat was so late that others may have declared this instance dead. If it
   * rejects, the next heartbeat calls it again.
   */
  onLateHeartbeat(): Promise<void>;
  /**
   * Called when another instance is silent, or has died and left work to settle. Called only if
   * this instance can judge that.
   */
  onOrphanedWork(): void;
  /** Called when this instance was declared dead and must stop. */
  onFenced(): void;
  onError(error: unknown): void;
}

const HEARTBEAT_MS = 250;
/**
 * Milliseconds between heartbeats of a single-node gateway without requests, whose heartbeats no
 * other instance awaits. Below MAX_NEWS_AGE_MS, so that its next request does not wait.
 */
const IDLE_HEARTBEAT_MS = 750;
/** Milliseconds without a request after which a gateway is idle. */
const IDLE_AFTER_MS = 5_000;
/**
 * Milliseconds after which a heartbeat counts as lost in the network, or as too late: requests wait
 * for less. With the next heartbeats, requests are admitted again within 2 s after the network is
 * back.
 */
const MAX_BEAT_MS = 1_200;
/**
 * Milliseconds without a heartbeat after which no request is admitted. A key that was switched off
 * could otherwise be admitted.
 */
const MAX_NEWS_AGE_MS = 1_000;
/**
 * Milliseconds that a request waits for a heartbeat before it fails with "database unavailable".
 */
const MAX_WAIT_FOR_NEWS_MS = 900;
/** Requests that wait for a heartbeat at a time. Further requests fail immediately. */
export const MAX_WAITING_REQUESTS = 20_000;

/**
 * The membership of this instance in the cluster: its heartbeats, and the live instances that they
 * report.
 */
export class ClusterMembership {
  readonly lease: InstanceLease;
  readonly #dependencies: ClusterMembershipDependencies;
  #liveIds: readonly string[];
  #freshAtMs = Number.NEGATIVE_INFINITY;
  #requestedAtMs = Number.NEGATIVE_INFINITY;
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

  /** Leaves the cluster. Rejects if the database could not record it. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#dependencies.changeFeed.stop();
    await leave(this.#dependencies.sql, this.#dependencies.instance);
  }

  get isFresh(): boolean {
    return performance.now() - this.#freshAtMs <= MAX_NEWS_AGE_MS;
  }

  /** Returns the ids of the instances that were alive at the last heartbeat, including this one. */
  liveInstances(): readonly string[] {
    return this.#liveIds;
  }

  /** Returns the number of instances that share the work, and the index of this one among them. */
  peers(): { readonly count: number; readonly rank: number } {
    const rank = this.#liveIds.indexOf(this.#dependencies.instance.id);
    return { count: this.#liveIds.length, rank };
  }

  /**
   * Returns undefined while it is certain that no other instance has declared this one dead, or else
   * a promise that resolves when it is certain again. A single-node gateway is never declared dead.
   */
  whenCurrent(): Promise<void> | undefined {
    return this.#dependencies.deploymentMode === "single-node"
      ? undefined
      : this.lease.whenCurrent();
  }

  /**
   * Returns undefined if requests can be admitted, or else a promise that resolves when they can.
   * Rejects with 503 if no heartbeat succeeds in time or too many requests wait.
   */
  whenFresh(): Promise<void> | undefined {
    const nowMs = performance.now();
    this.#requestedAtMs = nowMs;
    if (nowMs - this.#freshAtMs <= MAX_NEWS_AGE_MS) return undefined;
    if (this.#waiting.size >= MAX_WAITING_REQUESTS) return Promise.reject(databaseUnavailable());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(resume);
        reject(databaseUnavailable());
      }, MAX_WAIT_FOR_NEWS_MS);
      const resume = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#waiting.add(resume);
    });
  }

  /** Requests that wait for a heartbeat. */
  get waitingRequests(): number {
    return this.#waiting.size;
  }

  #schedule(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(async () => {
      await this.#beat();
      this.#schedule();
    }, this.#intervalMs());
  }

  #intervalMs(): number {
    const isIdle =
      this.#dependencies.deploymentMode === "single-node" &&
      this.isFresh &&
      performance.now() - this.#requestedAtMs > IDLE_AFTER_MS;
    return isIdle ? IDLE_HEARTBEAT_MS : HEARTBEAT_MS;
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
      if (beganMs - this.#freshAtMs > MAX_NEWS_AGE_MS * 5) changeFeed.reportGap();
      changeFeed.report(changes);
      this.#freshAtMs = beganMs;
      const waiting = [...this.#waiting];
      this.#waiting.clear();
      for (const resume of waiting) resume();
      if (pulse.hasOrphanedWork && this.lease.mayJudgeOthers) this.#dependencies.onOrphanedWork();
    } catch (error) {
      this.lease.interrupt();
      if (!this.#isStopped) onError(error);
    } finally {
      endWatch();
    }
  }

  /**
   * Reconnects if the heartbeat takes too long, and repeats that until the returned function is
   * called.
   */
  #watch(): () => void {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (delayMs: number): void => {
      const dueMs = performance.now() + delayMs;
      timer = setTimeout(() => {
        // A process that was blocked has not read yet the answers that may have arrived.
        const wasBlocked = performance.now() - dueMs > HEARTBEAT_MS;
        if (!wasBlocked) this.#dependencies.reconnect(MAX_BEAT_MS);
        // Random, so that instances that lost the database together do not all reconnect at the
        // same time.
        wait(wasBlocked ? MAX_BEAT_MS : MAX_BEAT_MS * (0.75 + Math.random() / 2));
      }, delayMs);
    };
    wait(MAX_BEAT_MS);
    return () => clearTimeout(timer);
  }
}

function databaseUnavailable(): GatewayError {
  return new GatewayError(
    "database_unavailable",
    "The gateway's database cannot be reached at the moment.",
    { retryAfterSeconds: 1 },
  );
}

/** Milliseconds between two heartbeats above which some were missed, or one was blocked. */
const MAX_STEADY_GAP_MS = 1_000;

/**
 * The lease of this instance, by its monotonic clock. A heartbeat counts from its start, which is
 * never later than the time that the database has recorded. No instance declares this one dead
 * while the lease lasts.
 */
export class InstanceLease {
  readonly #nowMs: () => number;
  readonly #threadAgeMs: () => number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #steadySinceMs = Number.POSITIVE_INFINITY;
  #waiting: (() => void)[] = [];

  /**
   * @param threadAgeMs returns the milliseconds since the last heartbeat of the heartbeat thread began; infinite without
   *   a thread
   */
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

  /**
   * Returns undefined while the lease lasts, or else a promise that resolves when it lasts again.
   */
  whenCurrent(): Promise<void> | undefined {
    if (this.isCurrent) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * True if the database was reachable for a whole lease without a pause, so that each live
   * instance has sent a heartbeat. Before that, an outage would look like the death of all
   * instances.
   */
  get mayJudgeOthers(): boolean {
    return this.isCurrent && this.#nowMs() - this.#steadySinceMs >= INSTANCE_LEASE_MS;
  }

  /** Renews the lease after the answer to a heartbeat that began at `beganMs`. */
  renew(beganMs: number): void {
    const endedMs = this.#nowMs();
    const isPause = endedMs - this.#beganMs > MAX_STEADY_GAP_MS;
    if (isPause || !Number.isFinite(this.#steadySinceMs)) this.#steadySinceMs = endedMs;
    this.#beganMs = beganMs;
    if (this.isCurrent) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Records that a heartbeat failed. */
  interrupt(): void {
    this.#steadySinceMs = Number.POSITIVE_INFINITY;
  }
}
