import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { claimLeases, type Lease, leasesOf, releaseLeases } from "../../db/queries/actor-leases.ts";
import type { Clock } from "../../src/lib/clock.ts";

export { guardLease, type Lease, LeaseLostError } from "../../db/queries/actor-leases.ts";

/**
 * The owner of an actor that can have only one owner, such as a webhook or a job. A lease is
 *
 * - free: no instance has it, or its instance was declared dead, has left, or has sent no heartbeat within its
 *   lease, by the clock of the database;
 * - held: `claim` returned it. It remains held until it is released, while this instance sends heartbeats, which
 *   cover all its leases;
 * - lost: another instance claimed it after this one sent no heartbeat for too long. The owner stops, and
 *   `guardLease` rejects its further writes.
 *
 * A new owner always has a higher epoch than the previous one.
 */
export interface Ownership {
  /** Claims leases. Returns those that no live instance owns, or that this instance already owns. */
  claim(kind: string, ids: readonly string[]): Promise<Lease[]>;
  /** Releases leases. Call it when no more work is done under these leases. */
  release(leases: readonly Lease[]): Promise<void>;
  /**
   * Returns false if this instance can be past its own lease (by the age of its last heartbeat on its monotonic
   * clock), or has lost this lease. Stop the work under the lease then. The result can become true again if no
   * other instance has claimed the lease in the meantime.
   */
  isHeld(lease: Lease): boolean;
  /** Reports a LeaseLostError. Listeners are notified immediately. */
  noteLost(lease: Lease): void;
  /**
   * Calls the listener for each lost lease. Returns a function that removes the listener. Listeners must not
   * throw.
   */
  onLost(listener: (lease: Lease) => void): () => void;
}

interface PostgresOwnershipDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly instanceLease: {
    /** False if this instance can be past its own lease. */
    readonly isCurrent: boolean;
    /**
     * False if the heartbeats of other instances are unreliable because the database was out of reach. Only
     * instances that were declared dead count as dead then.
     */
    readonly mayJudgeOthers: boolean;
  };
}

/** Most leases that one statement claims or releases. */
const MAX_LEASES_A_STATEMENT = 1_000;

/** Leases as rows of `actor_leases`. The cost of holding ten thousand of them is one heartbeat. */
export class PostgresOwnership implements Ownership {
  readonly #dependencies: PostgresOwnershipDependencies;
  readonly #held = new Map<string, Lease>();
  /** Number of claims in progress, by lease name. */
  readonly #claiming = new Map<string, number>();
  readonly #listeners = new Set<(lease: Lease) => void>();
  #toRelease: Lease[] = [];
  #nextRelease: Promise<void> | undefined;
  #lastRelease: Promise<void> = Promise.resolve();

  constructor(dependencies: PostgresOwnershipDependencies) {
    this.#dependencies = dependencies;
  }

  get size(): number {
    return this.#held.size;
  }

  async claim(kind: string, ids: readonly string[]): Promise<Lease[]> {
    const leases: Lease[] = [];
    const wanted: string[] = [];
    for (const id of new Set(ids)) {
      const held = this.#held.get(nameOf(kind, id));
      if (held === undefined) wanted.push(id);
      else if (this.isHeld(held)) leases.push(held);
    }
    for (const part of partsOf(wanted)) leases.push(...(await this.#claimPart(kind, part)));
    return leases;
  }

  async #claimPart(kind: string, ids: readonly string[]): Promise<Lease[]> {
    const { sql, instance, instanceLease } = this.#dependencies;
    const names = ids.map((id) => nameOf(kind, id));
    for (const name of names) this.#claiming.set(name, (this.#claiming.get(name) ?? 0) + 1);
    try {
      const claimed = await claimLeases(sql, instance, kind, ids, instanceLease.mayJudgeOthers);
      for (const lease of claimed) this.#record(lease);
      return claimed.filter((lease) => this.#isCurrent(lease));
    } finally {
      for (const name of names) this.#endClaim(name);
    }
  }

  /** Records a claimed lease. If the answers of two concurrent claims cross, the later claim counts. */
  #record(lease: Lease): void {
    const name = nameOf(lease.kind, lease.id);
    const before = this.#held.get(name);
    if (before !== undefined && before.epoch > lease.epoch) return;
    this.#held.set(name, lease);
    if (before !== undefined) this.#notifyLost(before);
  }

  #endClaim(name: string): void {
    const left = this.#claiming.get(name)! - 1;
    if (left > 0) this.#claiming.set(name, left);
    else this.#claiming.delete(name);
  }

