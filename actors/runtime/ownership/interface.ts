import type { Lease } from "../../../db/queries/actor-leases.ts";

export { guardLease, type Lease, LeaseLostError } from "../../../db/queries/actor-leases.ts";

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
