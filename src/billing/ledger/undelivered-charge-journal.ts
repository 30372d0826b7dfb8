import type { Database } from "../../../db/client.ts";
import { refundCharge } from "../../../db/ledger/credits.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { LedgerRequest, Settlement } from "../../../db/ledger/rows.ts";
import { retryUntilWritten } from "../../../db/ledger/units.ts";
import { isInstanceDead, requestsWithAttempts } from "../../../db/queries/instances.ts";
import type { Clock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { LeftNotes, NoteFile } from "../../platform/storage/note-file.ts";

/** Time between two searches for notes of dead processes. */
const LOOK_MS = 1_000;
/**
 * Age after which notes of an instance that this database does not know are discarded. Until then they are left,
 * because they may belong to another database.
 */
const MAX_NOTE_AGE_MS = 7 * 86_400_000;

/** A request whose output was not delivered and never will be. */
export type Undelivered = Pick<
  LedgerRequest,
  "requestId" | "dayAccount" | "monthAccount" | "subjectAccounts"
>;

/**
 * The journal of requests whose clients get an error before it is known whether they are charged.
 *
 * The database cannot record this, because it does not answer. It also cannot distinguish a charge with a
 * delivered answer from one without. So a note is written to a file before the client gets the error. An instance
 * that finds a note after a crash refunds the charge, if there was one.
 *
 * A note is never written if output may have been delivered, or can be requested later: for example if the answer
 * is stored under an idempotency key together with the charge.
 */
export interface UndeliveredChargeJournal {
  /** Adds a note, which outlives this process when this returns. Never throws. */
  add(undelivered: Undelivered): void;
  /** Removes a note, because the outcome is known and settled. */
  remove(requestId: string): void;
}

/**
 * Returns the effect that refunds a charge whose answer was not sent, because the database answered too late. It
 * refunds to the balance, and to the budgets of the key and its subjects.
 *
 * Budget events of the charge stay: receivers may have them, and each event is sent exactly once in a period, so
 * a withdrawn event could not be sent again.
 */
export function refundEffect({
  requestId,
  dayAccount,
  monthAccount,
  subjectAccounts,
}: Undelivered): StatementEffect {
  const refund = {
    transactionId: newId("txn"),
    requestId,
    dayAccount,
    monthAccount,
    subjectAccounts,
    description: `Refund of ${requestId}, whose answer could not be delivered`,
  };
  return {
    kind: "statement",
    name: "refund",
    tables: ["accounts", "transactions", "changes"],
    events: [],
    isOwed: true,
    async run(sql) {
      await refundCharge(sql, refund);
    },
  };
}

interface RefundsDependencies {
  readonly notes: UndeliveredChargeJournal;
  readonly clock: Clock;
  submit(effect: StatementEffect): Promise<void>;
  /** Called when the refund is durable. */
  onGiven(settlement: Settlement): void;
  onError(error: unknown): void;
}

/** Refunds charges that this process knows to be too late. */
export class Refunds {
  readonly #dependencies: RefundsDependencies;

  constructor(dependencies: RefundsDependencies) {
    this.#dependencies = dependencies;
  }

  give(settlement: Settlement): void {
    const { clock, notes, submit, onGiven, onError } = this.#dependencies;
    const written =
      settlement.chargeNano === 0n && (settlement.budgetNano ?? 0n) === 0n
        ? Promise.resolve()
        : retryUntilWritten(clock, () => submit(refundEffect(settlement)), always);
    written.then(() => {
      notes.remove(settlement.requestId);
      onGiven(settlement);
    }, onError);
  }
}

const always = () => true;

export interface OwedRefundsDependencies {
  readonly file: NoteFile<Undelivered>;
  readonly sql: Database;
  readonly clock: Clock;
  submit(effect: StatementEffect): Promise<void>;
  onError(error: unknown): void;
}

/** The notes of undelivered requests, and the refunds for notes of dead processes. */
export class PendingRefunds implements UndeliveredChargeJournal {
  readonly #dependencies: OwedRefundsDependencies;
  #isSettling = false;
  #isClosed = false;
  #cancelNext = (): void => {};
  /** Files of unknown instances whose refunds this process has requested: once is enough. */
  readonly #requested = new Set<string>();

  constructor(dependencies: OwedRefundsDependencies) {
    this.#dependencies = dependencies;
  }

  add({ requestId, dayAccount, monthAccount, subjectAccounts }: Undelivered): void {
    try {
      const note = { requestId, dayAccount, monthAccount, subjectAccounts };
      this.#dependencies.file.add(requestId, note);
    } catch (error) {
      // Without the note, only this process can give the refund.
      this.#dependencies.onError(error);
    }
  }

  remove(requestId: string): void {
    try {
      this.#dependencies.file.remove(requestId);
    } catch (error) {
      // A remaining note requests a refund that was already given, or for which there is no charge.
      this.#dependencies.onError(error);
    }
  }

  /**
   * Gives the refunds for other processes of this folder that have died: immediately, and later when any instance
   * declares one dead. So every instance checks its own folder, even if it restarted before its predecessor's
   * lease ended. Each check reads one folder.
   */
  watch(): void {
    if (this.#isClosed || this.#isSettling) return;
    this.#isSettling = true;
    this.#settleLeft()
      .catch(this.#dependencies.onError)
      .finally(() => {
        this.#isSettling = false;
        if (this.#isClosed) return;
        this.#cancelNext = this.#dependencies.clock.after(LOOK_MS, () => this.watch());
      });
  }

  async #settleLeft(): Promise<void> {
    for (const left of this.#dependencies.file.left()) await this.#settle(left);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelNext();
  }

  /** Requests the refunds of a file. Each refund is given once, however often it is requested. */
  async #settle({ name, notes, writtenAtMs, discard }: LeftNotes<Undelivered>): Promise<void> {
    const { sql, submit, clock } = this.#dependencies;
    const isDead = await isInstanceDead(sql, name);
    // A live instance settles its notes itself, and its charges can still be written.
    if (isDead === false) return;
    const isOld = clock.nowMs() - writtenAtMs > MAX_NOTE_AGE_MS;
    if (this.#requested.has(name) && !isOld) return;
    const requestIds = notes.map(({ requestId }) => requestId);
    // The dead instance's reaper is about to charge these requests.
    const undecided = await requestsWithAttempts(sql, requestIds);
    for (const note of notes) if (!undecided.has(note.requestId)) await submit(refundEffect(note));
    if (undecided.size > 0) return;
    if (isDead || isOld) discard();
    else this.#requested.add(name);
  }
}
