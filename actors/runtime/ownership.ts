import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { claimLeases, type Lease, leasesOf, releaseLeases } from "../../db/queries/actor-leases.ts";
import type { Clock } from "../../src/lib/clock.ts";

export { guardLease, type Lease, LeaseLostError } from "../../db/queries/actor-leases.ts";

/**
 * Who acts for an actor that may have one owner only, such as a webhook or a job. A lease is
 *
 * - free: no instance has it, or its instance was declared dead, has left, or has sent no heartbeat
 *   within its lease, by the clock of the database;
 * - held: `claim` returned it. It stays so while this instance sends heartbeats, for any number of
 *   its leases, until it is released;
 * - lost: another instance claimed it after this one sent no heartbeat for too long. Its owner stops;
 *   what it still tries to write is refused by `guardLease`.
 *
 * A new owner always has a higher epoch than the one before.
 */
export interface Ownership {
  /** The leases of those that no live instance owns, or that this one owns already. */
  claim(kind: string, ids: readonly string[]): Promise<Lease[]>;
  /** To be called once nothing is done in the name of these leases any more. */
  release(leases: readonly Lease[]): Promise<void>;
  /**
   * False once this instance may be past its own lease (age of its last heartbeat by its own monotonic
   * clock), or lost this one: then nothing more is done in its name. It may be true again later, where
   * no other instance has claimed it meanwhile.
   */
  isHeld(lease: Lease): boolean;
  /** Report a LeaseLostError here: listeners are then notified at once. */
  noteLost(lease: Lease): void;
  /** Called for each lease that was lost. Returns the way to stop listening. Listeners must not throw. */
  onLost(listener: (lease: Lease) => void): () => void;
}

interface PostgresOwnershipDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownLease: {
    /** False once this instance may be past its own lease. */
    readonly isCurrent: boolean;
    /**
     * False where the heartbeats of others say nothing, because the database was out of reach: then only
     * those count as dead that were declared so.
     */
    readonly mayJudgeOthers: boolean;
  };
}

/** What one statement claims or gives back at most. */
const MAX_LEASES_A_STATEMENT = 1_000;

/** Leases as rows of `actor_leases`; holding ten thousand of them costs no more than one heartbeat. */
export class PostgresOwnership implements Ownership {
  readonly #dependencies: PostgresOwnershipDependencies;
  readonly #held = new Map<string, Lease>();
  /** Asked for, with the answer under way. */
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
    const { sql, instance, ownLease } = this.#dependencies;
    const names = ids.map((id) => nameOf(kind, id));
    for (const name of names) this.#claiming.set(name, (this.#claiming.get(name) ?? 0) + 1);
    try {
      const claimed = await claimLeases(sql, instance, kind, ids, ownLease.mayJudgeOthers);
      for (const lease of claimed) this.#keep(lease);
      return claimed.filter((lease) => this.#isCurrent(lease));
    } finally {
      for (const name of names) this.#endClaim(name);
    }
  }