  /** Leases that are released during a statement share the next statement. */
  release(leases: readonly Lease[]): Promise<void> {
    for (const lease of leases) this.#drop(lease);
    this.#toRelease.push(...leases);
    this.#nextRelease ??= this.#lastRelease.then(() => {
      const all = this.#toRelease;
      this.#toRelease = [];
      const release = this.#releaseNow(all);
      this.#lastRelease = release.catch(() => {});
      this.#nextRelease = undefined;
      return release;
    });
    return this.#nextRelease;
  }

  async #releaseNow(leases: readonly Lease[]): Promise<void> {
    const { sql, instance } = this.#dependencies;
    for (const part of partsOf(leases)) await releaseLeases(sql, instance, part);
  }

  isHeld(lease: Lease): boolean {
    return this.#isCurrent(lease) && this.#dependencies.instanceLease.isCurrent;
  }

  noteLost(lease: Lease): void {
    if (this.#drop(lease)) this.#notifyLost(lease);
  }

  onLost(listener: (lease: Lease) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Compares the held leases with the table. It is called after a gap in the heartbeats, in which other instances
   * may have claimed leases, and periodically because of broken connections. If the answer to a claim was lost,
   * this instance owns a lease without knowing: it is released.
   */
  async verify(): Promise<void> {
    const { sql, instance } = this.#dependencies;
    const leases = [...this.#held.values()];
    const written = await leasesOf(sql, instance);
    const epochs = new Map(written.map((lease) => [nameOf(lease.kind, lease.id), lease.epoch]));
    for (const lease of leases) {
      if (epochs.get(nameOf(lease.kind, lease.id)) !== lease.epoch) this.noteLost(lease);
    }
    const unknown = written.filter(({ kind, id }) => {
      const name = nameOf(kind, id);
      return !this.#held.has(name) && !this.#claiming.has(name);
    });
    if (unknown.length > 0) await this.release(unknown);
  }

  /** Releases all leases at an orderly stop, so that no instance has to wait for their end. */
  async releaseAll(): Promise<void> {
    await this.release([...this.#held.values()]);
  }

  #isCurrent(lease: Lease): boolean {
    return this.#held.get(nameOf(lease.kind, lease.id))?.epoch === lease.epoch;
  }

  #drop(lease: Lease): boolean {
    return this.#isCurrent(lease) && this.#held.delete(nameOf(lease.kind, lease.id));
  }

  #notifyLost(lease: Lease): void {
    for (const listener of this.#listeners) listener(lease);
  }
}

function nameOf(kind: string, id: string): string {
  return `${kind} ${id}`;
}

function* partsOf<Item>(items: readonly Item[]): Iterable<readonly Item[]> {
  for (let first = 0; first < items.length; first += MAX_LEASES_A_STATEMENT) {
    yield items.slice(first, first + MAX_LEASES_A_STATEMENT);
  }
}

/** A kind of owned actors, for UnownedWork. */
export interface OwnedKind {
  readonly kind: string;
  /**
   * Returns at most `limit` ids of actors that have work now and no live owner (view `owned_actors`), longest
   * wait first. A map also states their organizations, which `start` receives.
   */
  findWork(limit: number): Promise<readonly string[] | Map<string, string>>;
  /** Starts the work under the lease. Must not throw. The work itself releases the lease when it has ended. */
  start(lease: Lease, organizationId?: string): void;
}

/**
 * The number of instances that share the work, and the rank of this one from 0. All instances agree on the order.
 */
export interface Peers {
  readonly count: number;
  readonly rank: number;
}

interface UnownedWorkDependencies {
  readonly ownership: Ownership;
  readonly clock: Clock;
  readonly membership: { peers(): Peers };
  onError(error: unknown): void;
}

/** Time between two sweeps. This plus the lease time is the longest that work waits for a new owner. */
const SWEEP_INTERVAL_MS = 1_000;
/** Most ids that one query returns. If it returns this number, the next query follows immediately. */
const MAX_FOUND = 1_000;
const MAX_ROUNDS_A_SWEEP = 20;
/** Age above which any instance can claim work. It is less than the time between two sweeps. */
const LEFT_OVER_MS = 750;
const REMEMBERED_MS = 3_000;

const NO_ORGANIZATIONS: ReadonlyMap<string, string> = new Map();

interface SweptKind {
  readonly owned: OwnedKind;
  /** Ids in the share of other instances, with the time when they were first found without an owner. */
  leftToOthers: ReadonlyMap<string, number>;
}

/**
 * Finds owned actors that have work and no owner, and claims this instance's share of them, once a second and
 * immediately on request. The ids are divided among the live instances by their hashes. Any instance claims an id
 * that still has no owner one sweep later, because its share can belong to a dead instance.
 */
export class UnownedWork {
  readonly #dependencies: UnownedWorkDependencies;
  readonly #kinds = new Map<string, SweptKind>();
  #sweeping: Promise<void> | undefined;
  /** Kinds to sweep. */
  readonly #wanted = new Set<string>();
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: UnownedWorkDependencies) {
    this.#dependencies = dependencies;
  }

  register(owned: OwnedKind): void {
    this.#kinds.set(owned.kind, { owned, leftToOthers: new Map() });
  }

  start(): void {
    void this.sweep();
    this.#cancel = this.#dependencies.clock.after(SWEEP_INTERVAL_MS, () => this.start());
  }

  /** Stops the sweeps. No work is started after this has resolved. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancel?.();
    await this.#sweeping;
  }

  /** Sweeps one kind or all kinds now. If a sweep is in progress, another one follows. Never rejects. */
  sweep(kind?: string): Promise<void> {
    for (const wanted of kind === undefined ? this.#kinds.keys() : [kind]) this.#wanted.add(wanted);
    this.#sweeping ??= this.#sweepWanted().finally(() => {
      this.#sweeping = undefined;
      // Kinds that were requested after the last sweep ended.
      for (const name of this.#isStopped ? [] : this.#wanted) void this.sweep(name);
    });
    return this.#sweeping;
  }

  async #sweepWanted(): Promise<void> {
    // A kind that is requested again during the sweep moves to the end.
    for (const name of this.#wanted) {
      if (this.#isStopped) return;
      this.#wanted.delete(name);
      const kind = this.#kinds.get(name);
      if (kind !== undefined) await this.#sweepKind(kind).catch(this.#dependencies.onError);
    }
  }

  async #sweepKind(kind: SweptKind): Promise<void> {
    const leftToOthers = this.#remembered(kind.leftToOthers);
    for (let round = 0; round < MAX_ROUNDS_A_SWEEP; round++) {
      const found = await kind.owned.findWork(MAX_FOUND);
      const organizations = found instanceof Map ? found : NO_ORGANIZATIONS;
      const ids = found instanceof Map ? [...found.keys()] : found;
      const mine = this.#shareOf(ids, kind.leftToOthers, leftToOthers);
      if (mine.length === 0) break;
      const claimed = await this.#claim(kind.owned, mine, organizations);
      if (claimed === 0 || ids.length < MAX_FOUND) break;
    }
    kind.leftToOthers = leftToOthers;
  }

  /**
   * Returns the ids that other sweeps left to other instances recently. A sweep does not always find all ids, so
   * they are remembered for some time.
   */
  #remembered(leftToOthers: ReadonlyMap<string, number>): Map<string, number> {
    const sinceMs = this.#dependencies.clock.nowMs() - REMEMBERED_MS;
    return new Map([...leftToOthers].filter(([, atMs]) => atMs > sinceMs));
  }

  async #claim(
    owned: OwnedKind,
    ids: readonly string[],
    organizations: ReadonlyMap<string, string>,
  ): Promise<number> {
    const leases = await this.#dependencies.ownership.claim(owned.kind, ids);
    if (this.#isStopped) {
      await this.#dependencies.ownership.release(leases);
      return 0;
    }
    for (const lease of leases) owned.start(lease, organizations.get(lease.id));
    return leases.length;
  }

  #shareOf(
    ids: readonly string[],
    seenBefore: ReadonlyMap<string, number>,
    leftToOthers: Map<string, number>,
  ): readonly string[] {
    const { membership, clock } = this.#dependencies;
    const { count, rank } = membership.peers();
    const nowMs = clock.nowMs();
    return ids.filter((id) => {
      if (hashOf(id) % Math.max(1, count) === rank) return true;
      const sinceMs = seenBefore.get(id) ?? nowMs;
      if (nowMs - sinceMs >= LEFT_OVER_MS) {
        leftToOthers.delete(id);
        return true;
      }
      leftToOthers.set(id, sinceMs);
      return false;
    });
  }
}

/** Returns the 32-bit FNV-1a hash, which is equal on every instance. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash >>> 0;
}
