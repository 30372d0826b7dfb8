import { GatewayError } from "../../../lib/errors.ts";
import { type Lack, planByLacks } from "../../call/routing/plan-by-lacks.ts";
import type { Candidate, LackedFields, RoutePlan } from "../../call/routing/plan-route.ts";
import { planFields } from "../chat-completions/request-fields.ts";
import { goesAsItems, providerToolLack } from "./provider-tools.ts";
import type { ResponsesFacts } from "./request-facts.ts";

/** What coding agents ask for in passing: left out where a model lacks it. */
const HINTS: ReadonlySet<string> = new Set(["parallel_tool_calls"]);

/** What the fields of the chat call are called here. */
const NAMES: Readonly<Record<string, string>> = {
  response_format: "text.format",
  verbosity: "text.verbosity",
  max_tokens: "max_output_tokens",
  logprobs: "top_logprobs",
  reasoning: "reasoning.effort",
};
const CONTENT = /^messages\..*/;

/**
 * The plan of a request with regard to what its candidates have. What they lack is left out, and listed, together
 * with what no chat has.
 * @param definitions of tools that the gateway offers besides the request's own. Throws 400 unsupported_parameter where no candidate is left.
 */
export function planResponses(
  facts: ResponsesFacts,
  plan: RoutePlan,
  definitions: readonly unknown[] = [],
): RoutePlan {
  const { chat: asked, untranslated, ofProvider } = facts;
  const chat =
    definitions.length === 0
      ? asked
      : { ...asked, tools: [...(asked.tools ?? []), ...definitions] };
  if (plan.candidates.length === 0) return plan;
  const requiresAll = chat.provider?.require_parameters === true;
  if (requiresAll && ofProvider === undefined && untranslated.length > 0) {
    throw lacking(untranslated[0]!);
  }
  const able =
    ofProvider === undefined
      ? plan
      : planByLacks(plan, (candidate) => lackOfItems(facts, candidate, requiresAll));
  let planned: RoutePlan;
  try {
    planned = planFields(chat, able, HINTS);
  } catch (error) {
    throw renamed(error);
  }
  if (untranslated.length === 0 && planned.lacked === undefined) return planned;
  const lacked = new Map<Candidate, LackedFields>();
  for (const candidate of planned.candidates) {
    const { leftOut = [], listed = [] } = planned.lacked?.get(candidate) ?? {};
    const missed = listed.filter((name) => isMissed(name, chat.reasoning));
    const ofItems = lackOfItems(facts, candidate, false);
    const all = [...new Set([...missed.map(nameOf), ...ofItems.listed])];
    const without = [...leftOut, ...ofItems.leftOut];
    if (all.length + without.length > 0) lacked.set(candidate, { leftOut: without, listed: all });
  }
  return { ...planned, lacked };
}

/** What a candidate lacks of the tools and items that chats have no words for. */
function lackOfItems(facts: ResponsesFacts, candidate: Candidate, requiresAll: boolean): Lack {
  const { untranslated, ofProvider, chat } = facts;
  const { leftOut, barrier } = providerToolLack(facts, candidate);
  const asItems = goesAsItems(facts, candidate);
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

/** OpenAI's Responses interface has none. */
const PENALTIES = ["presence_penalty", "frequency_penalty"] as const;

/** Summaries are made here of what a model says of its reasoning. */
function isMissed(name: string, reasoning: ResponsesFacts["chat"]["reasoning"]): boolean {
  return name !== "reasoning.summary" && (name !== "reasoning" || Boolean(reasoning?.effort));
}

function nameOf(field: string): string {
  return Object.hasOwn(NAMES, field) ? NAMES[field]! : field.replace(CONTENT, "input");
}

function lacking(param: string): GatewayError {
  const message = `${param} is not supported by any provider of the model.`;
  return new GatewayError("unsupported_parameter", message, { param });
}

/** An error that names a field of the chat call, which the caller does not know. */
function renamed(error: unknown): unknown {
  if (!(error instanceof GatewayError) || error.param === null) return error;
  const name = nameOf(error.param);
  if (name === error.param) return error;
  const message = error.message.replace(JSON.stringify(error.param), JSON.stringify(name));
  return new GatewayError(error.code, message, { param: name, cause: error });
}
