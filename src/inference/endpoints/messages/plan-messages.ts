import { GatewayError } from "../../../lib/errors.ts";
import type { FieldModel } from "../../../providers/chat-fields.ts";
import type { MessagesProvider } from "../../../providers/messages-provider.ts";
import type { Candidate, LackedFields, RoutePlan } from "../../call/routing/plan-route.ts";
import { askedParts, planFields } from "../chat-completions/request-fields.ts";
import { CONTEXT_EDITS, CONTEXT_EDITS_BETA } from "./platform-request.ts";
import type { MessagesFacts } from "./request-facts.ts";

/** What a request asks of its candidates. */
export interface AskedOfCandidates extends MessagesFacts {
  readonly maxTokens: number;
  readonly betas: readonly string[];
  /** Whether its answer has to be looked through, which that of Anthropic's own wire cannot be. */
  readonly isTranslated: boolean;
}

/**
 * Changes of an answer that coding agents ask for in passing: left out where a model lacks them, or agents would
 * work with one vendor's models only.
 */
const HINTS: ReadonlySet<string> = new Set(["response_format", "parallel_tool_calls"]);

/** What the fields of the chat call are called here. */
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
 * The plan of a request with regard to what its candidates have. Models behind Anthropic's wire get the body
 * itself, but for what their platform lacks; for others it is translated, and what they lack is left out. What
 * is left out is listed. Throws 400 unsupported_parameter where no candidate is left.
 */
export function planMessages(asked: AskedOfCandidates, plan: RoutePlan): RoutePlan {
  if (plan.candidates.length === 0) return plan;
  const own = plan.candidates.filter((one) => passes(one, asked) && fetches(asked, one));
  const passed = planPassed(asked, own);
  const translated = planTranslated(asked, plan, passed);
  const lacked = new Map([...passed.lacked, ...translated.lacked]);
  const candidates = plan.candidates.filter(
    (one) => passed.candidates.has(one) || translated.candidates.has(one),
  );
  const models = plan.models.filter((model) => candidates.some((one) => one.model === model));
  const skipped = [...(plan.skipped ?? []), ...passed.skipped, ...translated.skipped];
  return { ...plan, models, candidates, skipped, ...(lacked.size > 0 && { lacked }) };
}

/** The provider's capability where that model of it has Anthropic's wire. */
export function messagesOf(candidate: Candidate): MessagesProvider | undefined {
  const { messages } = candidate.provider;
  const serves = messages?.platform?.serves(fieldModelOf(candidate)) ?? true;
  return serves ? messages : undefined;
}

/** Whether the candidate gets the body as it came, but for what its platform lacks. */
export function passes(
  candidate: Candidate,
  { isTranslated }: Pick<AskedOfCandidates, "isTranslated">,
): boolean {
  return !isTranslated && messagesOf(candidate) !== undefined;
}

/** Whether there is nothing at web addresses that the platform would have to fetch, and does not. */
function fetches({ chat }: AskedOfCandidates, candidate: Candidate): boolean {
  const { fields } = candidate.provider;
  if (fields?.lacksWebAddresses?.(fieldModelOf(candidate)) !== true) return true;
  return askedParts(chat).web_address === undefined;
}

function fieldModelOf({ upstreamModel, model }: Candidate): FieldModel {
  return { model: upstreamModel, modelId: model.canonicalId ?? model.id };
}

interface Part {
  readonly candidates: ReadonlySet<Candidate>;
  readonly lacked: ReadonlyMap<Candidate, LackedFields>;
  readonly skipped: NonNullable<RoutePlan["skipped"]>;
}

function planPassed(asked: AskedOfCandidates, own: readonly Candidate[]): Part {
  const asksLongCache = asked.passedSize.longCacheLifetime !== undefined;
  const lacked = new Map<Candidate, LackedFields>();
  for (const candidate of own) {
    const betas = asked.betas.filter((beta) => !passesBeta(beta, candidate));
    const listed = [...asked.unpriced, ...lackedByPlatform(asked, candidate)];
    listed.push(...betas.map(nameOfBeta));
    if (asksLongCache && !pricesLongCache(candidate)) listed.push("cache_control.ttl");
    if (listed.length > 0) lacked.set(candidate, { leftOut: [], listed: [...new Set(listed)] });
  }
  return { candidates: new Set(own), lacked, skipped: [] };
}

