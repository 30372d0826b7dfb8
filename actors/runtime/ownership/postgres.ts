import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  claimLeases,
  type Lease,
  leasesOf,
  releaseLeases,
} from "../../../db/queries/actor-leases.ts";
import type { Ownership } from "./interface.ts";

export interface PostgresOwnershipDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** False once this instance may be past its own lease. */
  isWithinLease(): boolean;
  /**
   * False where the heartbeats of others say nothing, because the database was out of reach: then only
   * those count as dead that were declared so.
   */
  mayJudgeOthers(): boolean;
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
    const { sql, instance, mayJudgeOthers } = this.#dependencies;
    const names = ids.map((id) => nameOf(kind, id));
    for (const name of names) this.#claiming.set(name, (this.#claiming.get(name) ?? 0) + 1);
    try {
      const claimed = await claimLeases(sql, instance, kind, ids, mayJudgeOthers());
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
    return this.#isCurrent(lease) && this.#dependencies.isWithinLease();
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
