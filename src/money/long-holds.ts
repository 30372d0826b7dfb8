import type { StatementEffect } from "../../db/ledger/effects.ts";
import { endLongHoldEffect, type LongHold } from "../../db/ledger/long-holds.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import type { HoldRequest, LongHoldRequest, SettlementFigures } from "./interface.ts";
import { settlementOf } from "./settlement.ts";

const FEMTO_PER_NANO = 1_000_000n;

/** A long hold as any other is asked for: it waits, and is refused, like one. */
export function requestOfLong(long: LongHoldRequest): HoldRequest {
  return {
    requestId: long.id,
    organizationId: long.organizationId,
    keyId: long.keyId,
    fixedFemto: long.holdNano * FEMTO_PER_NANO,
    perTokenFemto: 0n,
    outputTokens: 0,
    isLimitExplicit: true,
    feeBasisPoints: 0n,
  };
}

/** Ends long holds, and learns which have ended, once that is durable. */
export interface LongHoldEnds {
  readonly instance: InstanceIdentity;
  submit(effect: StatementEffect): Promise<void>;
  ended(hold: LongHold): void;
}

/** Charges a long hold, or, without figures, gives it back. Once: a second time changes nothing. */
export async function endLongHold(
  ends: LongHoldEnds,
  id: string,
  figures: SettlementFigures | undefined,
  also: StatementEffect | undefined,
): Promise<void> {
  let ended: LongHold | undefined;
  const effect = endLongHoldEffect(ends.instance, id, {
    ...(figures && { settlementOf: (hold: LongHold) => settlementOf(hold, figures, false) }),
    also,
    onEnd(hold) {
      ended = hold;
    },
  });
  await ends.submit(effect);
  if (ended !== undefined) ends.ended(ended);
}
