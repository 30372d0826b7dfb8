import type { Lease } from "../../../db/queries/actor-leases.ts";

export { guardLease, type Lease, LeaseLostError } from "../../../db/queries/actor-leases.ts";

/**
 * Who acts for an actor that may have one owner only, such as a webhook or a job. A lease is
 *
 * - free: nobody has it, or the instance that has it was declared dead, has left, or has not been heard
 *   of within its lease, by the clock of the database;
 * - held: `claim` returned it. It stays so as long as this instance is heard of, whatever the number of
 *   its leases, until it is released;
 * - lost: somebody else claimed it after this instance was not heard of for too long. Its owner stops;
 *   what it still tries to write is refused by `guardLease`.
 *
 * A new owner always has a higher epoch than the one before.
 */
export interface Ownership {
  /** The leases of those that nobody alive owns, or this instance owns already. */
  claim(kind: string, ids: readonly string[]): Promise<Lease[]>;
  /** To be called once nothing is done in the name of these leases any more. */
  release(leases: readonly Lease[]): Promise<void>;
  /**
   * False once this instance may be past its own lease (age of its last heartbeat by its own monotonic
   * clock), or lost this one: then nothing more is done in its name. It may be true again later, where
   * nobody has claimed it meanwhile.
   */
  isHeld(lease: Lease): boolean;
  /** To be told of a LeaseLostError: listeners then hear of it at once. */
  noteLost(lease: Lease): void;
  /** Called for each lease that was lost. Returns the way to stop listening. Listeners must not throw. */
  onLost(listener: (lease: Lease) => void): () => void;
}
