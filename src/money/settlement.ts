import type { Checkpoint, LedgerRequest, Settlement } from "../../db/ledger/rows.ts";
import type { NanoUsd } from "../lib/money.ts";
import type { ChargeFigures, Hold, SettlementFigures } from "./interface.ts";

/** Of a hold, what its charge is made from. */
interface Chargeable extends LedgerRequest {
  readonly holdNano: NanoUsd;
}

/** A charge is never larger than its hold, whatever its caller has worked out. */
function withinHold(hold: { readonly holdNano: NanoUsd }, chargeNano: NanoUsd): NanoUsd {
  return chargeNano > hold.holdNano ? hold.holdNano : chargeNano;
}

/** What a hold is charged: the same in a checkpoint and in a settlement. */
function chargeOf(hold: Chargeable, figures: ChargeFigures) {
  return {
    requestId: hold.requestId,
    organizationId: hold.organizationId,
    keyId: hold.keyId,
    orgAccount: hold.orgAccount,
    dayAccount: hold.dayAccount,
    monthAccount: hold.monthAccount,
    chargeNano: withinHold(hold, figures.chargeNano),
    model: figures.model,
    provider: figures.provider,
    promptTokens: figures.promptTokens,
    cachedPromptTokens: figures.cachedPromptTokens,
    completionTokens: figures.completionTokens,
    reasoningTokens: figures.reasoningTokens,
    quantities: figures.quantities,
    estimated: figures.estimated,
    latencyMs: figures.latencyMs,
    details: figures.details,
    description: figures.description,
  };
}

/** What the ledger keeps of a hold whose request runs, for the instance that may have to end it. */
export function checkpointOf(hold: Hold, figures: ChargeFigures): Checkpoint {
  const charge = chargeOf(hold, figures);
  return { ...charge, holdNano: hold.holdNano, startedAtMs: hold.admittedAtMs };
}

/** What the ledger receives for a hold that ends with a charge. */
export function settlementOf(
  hold: Chargeable,
  figures: SettlementFigures,
  hasAttempt: boolean,
): Settlement {
  return { ...chargeOf(hold, figures), status: figures.status, hasAttempt };
}

/** A charge that nothing is held for would take money that others were given. */
export function notHeld({ requestId }: { readonly requestId: string }): Error {
  return new Error(`${requestId} is not held: it was never, or its hold has ended`);
}
