import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { chargeNanoUsd } from "../../lib/money.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import type { Usage } from "../../lib/usage.ts";
import type { ChargeFigures, Hold, SettlementFigures } from "../../money/interface.ts";
import { providerCostFemto, usageFigures } from "../../money/usage.ts";

/** What the column takes. */
const MAX_LATENCY_MS = 2 ** 31 - 1;

/** The figures of one call, as they stand; its end adds the status. */
export interface MeteredFigures extends ChargeFigures {
  status: number;
}

/** What the usage costs the organization: provider cost and fee, at most the hold. */
export function chargeFigures(
  hold: Hold,
  { model, terms, providerId }: Candidate,
  usage: Usage,
  latencyMs: number,
  details: Record<string, unknown> | null,
): MeteredFigures {
  const fullNano = chargeNanoUsd(providerCostFemto(usage, terms.prices), hold.feeBasisPoints);
  const isClamped = fullNano > hold.holdNano;
  return {
    chargeNano: isClamped ? hold.holdNano : fullNano,
    clampedNano: isClamped ? fullNano - hold.holdNano : 0n,
    model: model.id,
    provider: providerId,
    ...usageFigures(usage),
    latencyMs: Math.min(Math.max(0, Math.round(latencyMs)), MAX_LATENCY_MS),
    details,
    status: 0,
    description: descriptionOf(model),
  };
}

/** The same figures, as those of the end of the call, with the status that its client was told. */
export function settlementFigures(
  figures: MeteredFigures,
  status: 200 | 408 | 499,
): SettlementFigures {
  figures.status = status;
  return figures;
}

/** One text for all charges of a model: it is compared with its neighbours' in each batch. */
const DESCRIPTIONS = new WeakMap<CatalogueModel, string>();

function descriptionOf(model: CatalogueModel): string {
  let description = DESCRIPTIONS.get(model);
  if (description === undefined) {
    description = `Chat completion: ${model.id}`;
    DESCRIPTIONS.set(model, description);
  }
  return description;
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
