import type { Database } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { isInstanceDead, requestsWithAttempts } from "../../../db/queries/undelivered.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import type { LeftNotes, NoteFile } from "../../storage/note-file.ts";
import { refundEffect } from "./refund.ts";
import type { Undelivered, UndeliveredNotes } from "./undelivered.ts";

export interface OwedRefundsDependencies {
  readonly file: NoteFile<Undelivered>;
  readonly sql: Database;
  readonly clock: Clock;
  submit(effect: StatementEffect): Promise<void>;
  onError(error: unknown): void;
}

const RETRY_MS = 1_000;
/** Of an instance that this database does not know, or not any more: notes of another one, perhaps. */
const MAX_NOTE_AGE_MS = 7 * 86_400_000;

/** Notes of what was not delivered, and the refunds that those of dead processes are owed. */
export class OwedRefunds implements UndeliveredNotes {
  readonly #dependencies: OwedRefundsDependencies;
  #settling: Promise<void> | undefined;
  #isClosed = false;

  constructor(dependencies: OwedRefundsDependencies) {
    this.#dependencies = dependencies;
  }

  add({ requestId, dayAccount, monthAccount }: Undelivered): void {
    try {
      this.#dependencies.file.add(requestId, { requestId, dayAccount, monthAccount });
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
   * Gives what other processes of this folder owe that have died, until nothing is left to give: their
   * successor does at its start, and where several share a folder, those that live now and then.
   */
  settleLeft(): Promise<void> {
    this.#settling ??= this.#settleLeft().finally(() => {
      this.#settling = undefined;
    });
    return this.#settling;
  }

  async #settleLeft(): Promise<void> {
    while (!this.#isClosed) {
      let isAllSettled = true;
      try {
        for (const left of this.#dependencies.file.left()) {
          if (!(await this.#settle(left))) isAllSettled = false;
        }
      } catch (error) {
        isAllSettled = false;
        this.#dependencies.onError(error);
      }
      if (isAllSettled) return;
      await sleep(this.#dependencies.clock, RETRY_MS);
    }
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Each refund is given once, by whomever and however often it is asked for. False: look again. */
  async #settle({ name, notes, writtenAtMs, discard }: LeftNotes<Undelivered>): Promise<boolean> {
    const { sql, submit, clock } = this.#dependencies;
    const isDead = await isInstanceDead(sql, name);
    // One that lives settles its notes by itself, and what it sent may yet be written.
    if (isDead === false) return true;
    const requestIds = notes.map(({ requestId }) => requestId);
    // Whoever reaps the dead one is about to charge these.
    const undecided = await requestsWithAttempts(sql, requestIds);
    for (const note of notes) if (!undecided.has(note.requestId)) await submit(refundEffect(note));
    if (undecided.size > 0) return false;
    if (isDead || clock.nowMs() - writtenAtMs > MAX_NOTE_AGE_MS) discard();
    return true;
  }
}
