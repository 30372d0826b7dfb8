import { GatewayError } from "../../../lib/errors.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import type { MessagesProvider } from "../../../providers/messages-provider.ts";
import type { Candidate, RoutePlan, UnsupportedFields } from "../../call/routing/plan-route.ts";
import { planFields, requestedParts } from "../chat-completions/request-fields.ts";
import { CONTEXT_EDITS, CONTEXT_EDITS_BETA } from "./platform-request.ts";
import type { MessagesFacts } from "./request-facts.ts";

/** The features that a request needs from its candidates. */
export interface CandidateNeeds extends MessagesFacts {
  readonly maxTokens: number;
  readonly betas: readonly string[];
  /** True if guardrails check the answer, which requires a translated answer instead of Anthropic's own format. */
  readonly isTranslated: boolean;
}

/**
 * Features that coding agents request by default. They are left out if a model does not support them, since
 * agents would otherwise work only with one vendor's models.
 */
const HINTS: ReadonlySet<string> = new Set(["response_format", "parallel_tool_calls"]);

/** Names in this API of the chat call's fields. */
const NAMES: Readonly<Record<string, string>> = {
  stop: "stop_sequences",
  user: "metadata.user_id",
  parallel_tool_calls: "tool_choice.disable_parallel_tool_use",
  response_format: "output_config.format",
  reasoning: "thinking",
  "reasoning.enabled": "thinking",
  "reasoning.max_tokens": "thinking.budget_tokens",
  "reasoning.effort": "output_config.effort",
};

/**
 * Plans a request by the features of its candidates. Models of Anthropic's API receive the body itself,
 * without the parts that their platform does not support. For others, the body is translated, and unsupported
 * parts are left out. The plan lists the parts left out. Throws 400 unsupported_parameter if no candidate is
 * left.
 */
export function planMessages(request: CandidateNeeds, plan: RoutePlan): RoutePlan {
  if (plan.candidates.length === 0) return plan;
  const nativeCandidates = plan.candidates.filter(
    (candidate) => isNative(candidate, request) && canFetch(request, candidate),
  );
  const native = planNative(request, nativeCandidates);
  const translated = planTranslated(request, plan, native);
  const unsupported = new Map([...native.unsupported, ...translated.unsupported]);
  const candidates = plan.candidates.filter(
    (candidate) => native.candidates.has(candidate) || translated.candidates.has(candidate),
  );
  const models = plan.models.filter((model) =>
    candidates.some((candidate) => candidate.model === model),
  );
  const skipped = [...(plan.skipped ?? []), ...native.skipped, ...translated.skipped];
  return { ...plan, models, candidates, skipped, ...(unsupported.size > 0 && { unsupported }) };
}

/** Returns the provider's Messages capability if it serves this model through Anthropic's API. */
export function messagesOf(candidate: Candidate): MessagesProvider | undefined {
  const { messages } = candidate.provider;
  const serves = messages?.platform?.serves(fieldModelOf(candidate)) ?? true;
  return serves ? messages : undefined;
}

/**
 * Returns true if the candidate receives the original body, without the parts that its platform does not
 * support.
 */
export function isNative(
  candidate: Candidate,
  { isTranslated }: Pick<CandidateNeeds, "isTranslated">,
): boolean {
  return !isTranslated && messagesOf(candidate) !== undefined;
}

/** Returns true if the request has no web addresses, or the platform can download them. */
function canFetch({ chat }: CandidateNeeds, candidate: Candidate): boolean {
  const { fields } = candidate.provider;
  if (fields?.rejectsWebUrls?.(fieldModelOf(candidate)) !== true) return true;
  return requestedParts(chat).web_address === undefined;
}

function fieldModelOf({ upstreamModel, model }: Candidate): FieldModel {
  return { model: upstreamModel, modelId: model.canonicalId ?? model.id };
}

interface Part {
  readonly candidates: ReadonlySet<Candidate>;
  readonly unsupported: ReadonlyMap<Candidate, UnsupportedFields>;
  readonly skipped: NonNullable<RoutePlan["skipped"]>;
}

function planNative(request: CandidateNeeds, native: readonly Candidate[]): Part {
  const needsLongCache = request.nativeSize.longCacheLifetime !== undefined;
  const unsupported = new Map<Candidate, UnsupportedFields>();
  for (const candidate of native) {
    const betas = request.betas.filter((beta) => !acceptsBeta(beta, candidate));
    const listed = [...request.unpriced, ...unsupportedByPlatform(request, candidate)];
    listed.push(...betas.map(nameOfBeta));
    if (needsLongCache && !pricesLongCache(candidate)) listed.push("cache_control.ttl");
    if (listed.length > 0)
      unsupported.set(candidate, { leftOut: [], listed: [...new Set(listed)] });
  }
  return { candidates: new Set(native), unsupported, skipped: [] };
}

