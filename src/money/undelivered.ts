import type { LedgerRequest } from "../../db/ledger/rows.ts";

/** A request of which nothing was delivered and nothing ever will be. */
export type Undelivered = Pick<LedgerRequest, "requestId" | "dayAccount" | "monthAccount">;

/**
 * Requests whose clients get an error while it is not known here whether they are charged. The
 * database cannot be told: it is what does not answer. Nor does it know by itself: to it a charge whose
 * answer left and one whose answer did not are the same. So a note is taken beside it, before the client
 * gets its error, and an instance that finds one after a crash refunds what was charged, if anything was.
 *
 * None is ever taken where something may have left, or may yet be asked for: not where the answer is
 * kept under an idempotency key with the charge.
 */
export interface UndeliveredNotes {
  /** The note outlives this process when this returns. Never throws. */
  add(undelivered: Undelivered): void;
  /** It is known now, and settled. */
  remove(requestId: string): void;
}
