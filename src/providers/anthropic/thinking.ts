import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ClaudeTraits } from "./model-traits.ts";
import { thinkingOf } from "./reasoning-details.ts";
import { forcesTool } from "./tools.ts";

/** The least that Anthropic takes as a thinking budget, which has to be below the limit of the answer. */
const MIN_BUDGET_TOKENS = 1_024;
/** A budget that is derived from an effort stays below what Anthropic advises to run in batches. */
const MAX_DERIVED_BUDGET_TOKENS = 32_000;

/** The part of the limit of an answer that each effort gives to thinking, as OpenRouter has it. */
export const BUDGET_PERCENT: Readonly<Record<string, number>> = {
  minimal: 10,
  low: 20,
  medium: 50,
  high: 80,
  xhigh: 95,
  max: 95,
};

interface AskedThinking {
  readonly isOff: boolean;
  readonly effort: string | undefined;
  readonly budgetTokens: number | undefined;
  /** Anthropic's word for how adaptive thinking is shown. */
  readonly display?: unknown;
}

/**
 * What `thinking` in Anthropic's form, or else `reasoning`, or else `reasoning_effort` asks for; undefined
 * where they ask for nothing.
 */
function askedThinking(fields: ChatRequestFields): AskedThinking | undefined {
  const { thinking, reasoning, reasoning_effort: effort } = fields;
  const byObject = isFields(reasoning) ? askedByObject(reasoning) : undefined;
  const asked = byObject ?? (typeof effort === "string" ? askedByEffort(effort) : undefined);
  return (isFields(thinking) ? askedByThinking(thinking, asked?.effort) : undefined) ?? asked;
}

/** https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking; the effort is stated elsewhere. */
function askedByThinking(
  thinking: Readonly<Record<string, unknown>>,
  effort: string | undefined,
): AskedThinking | undefined {
  const { type, budget_tokens: budget, display } = thinking;
  if (type === "disabled") return askedByEffort("none");
  if (type !== "enabled" && type !== "adaptive") return undefined;
  const budgetTokens = type === "enabled" && typeof budget === "number" ? budget : undefined;
  const asked = { isOff: false, effort: effort === "none" ? undefined : effort, budgetTokens };
  return display === undefined ? asked : { ...asked, display };
}

function askedByObject(reasoning: Readonly<Record<string, unknown>>): AskedThinking | undefined {
  const { effort, max_tokens: budget, enabled } = reasoning;
  if (enabled === false) return askedByEffort("none");
  const budgetTokens = typeof budget === "number" ? budget : undefined;
  if (typeof effort === "string") return { ...askedByEffort(effort), budgetTokens };
  if (budgetTokens !== undefined) return { isOff: false, effort: undefined, budgetTokens };
  return enabled === true ? askedByEffort("medium") : undefined;
}

function askedByEffort(effort: string): AskedThinking {
  return { isOff: effort === "none", effort, budgetTokens: undefined };
}

export interface ThinkingConfig {
  readonly thinking?: Readonly<Record<string, unknown>>;
  readonly effort?: string;
}

const NOTHING: ThinkingConfig = {};

/**
 * What is sent for it. Thinking counts towards the limit of output tokens, so a budget is always below that;
 * where that leaves no room for the least budget, the model does not think.
 */
export function thinkingConfig(
  asked: AskedThinking | undefined,
  traits: ClaudeTraits,
  outputTokens: number,
): ThinkingConfig {
  if (asked === undefined || traits.thinking === "none") return NOTHING;
  if (asked.isOff) {
    // Where it is a budget that makes a model think, none is enough.
    if (traits.thinking === "budget" || !traits.canStopThinking) return NOTHING;
    return { thinking: { type: "disabled" } };
  }
  const asksForBudget = asked.budgetTokens !== undefined && traits.takesThinkingBudget;
  if (traits.thinking === "adaptive" && !asksForBudget) {
    const effort = effortOf(asked.effort, traits);
    const thinking = { type: "adaptive", display: asked.display ?? "summarized" };
    return effort === undefined ? { thinking } : { thinking, effort };
  }
  if (outputTokens <= MIN_BUDGET_TOKENS) return NOTHING;
  const percent = BUDGET_PERCENT[asked.effort ?? "medium"] ?? BUDGET_PERCENT.medium!;
  const derived = Math.min(Math.floor((outputTokens * percent) / 100), MAX_DERIVED_BUDGET_TOKENS);
  const wanted = Math.max(asked.budgetTokens ?? derived, MIN_BUDGET_TOKENS);
  return { thinking: { type: "enabled", budget_tokens: Math.min(wanted, outputTokens - 1) } };
}

