import type { RequestAccounts } from "../../../db/ledger/rows.ts";
import type { Clock } from "../../lib/clock.ts";

interface Room {
  /** As of the last batch that touched the account; null without a limit. */
  freeNano: bigint | null;
  knownAtMs: number;
  /** Asked for by requests that began early, and not decided yet. */
  undecidedNano: bigint;
}

export interface Reservation {
  readonly rooms: readonly Room[];
  readonly nano: bigint;
}

const MAX_ROOMS = 50_000;
/** What other instances may have spent meanwhile. */
const MAX_AGE_MS = 2_000;
/** Early beginnings take at most this part of what is known to be free. */
const PART = 4n;

/**
 * What the accounts were last seen to have free: a guess, by which a request begins before its hold is
 * durable. A wrong one costs a call that is given up, never money.
 */
export class KnownRooms {
  readonly #clock: Clock;
  readonly #rooms = new Map<string, Room>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(freeNano: ReadonlyMap<string, bigint | null>): void {
    const knownAtMs = this.#clock.nowMs();
    if (this.#rooms.size > MAX_ROOMS) this.#rooms.clear();
    for (const [id, free] of freeNano) {
      const room = this.#rooms.get(id);
      if (room === undefined) {
        this.#rooms.set(id, { freeNano: free, knownAtMs, undecidedNano: 0n });
      } else {
        room.freeNano = free;
        room.knownAtMs = knownAtMs;
      }
    }
  }

  /** Undefined where the amount may not be there. To be given back once the hold is decided. */
  reserve(accounts: RequestAccounts, nano: bigint): Reservation | undefined {
    const rooms: Room[] = [];
    const sinceMs = this.#clock.nowMs() - MAX_AGE_MS;
    for (const id of [accounts.orgAccount, accounts.dayAccount, accounts.monthAccount]) {
      const room = this.#rooms.get(id);
      if (room === undefined || room.knownAtMs < sinceMs) return undefined;
      if (room.freeNano !== null && PART * (room.undecidedNano + nano) > room.freeNano) {
        return undefined;
      }
      rooms.push(room);
    }
    for (const room of rooms) room.undecidedNano += nano;
    return { rooms, nano };
  }

  end({ rooms, nano }: Reservation): void {
    for (const room of rooms) room.undecidedNano -= nano;
  }
}
