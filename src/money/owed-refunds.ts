import type { Database } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { isInstanceDead, requestsWithAttempts } from "../../db/queries/instances.ts";
import type { Clock } from "../lib/clock.ts";
import type { LeftNotes, NoteFile } from "../storage/note-file.ts";
import { refundEffect } from "./refund.ts";
import type { Undelivered, UndeliveredNotes } from "./undelivered.ts";

export interface OwedRefundsDependencies {
  readonly file: NoteFile<Undelivered>;
  readonly sql: Database;
  readonly clock: Clock;
  submit(effect: StatementEffect): Promise<void>;
  onError(error: unknown): void;
}

const LOOK_MS = 1_000;
/** Of an instance that this database does not know, or not any more: notes of another one, perhaps. */
const MAX_NOTE_AGE_MS = 7 * 86_400_000;

/** Notes of what was not delivered, and the refunds that those of dead processes are owed. */
export class OwedRefunds implements UndeliveredNotes {
  readonly #dependencies: OwedRefundsDependencies;
  #isSettling = false;
  #isClosed = false;
  #cancelNext = (): void => {};
  /** Files of unknown instances whose refunds this process has asked for: once is enough. */
  readonly #asked = new Set<string>();

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
