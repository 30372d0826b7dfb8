import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ClaudeTraits } from "./model-traits.ts";
import { thinkingOf } from "./reasoning-details.ts";
import { forcesTool } from "./tools.ts";

/** Smallest thinking budget that Anthropic accepts, in tokens. It has to be below the output limit. */
const MIN_BUDGET_TOKENS = 1_024;
/** Largest budget derived from an effort, in tokens. For larger budgets Anthropic advises batches. */
const MAX_DERIVED_BUDGET_TOKENS = 32_000;

/**
 * Share of the output limit that each effort gives to thinking, in percent. OpenRouter uses the same shares.
 */
export const BUDGET_PERCENT: Readonly<Record<string, number>> = {
  minimal: 10,
  low: 20,
  medium: 50,
  high: 80,
  xhigh: 95,
  max: 95,
};

interface RequestedThinking {
  readonly isOff: boolean;
  readonly effort: string | undefined;
  readonly budgetTokens: number | undefined;
  /** Anthropic's `display` of adaptive thinking. */
  readonly display?: unknown;
}

/**
 * Returns the thinking that a request asks for: in `thinking` (Anthropic's form), or else in `reasoning`, or
 * else in `reasoning_effort`. Returns undefined if the request says nothing about thinking.
 */
function requestedThinking(fields: ChatRequestFields): RequestedThinking | undefined {
  const { thinking, reasoning, reasoning_effort: effort } = fields;
  const byObject = isFields(reasoning) ? thinkingFromReasoning(reasoning) : undefined;
  const requested =
    byObject ?? (typeof effort === "string" ? thinkingFromEffort(effort) : undefined);
  return (
    (isFields(thinking) ? thinkingFromObject(thinking, requested?.effort) : undefined) ?? requested
  );
}

/**
 * Reads Anthropic's `thinking` (https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking). The
 * effort comes from another field.
 */
function thinkingFromObject(
  thinking: Readonly<Record<string, unknown>>,
  effort: string | undefined,
): RequestedThinking | undefined {
  const { type, budget_tokens: budget, display } = thinking;
  if (type === "disabled") return thinkingFromEffort("none");
  if (type !== "enabled" && type !== "adaptive") return undefined;
  const budgetTokens = type === "enabled" && typeof budget === "number" ? budget : undefined;
  const requested = { isOff: false, effort: effort === "none" ? undefined : effort, budgetTokens };
  return display === undefined ? requested : { ...requested, display };
}

function thinkingFromReasoning(
  reasoning: Readonly<Record<string, unknown>>,
): RequestedThinking | undefined {
  const { effort, max_tokens: budget, enabled } = reasoning;
  if (enabled === false) return thinkingFromEffort("none");
  const budgetTokens = typeof budget === "number" ? budget : undefined;
  if (typeof effort === "string") return { ...thinkingFromEffort(effort), budgetTokens };
  if (budgetTokens !== undefined) return { isOff: false, effort: undefined, budgetTokens };
  return enabled === true ? thinkingFromEffort("medium") : undefined;
}

function thinkingFromEffort(effort: string): RequestedThinking {
  return { isOff: effort === "none", effort, budgetTokens: undefined };
}

export interface ThinkingConfig {
  readonly thinking?: Readonly<Record<string, unknown>>;
  readonly effort?: string;
}

const NOTHING: ThinkingConfig = {};

/**
 * Returns the fields to send for the requested thinking. Thinking counts towards the output limit, so a
 * budget is always below that limit. If the limit leaves no room for the smallest budget, the model does not
 * think.
 */
export function thinkingConfig(
  requested: RequestedThinking | undefined,
  traits: ClaudeTraits,
  outputTokens: number,
): ThinkingConfig {
  if (requested === undefined || traits.thinking === "none") return NOTHING;
  if (requested.isOff) {
    // A model that thinks by budget does not think without one.
    if (traits.thinking === "budget" || !traits.canStopThinking) return NOTHING;
    return { thinking: { type: "disabled" } };
  }
  const usesBudget = requested.budgetTokens !== undefined && traits.takesThinkingBudget;
  if (traits.thinking === "adaptive" && !usesBudget) {
    const effort = effortOf(requested.effort, traits);
    const thinking = { type: "adaptive", display: requested.display ?? "summarized" };
    return effort === undefined ? { thinking } : { thinking, effort };
  }
  if (outputTokens <= MIN_BUDGET_TOKENS) return NOTHING;
  const percent = BUDGET_PERCENT[requested.effort ?? "medium"] ?? BUDGET_PERCENT.medium!;
  const derived = Math.min(Math.floor((outputTokens * percent) / 100), MAX_DERIVED_BUDGET_TOKENS);
  const budgetTokens = Math.max(requested.budgetTokens ?? derived, MIN_BUDGET_TOKENS);
  return { thinking: { type: "enabled", budget_tokens: Math.min(budgetTokens, outputTokens - 1) } };
}

