import { ProviderFailure } from "../interface.ts";
import { GEMINI_2_5, GEMINI_3, type ModelGeneration } from "./model-generation.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Google's thinking configuration: https://ai.google.dev/api/generate-content#ThinkingConfig */
export interface ThinkingConfig {
  readonly includeThoughts?: boolean;
  readonly thinkingBudget?: number;
  readonly thinkingLevel?: string;
}

/** Thinking budgets by effort for Gemini 2.5, in tokens, as in Google's OpenAI-compatible API. */
const BUDGETS: Readonly<Record<string, number>> = {
  minimal: 1_024,
  low: 1_024,
  medium: 8_192,
  high: 24_576,
};
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/** Budget with which the model decides how much it thinks. */
const DYNAMIC_BUDGET = -1;

/** The reasoning that a request asks for, under either of its two fields. */
interface RequestedReasoning {
  /** "none" turns thinking off. */
  readonly effort: string | undefined;
  readonly maxTokens: number | undefined;
  readonly wantsThoughts: boolean;
}

/**
 * Returns the configuration for `reasoning` (OpenRouter's form) or `reasoning_effort` (OpenAI's form): a
 * budget for Gemini 2.5, a level from Gemini 3 on. Returns undefined if the request says nothing or the model
 * does not think. Throws ProviderFailure for an unknown effort.
 */
export function thinkingConfig(
  body: Fields,
  generation: ModelGeneration,
): ThinkingConfig | undefined {
  const requested = requestedReasoning(body);
  if (requested === undefined || generation.version < GEMINI_2_5) return undefined;
  const amount =
    generation.version < GEMINI_3
      ? budgetOf(requested, generation)
      : { thinkingLevel: levelOf(requested, generation) };
  const { thinkingLevel, thinkingBudget } = amount as ThinkingConfig;
  return {
    ...(requested.wantsThoughts && { includeThoughts: true }),
    ...(thinkingBudget !== undefined && { thinkingBudget }),
    ...(thinkingLevel !== undefined && { thinkingLevel }),
  };
}

/**
 * Returns the members of `reasoning` that the model cannot follow exactly. The closest possible value is sent
 * instead.
 */
export function unfollowedReasoning(
  reasoning: Fields,
  generation: ModelGeneration,
): readonly string[] {
  const { effort, enabled, max_tokens: maxTokens } = reasoning;
  const names: string[] = [];
  const cannotStop =
    generation.version >= GEMINI_3 ? !hasMinimalLevel(generation) : generation.isPro;
  if (cannotStop && effort === "none") names.push("reasoning.effort");
  if (cannotStop && enabled === false) names.push("reasoning.enabled");
  // A level does not set a number of tokens.
  if (generation.version >= GEMINI_3 && typeof maxTokens === "number") {
    names.push("reasoning.max_tokens");
  }
  return names;
}

function requestedReasoning(body: Fields): RequestedReasoning | undefined {
  const reasoning = (body.reasoning ?? {}) as Fields;
  const { enabled, exclude, max_tokens: maxTokens } = reasoning;
  const effort = body.reasoning_effort ?? reasoning.effort ?? undefined;
  const param = body.reasoning_effort === undefined ? "reasoning.effort" : "reasoning_effort";
  if (effort !== undefined && !EFFORTS.includes(effort as string)) {
    const message = `${param} has to be one of ${EFFORTS.join(", ")}.`;
    throw new ProviderFailure("rejected", message, { param });
  }
  const isOff = enabled === false || effort === "none";
  const isDefault = !isOff && enabled !== true && (effort ?? maxTokens ?? undefined) === undefined;
  if (isDefault) return undefined;
  return {
    effort: isOff ? "none" : (effort as string | undefined),
    maxTokens: typeof maxTokens === "number" ? maxTokens : undefined,
    wantsThoughts: !isOff && exclude !== true,
  };
}

/**
 * Returns the budget for Gemini 2.5. Only Pro cannot stop thinking. Flash-Lite thinks for at least 512 tokens
 * if it thinks.
 */
function budgetOf(
  { effort, maxTokens }: RequestedReasoning,
  { isPro, isLite }: ModelGeneration,
): ThinkingConfig {
  const min = isPro ? 128 : isLite ? 512 : 1;
  const max = isPro ? 32_768 : 24_576;
  if (effort === "none") return { thinkingBudget: isPro ? min : 0 };
  const requested = maxTokens ?? (effort === undefined ? undefined : (BUDGETS[effort] ?? max));
  if (requested === undefined) return { thinkingBudget: DYNAMIC_BUDGET };
  return { thinkingBudget: Math.min(max, Math.max(min, requested)) };
}

/** Returns the level from Gemini 3 on. Returns undefined to let the model decide. */
function levelOf(
  { effort, maxTokens }: RequestedReasoning,
  generation: ModelGeneration,
): string | undefined {
  switch (effort ?? effortOfBudget(maxTokens)) {
    case undefined:
      return undefined;
    case "none":
    case "minimal":
      return hasMinimalLevel(generation) ? "MINIMAL" : "LOW";
    case "low":
      return "LOW";
    case "medium":
      // The first Pro model of Gemini 3 has two levels.
      return generation.isPro && generation.version === GEMINI_3 ? "HIGH" : "MEDIUM";
    default:
      return "HIGH";
  }
}

function effortOfBudget(maxTokens: number | undefined): string | undefined {
  if (maxTokens === undefined) return undefined;
  if (maxTokens <= BUDGETS.low!) return "low";
  return maxTokens <= BUDGETS.medium! ? "medium" : "high";
}

/** Returns true for Flash and Flash-Lite of Gemini 3 up to 3.6. */
function hasMinimalLevel({ version, isPro, isLite }: ModelGeneration): boolean {
  return !isPro && (version <= 306 || (isLite && version < 400));
}
