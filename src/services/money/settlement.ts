import type { Settlement } from "../../../db/ledger/rows.ts";
import type { NanoUsd } from "../../lib/money.ts";
import type { Hold, SettlementFigures } from "./interface.ts";

/** A charge is never larger than its hold (contract §6), whatever its caller has worked out. */
export function withinHold(hold: Hold, chargeNano: NanoUsd): NanoUsd {
  return chargeNano > hold.holdNano ? hold.holdNano : chargeNano;
}

/** What the ledger is told of a hold that ends with a charge. */
export function settlementOf(
  hold: Hold,
  figures: SettlementFigures,
  hasAttempt: boolean,
): Settlement {
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
    status: figures.status,
    promptTokens: figures.promptTokens,
    cachedPromptTokens: figures.cachedPromptTokens,
    completionTokens: figures.completionTokens,
    reasoningTokens: figures.reasoningTokens,
    estimated: figures.estimated,
    latencyMs: figures.latencyMs,
    details: figures.details,
    description: figures.description,
    hasAttempt,
  };
}
