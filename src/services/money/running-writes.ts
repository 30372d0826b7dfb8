import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { Abandonment, GroupCommit } from "../../../db/ledger/group-commit.ts";
import type { Settlement } from "../../../db/ledger/rows.ts";
import type { ChargeFigures } from "./interface.ts";
import type { RunningHold } from "./running-hold.ts";
import { withinHold } from "./settlement.ts";

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
): Promise<void> {
  const { hold, early } = running;
  const chargeNano = withinHold(hold, figures.chargeNano);
  const { confirmed: _, ...held } = hold;
  const checkpoint = { ...held, ...figures, chargeNano, startedAtMs: hold.admittedAtMs };
  if (running.attempt === "none") running.attempt = "asked for";
  try {
    if (early !== undefined) {
      if (early.place === "queued") early.checkpoint = checkpoint;
      await hold.confirmed;
    }
    // With an early hold its latest checkpoint was written.
    if (early?.checkpoint === undefined) {
      if (hasEnded() || running.settling !== undefined) return;
      await ledger.submit([{ kind: "checkpoint", checkpoint }]);
    }
    running.attempt = "written";
  } catch (error) {
    if (running.attempt === "asked for") running.attempt = "none";
    throw error;
  }
}

/** Resolves when the charge is durable. `refund` is told of one that had been given up by then. */
export async function postCharge(
  ledger: GroupCommit,
  { hold, early }: RunningHold,
  charge: {
    readonly settlement: Settlement;
    readonly abandonment: Abandonment;
    readonly also: StatementEffect | undefined;
  },
  refund: (settlement: Settlement) => void,
): Promise<void> {
  const { settlement, abandonment, also } = charge;
  if (early !== undefined) {
    if (also === undefined && early.place === "queued") {
      early.settlement = settlement;
      early.abandonment = abandonment;
    }
    await hold.confirmed;
    if (early.settlement === settlement) {
      if (abandonment.isAbandoned) refund(settlement);
      return;
    }
    if (abandonment.isAbandoned) throw new Error("given up before it was written");
  }
  const settle = { kind: "settle", settlement } as const;
  await ledger.submit(also === undefined ? [settle] : [settle, also], abandonment);
}
