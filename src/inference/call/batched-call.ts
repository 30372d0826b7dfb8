import type { Hold, LongHoldRequest, SettlementFigures } from "../../billing/ledger/interface.ts";
import type { CatalogueModel, ModelEndpoint, ModelTerms } from "../../lib/catalogue-model.ts";
import { plus, times } from "../../lib/exact-integer.ts";
import { holdNanoUsd, usdNumber } from "../../lib/money.ts";
import { type BatchRequest, pricesAtShare, type RecordedAnswer } from "../../providers/batches.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";
import { type AdmittedCall, type CallOutcome, type IncomingCall, ProviderCall } from "./call.ts";
import { CallCharge, type UnwrittenCharge } from "./call-charge.ts";
import { type AcceptedRequest, type PaidEndpoint, recordedDetails } from "./endpoint.ts";
import type { CallGuard } from "./guard/call-guard.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";
import { asCallerError } from "./routing/provider-error.ts";
import type { PaidCallDependencies } from "./run-call.ts";

/*
 * A call that its provider answers in a batch comes in two halves, which may lie a day apart, in two processes. In
 * between there is a hold that outlives processes, and who asks for the halves keeps what they have in common.
 */

export type BatchPhase = BatchPreparation | BatchSettlement;

/** Everything up to the hold, which is left to who asks; calls that have to be live leave it empty. */
export interface BatchPreparation {
  readonly kind: "first";
  handed?: PreparedBatchLine;
}

/** A call that can stand in a batch. */
export interface PreparedBatchLine {
  /** With the terms of the batch. */
  readonly candidate: Candidate;
  readonly request: BatchRequest;
  readonly hold: LongHoldRequest;
  readonly feeBasisPoints: bigint;
}

/** Everything from the provider's answer on; the charge is left to who asks. */
export interface BatchSettlement {
  readonly kind: "second";
  /** Where it was answered: as the first half has found it. */
  readonly place: AnsweredPlace;
  readonly hold: Pick<Hold, "organizationId" | "keyId" | "holdNano">;
  readonly feeBasisPoints: bigint;
  readonly answer: RecordedAnswer;
  /** Names it in the details of the charge. */
  readonly batchId: string;
  readonly latencyMs: number;
  charge?: UnwrittenCharge;
}

export interface AnsweredPlace {
  readonly model: string;
  readonly terms: ModelTerms;
  readonly providerId: string;
  readonly provider: Provider;
  readonly providerModel: string;
}

/** What of a PaidCall decides about the first half. */
interface BatchableCall<Request extends AcceptedRequest, Answer> {
  readonly endpoint: PaidEndpoint<Request, Answer>;
  route(call: IncomingCall<Request>): RoutePlan | Promise<RoutePlan>;
  guardOf(call: IncomingCall<Request>): CallGuard | undefined | Promise<CallGuard | undefined>;
}

/** Its outcome is the answer, where the half has one. Rejects with what refuses the request, or failed it. */
export async function runBatchPhase<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  paid: BatchableCall<Request, Answer>,
  call: IncomingCall<Request>,
): Promise<CallOutcome> {
  const half = call.half!;
  if (half.kind === "second") return settleFromBatch(dependencies, paid.endpoint, call, half);
  const handed = await prepareForBatch(dependencies, paid, call);
  if (handed !== undefined) half.handed = handed;
  return { kind: "whole", headers: {}, body: "" };
}

/** Undefined where the call has to be live. */
async function prepareForBatch<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  paid: BatchableCall<Request, Answer>,
  call: IncomingCall<Request>,
): Promise<PreparedBatchLine | undefined> {
  const { request, caller, requestId } = call;
  const { endpoint } = paid;
  const { key } = caller;
  if (endpoint.standsInBatches?.(request) !== true) return undefined;
  if ((await paid.guardOf(call)) !== undefined) return undefined;
  const plan = await paid.route(call);
  const found = batchCandidate(plan);
  if (found === undefined) return undefined;
  const { admission } = dependencies;
  const fees = await admission.fees(caller, plan.candidates);
  if (fees.serves?.(found) === false) return undefined;
  const { batches } = found.provider;
  const candidate = { ...found, terms: batchTerms(found) };
  const payer = { organizationId: key.organizationId, keyId: key.id };
  const admitted = admittedHalf(endpoint, call, {
    ...{ plan, fees, hold: { ...NO_HOLD, ...payer, requestId } },
  });
  const sent = await batches!.request((provider) => {
    const recorded = { ...candidate, provider };
    const lacked = plan.lacked?.get(found);
    const own = lacked === undefined ? plan : { ...plan, lacked: new Map([[recorded, lacked]]) };
    return endpoint.call(callTo(recorded, requestId), recorded, { ...admitted, plan: own });
  });
  if (sent === undefined) return undefined;
  const { fixedFemto, perUnitFemto, units } = endpoint.bound(request, candidate.terms, candidate);
  const feeBasisPoints = fees.of(candidate);
  return {
    candidate,
    request: sent,
    feeBasisPoints,
    hold: {
      ...payer,
      id: requestId,
      subjects: await admission.subjectsOf(caller, request.fields),
      holdNano: holdNanoUsd(plus(fixedFemto, times(units, perUnitFemto)), feeBasisPoints),
    },
  };
}