/** Anthropic's word for it; one that is not known is its own to judge. */
function effortOf(effort: string | undefined, traits: ClaudeTraits): string | undefined {
  if (effort === "minimal") return "low";
  return effort === "xhigh" && !traits.hasXhighEffort ? "high" : effort;
}

/** Members of `reasoning` that are the gateway's to follow, or that this file reads. */
const KNOWN_MEMBERS = new Set(["effort", "max_tokens", "enabled", "exclude"]);

/** Names of what of `reasoning` the model does not do; the whole field's where that is all of it. */
export function unfollowedReasoning(
  value: unknown,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): readonly string[] {
  const members = Object.entries(value as Readonly<Record<string, unknown>>).filter(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  if (members.length === 0) return [];
  const asked = askedThinking({ reasoning: value });
  if (asked !== undefined && cannotThink(asked, traits, request)) return ["reasoning"];
  return members
    .map(([name]) => name)
    .filter((name) => {
      if (name === "max_tokens") return !traits.takesThinkingBudget;
      return !KNOWN_MEMBERS.has(name);
    })
    .map((name) => `reasoning.${name}`);
}

/** The same of `thinking`. */
export function unfollowedThinking(
  value: unknown,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): readonly string[] {
  const asked = isFields(value) ? askedByThinking(value, undefined) : undefined;
  if (asked === undefined || cannotThink(asked, traits, request)) return ["thinking"];
  const { type, budget_tokens: budget } = value as Readonly<Record<string, unknown>>;
  // It thinks as it can.
  if (type === "adaptive" && traits.thinking === "budget") return ["thinking.type"];
  return type === "enabled" && budget !== undefined && !traits.takesThinkingBudget
    ? ["thinking.budget_tokens"]
    : [];
}

export function unfollowedEffort(
  value: unknown,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): boolean {
  return cannotThink(askedByEffort(String(value)), traits, request);
}

/** Whether the request asks for thinking that it then gets. */
export function willThink(traits: ClaudeTraits, request: ChatRequestFields): boolean {
  return possibleThinking(traits, request)?.isOff === false;
}

/** What is asked for and can be had; undefined where the request asks for nothing, or for what cannot be. */
export function possibleThinking(
  traits: ClaudeTraits,
  request: ChatRequestFields,
): AskedThinking | undefined {
  const asked = askedThinking(request);
  return asked === undefined || cannotThink(asked, traits, request) ? undefined : asked;
}

/**
 * While it thinks, a model cannot be made to call a tool (https://platform.claude.com/docs, "Extended thinking
 * with tool use"), which is also how it is held to JSON without schemas.
 */
function cannotThink(
  asked: AskedThinking,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): boolean {
  if (traits.thinking === "none") return !asked.isOff;
  if (asked.isOff) return traits.thinking === "adaptive" && !traits.canStopThinking;
  if (forcesTool(request, traits)) return true;
  const isByBudget = traits.thinking === "budget" || asked.budgetTokens !== undefined;
  if (!isByBudget) return false;
  const stated = request.max_completion_tokens ?? request.max_tokens;
  if (typeof stated === "number" && stated <= MIN_BUDGET_TOKENS) return true;
  return isPastThinking(request.messages);
}

/**
 * Whether results of tools answer calls that came without thinking, or whose thinking was not sent back: a
 * model that thinks by a budget cannot begin to in the midst of its turn.
 */
function isPastThinking(messages: unknown): boolean {
  if (!Array.isArray(messages)) return false;
  const at = messages.findLastIndex(({ role }) => role !== "tool");
  const answer: unknown = messages[at];
  if (at === messages.length - 1 || !isFields(answer) || answer.role !== "assistant") return false;
  return thinkingOf(answer).length === 0;
}
