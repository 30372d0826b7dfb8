import type { Clock } from "../../lib/clock.ts";
import { holdFor } from "./decide-hold.ts";
import type { HoldDesk } from "./hold-desk.ts";
import type { Hold, HoldRequest } from "./interface.ts";
import type { KnownRooms } from "./known-rooms.ts";
import { holdOf, PendingHold } from "./pending-hold.ts";

/**
 * A hold on which its request may begin at once; undefined where it may not be granted. Throws 503 where
 * too many stand before the database. `granted` is told when it is durable, or was charged with the same
 * commit.
 */
export function beginEarlyHold(
  { desk, rooms, clock }: { desk: HoldDesk; rooms: KnownRooms; clock: Clock },
  request: HoldRequest,
  granted: (hold: Hold, pending: PendingHold) => void,
): { readonly hold: Hold; readonly pending: PendingHold } | undefined {
  const accounts = desk.accounts.of(request);
  const fullNano = holdFor(request, request.outputTokens);
  const reservation = rooms.reserve(accounts, fullNano);
  if (reservation === undefined) return undefined;
  const { promise: confirmed, resolve, reject } = Promise.withResolvers<void>();
  // Whoever needs to know asks; the others are told by their checkpoint or their charge.
  confirmed.catch(() => {});
  const size = { holdNano: fullNano, outputTokens: request.outputTokens };
  const hold: Hold = { ...holdOf(request, accounts, size, clock.nowMs()), confirmed };
  const pending = new PendingHold(request, true, {
    granted: () => {
      rooms.end(reservation);
      granted(hold, pending);
      resolve();
    },
    refused: (error) => {
      rooms.end(reservation);
      reject(error);
    },
  });
  pending.ask(accounts);
  try {
    desk.submit(pending);
  } catch (error) {
    rooms.end(reservation);
    throw error;
  }
  return { hold, pending };
}