function lackedByPlatform(asked: AskedOfCandidates, candidate: Candidate): readonly string[] {
  const platform = platformOf(candidate, asked.betas);
  if (platform === undefined) return [];
  return asked.platformsLack.filter((name) => name !== CONTEXT_EDITS || !platform.editsContext);
}

/** What decides how a platform gets a request; undefined for Anthropic itself. */
export function platformOf(
  candidate: Candidate,
  betas: readonly string[],
): { readonly editsContext: boolean } | undefined {
  if (candidate.provider.messages?.platform === undefined) return undefined;
  const editsContext =
    betas.includes(CONTEXT_EDITS_BETA) && passesBeta(CONTEXT_EDITS_BETA, candidate);
  return { editsContext };
}

/** A cache of an hour has a price of its own, which has to be known and to be told apart. */
export function pricesLongCache({ terms, provider }: Candidate): boolean {
  return (
    provider.metersCacheLifetimes === true && terms.prices.cacheWriteHourTokenFemto !== undefined
  );
}

function planTranslated(asked: AskedOfCandidates, plan: RoutePlan, passed: Part): Part {
  const candidates = plan.candidates.filter((one) => !passed.candidates.has(one));
  const nothing: Part = { candidates: new Set(), lacked: new Map(), skipped: [] };
  if (candidates.length === 0) return nothing;
  const before = plan.skipped?.length ?? 0;
  let planned: RoutePlan;
  try {
    planned = planFields(asked.chat, { ...plan, candidates }, HINTS);
  } catch (error) {
    if (passed.candidates.size === 0) throw renamed(error);
    const skipped = candidates.map(({ placeId }) => ({ placeId, reason: "lacks_fields" }));
    return { ...nothing, skipped };
  }
  const lacked = new Map<Candidate, LackedFields>();
  for (const candidate of planned.candidates) {
    const { leftOut = [], listed = [] } = planned.lacked?.get(candidate) ?? {};
    const all = [...listed.map(nameOf), ...lackedBeside(asked, candidate)];
    if (all.length > 0) lacked.set(candidate, { leftOut, listed: [...new Set(all)] });
  }
  return {
    candidates: new Set(planned.candidates),
    lacked,
    skipped: planned.skipped?.slice(before) ?? [],
  };
}

/** What a translated request leaves out besides fields of the chat call. */
function lackedBeside(asked: AskedOfCandidates, candidate: Candidate): string[] {
  const { untranslated, unpriced, betas, maxTokens, hasCacheControl } = asked;
  const listed = [...unpriced, ...untranslated, ...betas.map(nameOfBeta)];
  if (hasCacheControl && !keepsCacheControl(candidate)) listed.push("cache_control");
  if (maxTokens > candidate.terms.maxOutputTokens) listed.push("max_tokens");
  return listed;
}

/** Whether a candidate knows the breakpoints of Anthropic's cache. */
export function keepsCacheControl(candidate: Candidate): boolean {
  const { fields } = candidate.provider;
  const value = { type: "ephemeral" };
  return fields?.missing("cache_control", value, fieldModelOf(candidate), true, {}).length === 0;
}

/** Up to here a prompt has the usual price, and is what models without the beta take. */
const USUAL_CONTEXT = 200_000;
const LONG_CONTEXT = /^context-1m-/;

/** Betas that only change what is left out anyway pass. Of a longer prompt the price has to be known. */
export function passesBeta(beta: string, candidate: Candidate): boolean {
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

/** An error that names a field of the chat call, which the caller does not know. */
function renamed(error: unknown): unknown {
  if (!(error instanceof GatewayError) || error.param === null) return error;
  const name = nameOf(error.param);
  if (name === error.param) return error;
  const message = error.message.replace(JSON.stringify(error.param), JSON.stringify(name));
  return new GatewayError(error.code, message, { param: name, cause: error });
}