/** Returns Anthropic's name of an effort. Passes unknown names on for Anthropic to judge. */
function effortOf(effort: string | undefined, traits: ClaudeTraits): string | undefined {
  if (effort === "minimal") return "low";
  return effort === "xhigh" && !traits.hasXhighEffort ? "high" : effort;
}

/** Members of `reasoning` that the gateway follows itself or that this file reads. */
const SUPPORTED_MEMBERS = new Set(["effort", "max_tokens", "enabled", "exclude"]);

/**
 * Returns the members of `reasoning` that the model does not follow, or only "reasoning" if it follows none
 * of them.
 */
export function unfollowedReasoning(
  value: unknown,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): readonly string[] {
  const members = Object.entries(value as Readonly<Record<string, unknown>>).filter(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  if (members.length === 0) return [];
  const requested = requestedThinking({ reasoning: value });
  if (requested !== undefined && cannotThink(requested, traits, request)) return ["reasoning"];
  return members
    .map(([name]) => name)
    .filter((name) => {
      if (name === "max_tokens") return !traits.takesThinkingBudget;
      return !SUPPORTED_MEMBERS.has(name);
    })
    .map((name) => `reasoning.${name}`);
}

/**
 * Returns the members of `thinking` that the model does not follow, or only "thinking" if it cannot follow
 * the field at all.
 */
export function unfollowedThinking(
  value: unknown,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): readonly string[] {
  const requested = isFields(value) ? thinkingFromObject(value, undefined) : undefined;
  if (requested === undefined || cannotThink(requested, traits, request)) return ["thinking"];
  const { type, budget_tokens: budget } = value as Readonly<Record<string, unknown>>;
  // The model thinks by budget instead.
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
  return cannotThink(thinkingFromEffort(String(value)), traits, request);
}

/** Returns true if the request asks for thinking and the model can follow. */
export function willThink(traits: ClaudeTraits, request: ChatRequestFields): boolean {
  return possibleThinking(traits, request)?.isOff === false;
}

/**
 * Returns the requested thinking. Returns undefined if the request asks for no thinking, or if the model
 * cannot follow it.
 */
export function possibleThinking(
  traits: ClaudeTraits,
  request: ChatRequestFields,
): RequestedThinking | undefined {
  const requested = requestedThinking(request);
  return requested === undefined || cannotThink(requested, traits, request) ? undefined : requested;
}

/**
 * Returns true if the model cannot follow the requested thinking. A model that thinks cannot be forced to
 * call a tool (https://platform.claude.com/docs, "Extended thinking with tool use"). Without schemas, a
 * forced tool is also the only way to JSON.
 */
function cannotThink(
  requested: RequestedThinking,
  traits: ClaudeTraits,
  request: ChatRequestFields,
): boolean {
  if (traits.thinking === "none") return !requested.isOff;
  if (requested.isOff) return traits.thinking === "adaptive" && !traits.canStopThinking;
  if (forcesTool(request, traits)) return true;
  const isByBudget = traits.thinking === "budget" || requested.budgetTokens !== undefined;
  if (!isByBudget) return false;
  const stated = request.max_completion_tokens ?? request.max_tokens;
  if (typeof stated === "number" && stated <= MIN_BUDGET_TOKENS) return true;
  return isPastThinking(request.messages);
}

/**
 * Returns true if tool results answer calls without thinking, or whose thinking was not sent back. A model
 * that thinks by budget cannot begin to think in the middle of its turn.
 */
function isPastThinking(messages: unknown): boolean {
  if (!Array.isArray(messages)) return false;
  const index = messages.findLastIndex(({ role }) => role !== "tool");
  const answer: unknown = messages[index];
  if (index === messages.length - 1 || !isFields(answer) || answer.role !== "assistant")
    return false;
  return thinkingOf(answer).length === 0;
}