function unsupportedByPlatform(request: CandidateNeeds, candidate: Candidate): readonly string[] {
  const platform = platformOf(candidate, request.betas);
  if (platform === undefined) return [];
  return request.anthropicOnly.filter((name) => name !== CONTEXT_EDITS || !platform.editsContext);
}

/** Returns the features of a platform, or undefined for Anthropic itself. */
export function platformOf(
  candidate: Candidate,
  betas: readonly string[],
): { readonly editsContext: boolean } | undefined {
  if (candidate.provider.messages?.platform === undefined) return undefined;
  const editsContext =
    betas.includes(CONTEXT_EDITS_BETA) && acceptsBeta(CONTEXT_EDITS_BETA, candidate);
  return { editsContext };
}

/**
 * Returns true if the candidate has a price for a one-hour cache, and its provider reports such writes
 * separately.
 */
export function pricesLongCache({ terms, provider }: Candidate): boolean {
  return (
    provider.metersCacheLifetimes === true && terms.prices.cacheWriteHourTokenFemto !== undefined
  );
}

function planTranslated(request: CandidateNeeds, plan: RoutePlan, native: Part): Part {
  const candidates = plan.candidates.filter((candidate) => !native.candidates.has(candidate));
  const nothing: Part = { candidates: new Set(), unsupported: new Map(), skipped: [] };
  if (candidates.length === 0) return nothing;
  const before = plan.skipped?.length ?? 0;
  let planned: RoutePlan;
  try {
    planned = planFields(request.chat, { ...plan, candidates }, HINTS);
  } catch (error) {
    if (native.candidates.size === 0) throw renamed(error);
    const skipped = candidates.map(({ baseEndpointId }) => ({
      baseEndpointId,
      reason: "lacks_fields",
    }));
    return { ...nothing, skipped };
  }
  const unsupported = new Map<Candidate, UnsupportedFields>();
  for (const candidate of planned.candidates) {
    const { leftOut = [], listed = [] } = planned.unsupported?.get(candidate) ?? {};
    const all = [...listed.map(nameOf), ...unsupportedBeside(request, candidate)];
    if (all.length > 0) unsupported.set(candidate, { leftOut, listed: [...new Set(all)] });
  }
  return {
    candidates: new Set(planned.candidates),
    unsupported,
    skipped: planned.skipped?.slice(before) ?? [],
  };
}

/** Returns the names of parts that a translated request leaves out, besides fields of the chat call. */
function unsupportedBeside(request: CandidateNeeds, candidate: Candidate): string[] {
  const { untranslated, unpriced, betas, maxTokens, hasCacheControl } = request;
  const listed = [...unpriced, ...untranslated, ...betas.map(nameOfBeta)];
  if (hasCacheControl && !keepsCacheControl(candidate)) listed.push("cache_control");
  if (maxTokens > candidate.terms.maxOutputTokens) listed.push("max_tokens");
  return listed;
}

/** Returns true if a candidate supports Anthropic's cache breakpoints. */
export function keepsCacheControl(candidate: Candidate): boolean {
  const { fields } = candidate.provider;
  const value = { type: "ephemeral" };
  return (
    fields?.unsupported("cache_control", value, fieldModelOf(candidate), true, {}).length === 0
  );
}

/** Tokens of context that models accept without the beta, at the standard price. */
const USUAL_CONTEXT = 200_000;
const LONG_CONTEXT = /^context-1m-/;

/**
 * Returns true if a beta can be sent to the candidate. Betas that affect only parts left out anyway can be
 * sent. A longer context needs a known price.
 */
export function acceptsBeta(beta: string, candidate: Candidate): boolean {
  const { provider, terms } = candidate;
  if (LONG_CONTEXT.test(beta) && terms.contextLength <= USUAL_CONTEXT) return false;
  return provider.messages?.platform?.takesBeta(beta, fieldModelOf(candidate)) ?? true;
}

function nameOfBeta(beta: string): string {
  return `anthropic-beta.${beta}`;
}

function nameOf(field: string): string {
  return Object.hasOwn(NAMES, field) ? NAMES[field]! : field;
}

/**
 * Returns the error with the name of the chat call's field replaced by the name in this API, which the caller
 * knows.
 */
function renamed(error: unknown): unknown {
  if (!(error instanceof GatewayError) || error.param === null) return error;
  const name = nameOf(error.param);
  if (name === error.param) return error;
  const message = error.message.replace(JSON.stringify(error.param), JSON.stringify(name));
  return new GatewayError(error.code, message, { param: name, cause: error });
}