  /** Of two claims at a time whose answers cross, the later one stands. */
  #keep(lease: Lease): void {
    const name = nameOf(lease.kind, lease.id);
    const before = this.#held.get(name);
    if (before !== undefined && before.epoch > lease.epoch) return;
    this.#held.set(name, lease);
    if (before !== undefined) this.#tell(before);
  }

  #endClaim(name: string): void {
    const left = this.#claiming.get(name)! - 1;
    if (left > 0) this.#claiming.set(name, left);
    else this.#claiming.delete(name);
  }

  /** What is given back while a statement is under way shares the next one. */
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
    return this.#isCurrent(lease) && this.#dependencies.ownLease.isCurrent;
  }

  noteLost(lease: Lease): void {
    if (this.#drop(lease)) this.#tell(lease);
  }

  onLost(listener: (lease: Lease) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Compares what is held here with the table: after a gap in the heartbeats, in which others may have
   * claimed, and now and then for what a broken connection left. What this instance owns there without
   * knowing of it, because the answer to a claim was lost, is given back.
   */
  async verify(): Promise<void> {
    const { sql, instance } = this.#dependencies;
    const asked = [...this.#held.values()];
    const written = await leasesOf(sql, instance);
    const epochs = new Map(written.map((lease) => [nameOf(lease.kind, lease.id), lease.epoch]));
    for (const lease of asked) {
      if (epochs.get(nameOf(lease.kind, lease.id)) !== lease.epoch) this.noteLost(lease);
    }
    const unknown = written.filter(({ kind, id }) => {
      const name = nameOf(kind, id);
      return !this.#held.has(name) && !this.#claiming.has(name);
    });
    if (unknown.length > 0) await this.release(unknown);
  }

  /** An orderly stop: no instance has to wait for this one's lease to end. */
  async releaseAll(): Promise<void> {
    await this.release([...this.#held.values()]);
  }

  #isCurrent(lease: Lease): boolean {
    return this.#held.get(nameOf(lease.kind, lease.id))?.epoch === lease.epoch;
  }

  #drop(lease: Lease): boolean {
    return this.#isCurrent(lease) && this.#held.delete(nameOf(lease.kind, lease.id));
  }

  #tell(lease: Lease): void {
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

/** One kind of owned actors, as `UnownedWork` takes them over. */
export interface OwnedKind {
  readonly kind: string;
  /**
   * Ids of actors that have work now and no live owner (view `owned_actors`), at
   * most `limit`, those that wait longest first.
   */
  findWork(limit: number): Promise<readonly string[]>;
  /** Begins to act for it. Must not throw. It, too, releases the lease when there is nothing left to do. */
  start(lease: Lease): void;
}

/** How many instances share the work, and which of them this is, from 0, in an order all agree on. */
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

/** With the lease time this is how long work waits for a new owner. */
const SWEEP_INTERVAL_MS = 1_000;
/** What one query finds at most; where it finds that many the next one follows at once. */
const MAX_FOUND = 1_000;
const MAX_ROUNDS_A_SWEEP = 20;
/** Less than the time between two sweeps: after it, any instance may claim the work. */
const LEFT_OVER_MS = 750;
const REMEMBERED_MS = 3_000;

interface SweptKind {
  readonly owned: OwnedKind;
  /** The other instances' share, and since when it was seen without an owner. */
  leftToOthers: ReadonlyMap<string, number>;
}

/**
 * Finds owned actors that have work and no owner, and takes over this instance's share of them: once a
 * second, and at once on request. The ids are divided among the live instances by their hashes; what
 * has no owner a sweep later any instance takes, because its share may belong to one that has died.
 */
export class UnownedWork {
  readonly #dependencies: UnownedWorkDependencies;
  readonly #kinds = new Map<string, SweptKind>();
  #sweeping: Promise<void> | undefined;
  /** Kinds to look at. */
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

  /** Nothing is started any more once this has resolved. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancel?.();
    await this.#sweeping;
  }

  /** Looks now, at one kind or at all; what is under way already is followed by another look. Never rejects. */
  sweep(kind?: string): Promise<void> {
    for (const wanted of kind === undefined ? this.#kinds.keys() : [kind]) this.#wanted.add(wanted);
    this.#sweeping ??= this.#sweepWanted().finally(() => {
      this.#sweeping = undefined;
      // Wanted after the last look, before this.
      for (const name of this.#isStopped ? [] : this.#wanted) void this.sweep(name);
    });
    return this.#sweeping;
  }

  async #sweepWanted(): Promise<void> {
    // What is wanted again meanwhile moves to the end.
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
      const mine = this.#shareOf(found, kind.leftToOthers, leftToOthers);
      if (mine.length === 0) break;
      const claimed = await this.#claim(kind.owned, mine);
      if (claimed === 0 || found.length < MAX_FOUND) break;
    }
    kind.leftToOthers = leftToOthers;
  }

  /** A look need not find all there is, so what one left to others is remembered for some more. */
  #remembered(leftToOthers: ReadonlyMap<string, number>): Map<string, number> {
    const sinceMs = this.#dependencies.clock.nowMs() - REMEMBERED_MS;
    return new Map([...leftToOthers].filter(([, atMs]) => atMs > sinceMs));
  }

  async #claim(owned: OwnedKind, ids: readonly string[]): Promise<number> {
    const leases = await this.#dependencies.ownership.claim(owned.kind, ids);
    if (this.#isStopped) {
      await this.#dependencies.ownership.release(leases);
      return 0;
    }
    for (const lease of leases) owned.start(lease);
    return leases.length;
  }

  #shareOf(
    found: readonly string[],
    seenBefore: ReadonlyMap<string, number>,
    leftToOthers: Map<string, number>,
  ): readonly string[] {
    const { membership, clock } = this.#dependencies;
    const { count, rank } = membership.peers();
    const nowMs = clock.nowMs();
    return found.filter((id) => {
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

/** FNV-1a, 32 bits: the same on every instance. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash >>> 0;
}
