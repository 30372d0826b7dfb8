import { isServerUnable } from "../../db/client.ts";
import { WRITE_AGAIN_MS } from "../../db/ledger/units.ts";
import { type Clock, sleep } from "../lib/clock.ts";

/** Tries again while the database cannot write, as long as it is wanted. Rejects with the last failure. */
export async function writtenInTheEnd(
  clock: Clock,
  write: () => Promise<void>,
  isWanted: () => boolean,
): Promise<void> {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (!isServerUnable(error) || !isWanted()) throw error;
      await sleep(clock, WRITE_AGAIN_MS);
      if (!isWanted()) throw error;
    }
  }
}
