import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { chargeNanoUsd } from "../../lib/money.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import { providerCostFemto, type Usage } from "../billing/usage.ts";
import type { ChargeFigures, Hold, SettlementFigures } from "../money/interface.ts";
import type { Candidate } from "../routing/plan-route.ts";

/** What the column takes. */
const MAX_LATENCY_MS = 2 ** 31 - 1;

export interface MeteredCall {
  readonly hold: Hold;
  readonly model: CatalogueModel;
  readonly providerId: string;
  readonly latencyMs: number;
  readonly details: Record<string, unknown> | null;
}

/** What the usage costs the organization: provider cost and fee, at most the hold. */
export function chargeFigures(call: MeteredCall, usage: Usage): ChargeFigures {
  const { hold, model } = call;
  const fullNano = chargeNanoUsd(providerCostFemto(usage, model.prices), hold.feeBasisPoints);
  const chargeNano = fullNano > hold.holdNano ? hold.holdNano : fullNano;
  return {
    chargeNano,
    clampedNano: fullNano - chargeNano,
    model: call.model.id,
    provider: call.providerId,
    promptTokens: usage.promptTokens,
    cachedPromptTokens: usage.cachedPromptTokens,
    completionTokens: usage.completionTokens,
    reasoningTokens: usage.reasoningTokens,
    estimated: usage.estimated,
    latencyMs: Math.min(Math.max(0, Math.round(call.latencyMs)), MAX_LATENCY_MS),
    details: call.details,
  };
}

/** The same as the end of the call, with the status that its client was told. */
export function settlementFigures(
  figures: ChargeFigures,
  status: 200 | 408 | 499,
): SettlementFigures {
  return { ...figures, status, description: `Chat completion: ${figures.model}` };
}

/** Tells the log line and the metrics of a request what it was charged, and for what. */
export function noteCharge(log: RequestFacts, figures: ChargeFigures): void {
  log.model = figures.model;
  log.provider = figures.provider;
  log.promptTokens = figures.promptTokens;
  log.completionTokens = figures.completionTokens;
  log.costNano = figures.chargeNano;
}

/** Tells them who was asked, which is all there is to tell where no answer comes of it. */
export function noteCandidate(log: RequestFacts, { model, providerId }: Candidate): void {
  log.model = model.id;
  log.provider = providerId;
}

/** Usage of an answer whose provider told none. */
export function estimatedUsage(promptTokens: number, completionTokens: number): Usage {
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    estimated: true,
  };
}
