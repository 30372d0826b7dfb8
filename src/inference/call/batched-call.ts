import type { Hold, LongHoldRequest, SettlementFigures } from "../../billing/ledger/interface.ts";
import type { CatalogueModel, ModelEndpoint, ModelTerms } from "../../lib/catalogue-model.ts";
import { plus, times } from "../../lib/exact-integer.ts";
import { holdNanoUsd, usdNumber } from "../../lib/money.ts";
import { type BatchRequest, pricesAtShare, type RecordedAnswer } from "../../providers/batches.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";
import { type AcceptedCall, type AdmittedCall, ProviderCall } from "./call.ts";
import { CallCharge, type UnwrittenCharge } from "./call-charge.ts";
import { type AcceptedRequest, type PaidEndpoint, recordedDetails } from "./endpoint.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";
import { asCallerError } from "./routing/provider-error.ts";
import type { PaidCallDependencies } from "./run-call.ts";

/*
 * A batched call runs in two phases that can be a day apart and in different processes: prepare (route,
 * price) and settle (read the provider's answer, charge). A hold that outlives processes covers the time
 * between them. The caller places the hold, stores the data that both phases need, and writes the charge.
 */

/** A call that can be submitted in a batch. */
export interface PreparedBatchLine {
  /** The serving candidate, with the prices of the batch. */
  readonly candidate: Candidate;
  readonly request: BatchRequest;
  readonly hold: LongHoldRequest;
  readonly feeBasisPoints: bigint;
}

/** An answer of a provider batch, with the data that the preparation of its call returned. */
export interface BatchAnswer {
  /** The endpoint that answered, as the preparation chose it. */
  readonly endpoint: AnsweredEndpoint;
  readonly hold: Pick<Hold, "organizationId" | "keyId" | "holdNano">;
  readonly feeBasisPoints: bigint;
  readonly answer: RecordedAnswer;
  /** The batch id, which the details of the charge contain. */
  readonly batchId: string;
  readonly latencyMs: number;
}

/** The endpoint's answer, and its charge, which the caller writes. */
export interface SettledBatchAnswer {
  readonly body: string | Uint8Array;
  readonly charge: UnwrittenCharge;
}

export interface AnsweredEndpoint {
  readonly model: string;
  readonly terms: ModelTerms;
  readonly providerId: string;
  readonly provider: Provider;
  readonly providerModel: string;
}

/** The parts of a PaidCall that the preparation needs. */
interface BatchableCall<Request extends AcceptedRequest, Answer> {
  readonly endpoint: PaidEndpoint<Request, Answer>;
  route(call: AcceptedCall<Request>): RoutePlan | Promise<RoutePlan>;
  guardOf(call: AcceptedCall<Request>): CallGuard | undefined | Promise<CallGuard | undefined>;
}

/**
 * Returns the call in the form that a provider batch takes. Returns undefined if the call must be sent live.
 * Rejects with the error that rejected the request.
 */
export async function prepareForBatch<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  paid: BatchableCall<Request, Answer>,
  call: AcceptedCall<Request>,
): Promise<PreparedBatchLine | undefined> {
  const { request, caller, requestId } = call;
  const { endpoint } = paid;
  const { key } = caller;
  if (endpoint.canBeBatched?.(request) !== true) return undefined;
  if ((await paid.guardOf(call)) !== undefined) return undefined;
  const plan = await paid.route(call);
  const live = batchCandidate(plan);
  if (live === undefined) return undefined;
  const { admission } = dependencies;
  const fees = await admission.fees(caller, plan.candidates);
  if (fees.serves?.(live) === false) return undefined;
  const { batches } = live.provider;
  const candidate = { ...live, terms: batchTerms(live) };
  const payer = { organizationId: key.organizationId, keyId: key.id };
  const admitted = admittedInPhase(endpoint, call, {
    ...{ plan, fees, hold: { ...NO_HOLD, ...payer, requestId } },
  });
  const batchRequest = await batches!.request((provider) => {
    const recorded = { ...candidate, provider };
    const unsupported = plan.unsupported?.get(live);
    const candidatePlan =
      unsupported === undefined
        ? plan
        : { ...plan, unsupported: new Map([[recorded, unsupported]]) };
    return endpoint.call(callTo(recorded, requestId), recorded, {
      ...admitted,
      plan: candidatePlan,
    });
  });
  if (batchRequest === undefined) return undefined;
  const { fixedFemto, perUnitFemto, units } = endpoint.bound(request, candidate.terms, candidate);
  const feeBasisPoints = fees.of(candidate);
  return {
    candidate,
    request: batchRequest,
    feeBasisPoints,
    hold: {
      ...payer,
      id: requestId,
      subjects: await admission.subjectsOf(caller, request.fields),
      holdNano: holdNanoUsd(plus(fixedFemto, times(units, perUnitFemto)), feeBasisPoints),
    },
  };
}

/**
 * Returns the first endpoint of the first model that supports batches. Returns undefined if the organization
 * has a BYOK key for the model, because live calls then use that key.
 */
