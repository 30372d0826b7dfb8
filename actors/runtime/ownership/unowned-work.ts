import type { Clock } from "../../../src/lib/clock.ts";
import type { Lease, Ownership } from "./interface.ts";

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

export interface UnownedWorkDependencies {
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
