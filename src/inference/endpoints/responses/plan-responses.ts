import { GatewayError } from "../../../lib/errors.ts";
import { type CandidateSupport, filterBySupport } from "../../call/routing/filter-by-support.ts";
import type { Candidate, RoutePlan, UnsupportedFields } from "../../call/routing/plan-route.ts";
import { planFields } from "../chat-completions/request-fields.ts";
import { receivesItems, unsupportedProviderTools } from "./provider-tools.ts";
import type { ResponsesFacts } from "./request-facts.ts";

/** Features that coding agents request by default. They are left out if a model does not support them. */
const HINTS: ReadonlySet<string> = new Set(["parallel_tool_calls"]);

/** Names in this API of the chat call's fields. */
const NAMES: Readonly<Record<string, string>> = {
  response_format: "text.format",
  verbosity: "text.verbosity",
  max_tokens: "max_output_tokens",
  logprobs: "top_logprobs",
  reasoning: "reasoning.effort",
};
const CONTENT = /^messages\..*/;

/**
 * Plans a request by the features of its candidates. Unsupported parts are left out and listed, together with
 * parts that no chat supports. Throws 400 unsupported_parameter if no candidate is left.
 *
 * @param definitions tools that the gateway offers in addition to the request's own
 */
export function planResponses(
  facts: ResponsesFacts,
  plan: RoutePlan,
  definitions: readonly unknown[] = [],
): RoutePlan {
  const { chat: requested, untranslated, ofProvider } = facts;
  const chat =
    definitions.length === 0
      ? requested
      : { ...requested, tools: [...(requested.tools ?? []), ...definitions] };
  if (plan.candidates.length === 0) return plan;
  const requiresAll = chat.provider?.require_parameters === true;
  if (requiresAll && ofProvider === undefined && untranslated.length > 0) {
    throw unsupportedError(untranslated[0]!);
  }
  const supportedPlan =
    ofProvider === undefined
      ? plan
      : filterBySupport(plan, (candidate) => unsupportedItems(facts, candidate, requiresAll));
  let planned: RoutePlan;
  try {
    planned = planFields(chat, supportedPlan, HINTS);
  } catch (error) {
    throw renamed(error);
  }
  if (untranslated.length === 0 && planned.unsupported === undefined) return planned;
  const unsupported = new Map<Candidate, UnsupportedFields>();
  for (const candidate of planned.candidates) {
    const { leftOut = [], listed = [] } = planned.unsupported?.get(candidate) ?? {};
    const missed = listed.filter((name) => isMissed(name, chat.reasoning));
    const ofItems = unsupportedItems(facts, candidate, false);
    const all = [...new Set([...missed.map(nameOf), ...ofItems.listed])];
    const without = [...leftOut, ...ofItems.leftOut];
    if (all.length + without.length > 0)
      unsupported.set(candidate, { leftOut: without, listed: all });
  }
  return { ...planned, unsupported };
}

/** Returns the tools and items without a counterpart in chats that a candidate does not support. */
function unsupportedItems(
  facts: ResponsesFacts,
  candidate: Candidate,
  requiresAll: boolean,
): CandidateSupport {
  const { untranslated, ofProvider, chat } = facts;
  const { leftOut, barrier } = unsupportedProviderTools(facts, candidate);
  const asItems = receivesItems(facts, candidate);
  const penalties = asItems ? PENALTIES.filter((name) => chat[name]) : [];
  const sent = asItems ? (ofProvider?.tools ?? []).map(({ type }) => `tools.${type}`) : [];
  const missed = untranslated.filter((name) => {
    if (asItems && name.startsWith("input.")) return false;
    if (asItems && name === "truncation" && ofProvider?.computer !== undefined) return false;
    return !sent.includes(name) || leftOut.includes(name);
  });
  const listed = [...new Set([...missed, ...leftOut, ...penalties])];
  const [first] = listed;
  return {
    leftOut: [...leftOut, ...penalties],
    listed,
    barrier: barrier ?? (requiresAll && first ? { name: first, param: first } : undefined),
  };
}

/** Fields that OpenAI's Responses API does not have. */
const PENALTIES = ["presence_penalty", "frequency_penalty"] as const;

/** Returns false for reasoning summaries, because the gateway makes them from the model's reasoning. */
function isMissed(name: string, reasoning: ResponsesFacts["chat"]["reasoning"]): boolean {
  return name !== "reasoning.summary" && (name !== "reasoning" || Boolean(reasoning?.effort));
}

function nameOf(field: string): string {
  return Object.hasOwn(NAMES, field) ? NAMES[field]! : field.replace(CONTENT, "input");
}

function unsupportedError(param: string): GatewayError {
  const message = `${param} is not supported by any provider of the model.`;
  return new GatewayError("unsupported_parameter", message, { param });
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
