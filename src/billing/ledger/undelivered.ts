import type { Database } from "../../../db/client.ts";
import { refundCharge } from "../../../db/ledger/credits.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { LedgerRequest, Settlement } from "../../../db/ledger/rows.ts";
import { writtenInTheEnd } from "../../../db/ledger/units.ts";
import { isInstanceDead, requestsWithAttempts } from "../../../db/queries/instances.ts";
import type { Clock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { LeftNotes, NoteFile } from "../../platform/storage/note-file.ts";

/** Between two looks for notes of dead processes. */
const LOOK_MS = 1_000;
/** Of an instance that this database does not know, or not any more: notes of another one, perhaps. */
const MAX_NOTE_AGE_MS = 7 * 86_400_000;

/** A request of which nothing was delivered and nothing ever will be. */
export type Undelivered = Pick<
  LedgerRequest,
  "requestId" | "dayAccount" | "monthAccount" | "subjectAccounts"
>;

/**
 * Requests whose clients get an error while it is not known here whether they are charged. The
 * database cannot be told: it is what does not answer. Nor does it know by itself: to it a charge whose
 * answer left and one whose answer did not are the same. So a note is taken beside it, before the client
 * gets its error, and an instance that finds one after a crash refunds what was charged, if anything was.
 *
 * None is ever taken where something may have left, or may yet be asked for: not where the answer is
 * kept under an idempotency key with the charge.
 */
export interface UndeliveredChargeJournal {
  /** The note outlives this process when this returns. Never throws. */
  add(undelivered: Undelivered): void;
  /** It is known now, and settled. */
  remove(requestId: string): void;
}

/**
 * Gives a charge back whose answer never left, because the database answered too late: to the balance, and
 * to the budgets of its key and subjects. Budget events that the charge has set off stay as they are: they may have
 * been received, and each goes out exactly once in a period, so one that was taken back could never be
 * told again.
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
  /** It is durable. */
  onGiven(settlement: Settlement): void;
  onError(error: unknown): void;
}

/** Refunds of charges that this process knows to have come too late. */
export class Refunds {
  readonly #dependencies: RefundsDependencies;

  constructor(dependencies: RefundsDependencies) {
    this.#dependencies = dependencies;
  }

  give(settlement: Settlement): void {
    const { clock, notes, submit, onGiven, onError } = this.#dependencies;
    const given =
      settlement.chargeNano === 0n && (settlement.budgetNano ?? 0n) === 0n
        ? Promise.resolve()
        : writtenInTheEnd(clock, () => submit(refundEffect(settlement)), always);
    given.then(() => {
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

/** Notes of what was not delivered, and the refunds that those of dead processes are owed. */
export class PendingRefunds implements UndeliveredChargeJournal {
  readonly #dependencies: OwedRefundsDependencies;
  #isSettling = false;
  #isClosed = false;
  #cancelNext = (): void => {};
  /** Files of unknown instances whose refunds this process has asked for: once is enough. */
  readonly #asked = new Set<string>();

  constructor(dependencies: OwedRefundsDependencies) {
    this.#dependencies = dependencies;
  }

  add({ requestId, dayAccount, monthAccount, subjectAccounts }: Undelivered): void {
    try {
      const note = { requestId, dayAccount, monthAccount, subjectAccounts };
      this.#dependencies.file.add(requestId, note);
    } catch (error) {
      // Without the note the refund is owed by this process alone.
      this.#dependencies.onError(error);
    }
  }

  remove(requestId: string): void {
    try {
      this.#dependencies.file.remove(requestId);
    } catch (error) {
      // A note that stays asks for a refund that has been given, or that nothing was charged for.
      this.#dependencies.onError(error);
    }
  }

  /**
   * Gives what other processes of this folder owe that have died: at once, and from then on as soon as one is
   * declared dead, whichever instance does that. So every instance looks after its own folder, also one that
   * was back before the lease of its predecessor had ended. A look costs the reading of a folder.
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

  /** Each refund is given once, by whichever process and however often it is asked for. */
  async #settle({ name, notes, writtenAtMs, discard }: LeftNotes<Undelivered>): Promise<void> {
    const { sql, submit, clock } = this.#dependencies;
    const isDead = await isInstanceDead(sql, name);
    // One that lives settles its notes by itself, and what it sent may yet be written.
    if (isDead === false) return;
    const isOld = clock.nowMs() - writtenAtMs > MAX_NOTE_AGE_MS;
    if (this.#asked.has(name) && !isOld) return;
    const requestIds = notes.map(({ requestId }) => requestId);
    // The reaper of the dead instance is about to charge these.
    const undecided = await requestsWithAttempts(sql, requestIds);
    for (const note of notes) if (!undecided.has(note.requestId)) await submit(refundEffect(note));
    if (undecided.size > 0) return;
    if (isDead || isOld) discard();
    else this.#asked.add(name);
  }
}