function batchCandidate({ candidates }: RoutePlan): Candidate | undefined {
  const ofFirst = candidates.filter(({ model }) => model === candidates[0]!.model);
  if (ofFirst.some(({ byokKeyId }) => byokKeyId !== undefined)) return undefined;
  return ofFirst.find((candidate) => {
    return candidate.provider.batches !== undefined && !endpointOf(candidate)?.takesNoBatches;
  });
}

function batchTerms(candidate: Candidate): ModelTerms {
  const { terms, provider } = candidate;
  const share = endpointOf(candidate)?.batchPriceShare ?? provider.batches!.priceShare;
  return { ...terms, prices: pricesAtShare(terms.prices, share) };
}

function endpointOf({ model, providerId, upstreamModel }: Candidate): ModelEndpoint | undefined {
  const { endpoints } = model;
  return endpoints.find((entry) => entry.provider === providerId && entry.model === upstreamModel);
}

/** Returns the endpoint's answer with its charge. Rejects with the error that failed the request. */
export async function settleBatchAnswer<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  endpoint: PaidEndpoint<Request, Answer>,
  call: AcceptedCall<Request>,
  batchAnswer: BatchAnswer,
): Promise<SettledBatchAnswer> {
  const { request, requestId } = call;
  const { feeBasisPoints: fee, batchId } = batchAnswer;
  const hold = { ...NO_HOLD, ...batchAnswer.hold, requestId, feeBasisPoints: fee };
  const plan = { models: [], candidates: [] };
  const fees = { of: () => fee, highest: fee };
  const admitted = admittedInPhase(endpoint, call, { plan, hold, fees });
  const candidate = await answeredCandidate(dependencies, batchAnswer);
  const answer = await endpoint
    .call(callTo(candidate, requestId), candidate, admitted)
    .catch((error: unknown) => {
      if (!(error instanceof ProviderFailure)) throw error;
      throw asCallerError(error, [`${candidate.endpointId}=${error.kind}`]);
    });
  const charge = new CallCharge(dependencies, admitted);
  const usage = endpoint.usage(answer, request, candidate.terms);
  const metered = charge.figures(candidate, usage, batchAnswer.latencyMs);
  charge.note(metered);
  const details = { ...metered.details, batch_id: batchId };
  const figures: SettlementFigures = { ...metered, details, status: 200 };
  const costUsd = usdNumber(figures.chargeNano);
  const body = endpoint.answer(answer, request, { requestId, candidate, usage, costUsd });
  return { body, charge: await charge.toSettle(figures) };
}

async function answeredCandidate(
  { tunedModels }: Pick<PaidCallDependencies, "tunedModels">,
  { endpoint, answer, hold }: BatchAnswer,
): Promise<Candidate> {
  const { model: id, terms, providerId, provider, providerModel } = endpoint;
  const model = (await tunedModels.indexFor(hold.organizationId, [id])).resolve(id);
  const baseEndpointId = `${providerId}/${providerModel}`;
  return {
    model: model ?? absentModel(endpoint),
    ...{
      terms,
      providerId,
      baseEndpointId,
      endpointId: baseEndpointId,
      upstreamModel: providerModel,
    },
    provider: provider.batches!.answering(answer),
  };
}

/** Returns the model as the catalogue had it when the call was submitted. */
function absentModel({ model: id, terms, providerId: provider }: AnsweredEndpoint): CatalogueModel {
  return {
    ...{ ...terms, id, name: id, description: "", provider, ownedBy: "", category: "chat" },
    ...{ isActive: false, created: 0, endpoints: [] },
  };
}

/** A placeholder hold: the real amount is in the `BatchAnswer`, or no money is held yet. */
const NO_HOLD: Omit<Hold, "requestId" | "organizationId" | "keyId"> = {
  ...{ orgAccount: "", dayAccount: "", monthAccount: "" },
  ...{ holdNano: 0n, budgetNano: undefined, feeBasisPoints: 0n },
  ...{ outputTokens: 0, isLowered: false, admittedAtMs: 0 },
};

function admittedInPhase<Request extends AcceptedRequest, Answer>(
  { route, title, statedLimit }: PaidEndpoint<Request, Answer>,
  { requestId, startedMs, request, clientSignal, log, lifetime }: AcceptedCall<Request>,
  { plan, hold, fees }: Pick<AdmittedCall<Request>, "plan" | "hold" | "fees">,
): AdmittedCall<Request> {
  return {
    ...{ requestId, startedMs, request, clientSignal, log, lifetime },
    ...{ plan, hold, fees, route, title },
    statedLimit: statedLimit(request),
    explainsRoute: false,
    details: recordedDetails(request.fields),
    claim: undefined,
  };
}

function callTo(candidate: Candidate, requestId: string): ProviderCall {
  const call = new ProviderCall(requestId, false);
  call.aimAt(candidate, { onNewConnection: false });
  return call;
}