/** The first endpoint of the first model that takes batches. An organization that has its own key there uses that. */
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
  return endpoints.find((one) => one.provider === providerId && one.model === upstreamModel);
}

async function settleFromBatch<Request extends AcceptedRequest, Answer>(
  dependencies: PaidCallDependencies,
  endpoint: PaidEndpoint<Request, Answer>,
  call: IncomingCall<Request>,
  half: BatchSettlement,
): Promise<CallOutcome> {
  const { request, requestId } = call;
  const { feeBasisPoints: fee, batchId } = half;
  const hold = { ...NO_HOLD, ...half.hold, requestId, feeBasisPoints: fee };
  const plan = { models: [], candidates: [] };
  const fees = { of: () => fee, highest: fee };
  const admitted = admittedHalf(endpoint, call, { plan, hold, fees });
  const candidate = await answeredCandidate(dependencies, half);
  const answer = await endpoint
    .call(callTo(candidate, requestId), candidate, admitted)
    .catch((error: unknown) => {
      if (!(error instanceof ProviderFailure)) throw error;
      throw asCallerError(error, [`${candidate.endpointId}=${error.kind}`]);
    });
  const charge = new CallCharge(dependencies, admitted);
  const usage = endpoint.usage(answer, request, candidate.terms);
  const metered = charge.figures(candidate, usage, half.latencyMs);
  charge.note(metered);
  const details = { ...metered.details, batch_id: batchId };
  const figures: SettlementFigures = { ...metered, details, status: 200 };
  const costUsd = usdNumber(figures.chargeNano);
  const body = endpoint.answer(answer, request, { requestId, candidate, usage, costUsd });
  half.charge = await charge.toSettle(figures);
  return { kind: "whole", headers: {}, body };
}

async function answeredCandidate(
  { tunedModels }: Pick<PaidCallDependencies, "tunedModels">,
  { place, answer, hold }: BatchSettlement,
): Promise<Candidate> {
  const { model: id, terms, providerId, provider, providerModel } = place;
  const model = (await tunedModels.indexFor(hold.organizationId, [id])).resolve(id);
  const placeId = `${providerId}/${providerModel}`;
  return {
    model: model ?? absentModel(place),
    ...{ terms, providerId, placeId, endpointId: placeId, upstreamModel: providerModel },
    provider: provider.batches!.answering(answer),
  };
}

/** The catalogue has had it when the call was handed over. */
function absentModel({ model: id, terms, providerId: provider }: AnsweredPlace): CatalogueModel {
  return {
    ...{ ...terms, id, name: id, description: "", provider, ownedBy: "", category: "chat" },
    ...{ isActive: false, created: 0, endpoints: [] },
  };
}

/** The amount stands in the half, or is not held yet. */
const NO_HOLD: Omit<Hold, "requestId" | "organizationId" | "keyId"> = {
  ...{ orgAccount: "", dayAccount: "", monthAccount: "" },
  ...{ holdNano: 0n, budgetNano: undefined, feeBasisPoints: 0n },
  ...{ outputTokens: 0, isLowered: false, admittedAtMs: 0 },
};

function admittedHalf<Request extends AcceptedRequest, Answer>(
  { route, title, statedLimit }: PaidEndpoint<Request, Answer>,
  { requestId, startedMs, request, clientSignal, log }: IncomingCall<Request>,
  { plan, hold, fees }: Pick<AdmittedCall<Request>, "plan" | "hold" | "fees">,
): AdmittedCall<Request> {
  return {
    ...{ requestId, startedMs, request, clientSignal, log, plan, hold, fees, route, title },
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
