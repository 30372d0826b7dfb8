import type { GroupCommit } from "../../../db/ledger/group-commit.ts";
import type { Settlement } from "../../../db/ledger/rows.ts";
import type { Clock } from "../../lib/clock.ts";
import type { ChargeFigures } from "./interface.ts";
import type { PendingCharge } from "./pending-charge.ts";
import type { PendingHold } from "./pending-hold.ts";
import type { RunningHold } from "./running-hold.ts";
import { checkpointOf } from "./settlement.ts";
import { writtenInTheEnd } from "./write-again.ts";

/*
 * What is written of a request that runs. Where its hold is not durable yet and still stands before the
 * next batch, it is written with it.
 */

/** Resolves when it is durable. Writes nothing where the hold has ended meanwhile. */
export async function writeCheckpoint(
  ledger: GroupCommit,
  running: RunningHold,
  figures: ChargeFigures,
  hasEnded: () => boolean,
  clock: Clock,
): Promise<void> {
  const { hold, early } = running;
  const checkpoint = checkpointOf(hold, figures);
  if (running.attempt === "none") running.attempt = "asked for";
  try {
    if (early !== undefined) {
      if (early.place === "queued") early.checkpoint = checkpoint;
      await hold.confirmed;
    }
    // With an early hold its latest checkpoint was written.
    if (early?.checkpoint === undefined) {
      if (hasEnded() || running.settling !== undefined) return;
      await writtenInTheEnd(
        clock,
        () => ledger.submit([{ kind: "checkpoint", checkpoint }]),
        () => running.attempt === "written" && running.settling === undefined && !hasEnded(),
      );
    }
    running.attempt = "written";
  } catch (error) {
    if (running.attempt === "asked for") running.attempt = "none";
    throw error;
  }
}

/** `refund` is told of a charge that was posted and had been given up by then. */
export function postCharge(
  ledger: GroupCommit,
  { hold, early }: RunningHold,
  charge: PendingCharge,
  refund: (settlement: Settlement) => void,
): void {
  if (early === undefined) {
    ledger.post(charge);
    return;
  }
  if (charge.statements.length === 0 && early.place === "queued") {
    early.settlement = charge.settlement;
    early.abandonment = charge;
  }
  hold.confirmed!.then(
    () => postConfirmed(ledger, early, charge, refund),
    (error) => charge.fail(error),
  );
}

/** The hold is durable, and the charge too where it was written with it. */
function postConfirmed(
  ledger: GroupCommit,
  early: PendingHold,
  charge: PendingCharge,
  refund: (settlement: Settlement) => void,
): void {
  if (early.settlement === charge.settlement) {
    if (charge.isAbandoned) refund(charge.settlement);
    charge.resolve();
  } else if (charge.isAbandoned) charge.fail(new Error("given up before it was written"));
  else ledger.post(charge);
}
