import { ProviderFailure } from "../interface.ts";
import { GEMINI_2_5, GEMINI_3, type ModelGeneration } from "./model-generation.ts";

type Fields = Readonly<Record<string, unknown>>;

/** https://ai.google.dev/api/generate-content#ThinkingConfig */
export interface ThinkingConfig {
  readonly includeThoughts?: boolean;
  readonly thinkingBudget?: number;
  readonly thinkingLevel?: string;
}

/** The budgets that Google's OpenAI-compatible interface uses for efforts on Gemini 2.5. */
const BUDGETS: Readonly<Record<string, number>> = {
  minimal: 1_024,
  low: 1_024,
  medium: 8_192,
  high: 24_576,
};
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/** The model decides itself how much it thinks. */
const DYNAMIC_BUDGET = -1;

/** What a request says of reasoning, under its two names. */
interface AskedReasoning {
  /** "none" where thinking is to be turned off. */
  readonly effort: string | undefined;
  readonly maxTokens: number | undefined;
  readonly wantsThoughts: boolean;
}

/**
 * The configuration for `reasoning` (OpenRouter's form) or `reasoning_effort` (OpenAI's): a budget for Gemini
 * 2.5, a level from Gemini 3 on. Undefined if the request asks for nothing or the model does not think. Throws
 * ProviderFailure for an unknown effort.
 */
export function thinkingConfig(
  body: Fields,
  generation: ModelGeneration,
): ThinkingConfig | undefined {
  const asked = askedReasoning(body);
  if (asked === undefined || generation.version < GEMINI_2_5) return undefined;
  const amount =
    generation.version < GEMINI_3
      ? budgetOf(asked, generation)
      : { thinkingLevel: levelOf(asked, generation) };
  const { thinkingLevel, thinkingBudget } = amount as ThinkingConfig;
  return {
    ...(asked.wantsThoughts && { includeThoughts: true }),
    ...(thinkingBudget !== undefined && { thinkingBudget }),
    ...(thinkingLevel !== undefined && { thinkingLevel }),
  };
}

/** Members of `reasoning` that the model cannot follow exactly; the closest possible value is sent. */
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
  // A level stands for no number of tokens.
  if (generation.version >= GEMINI_3 && typeof maxTokens === "number") {
    names.push("reasoning.max_tokens");
  }
  return names;
}

function askedReasoning(body: Fields): AskedReasoning | undefined {
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

/** Of Gemini 2.5 only Pro cannot stop thinking, and Flash-Lite thinks for at least 512 tokens if at all. */
function budgetOf(
  { effort, maxTokens }: AskedReasoning,
  { isPro, isLite }: ModelGeneration,
): ThinkingConfig {
  const least = isPro ? 128 : isLite ? 512 : 1;
  const most = isPro ? 32_768 : 24_576;
  if (effort === "none") return { thinkingBudget: isPro ? least : 0 };
  const asked = maxTokens ?? (effort === undefined ? undefined : (BUDGETS[effort] ?? most));
  if (asked === undefined) return { thinkingBudget: DYNAMIC_BUDGET };
  return { thinkingBudget: Math.min(most, Math.max(least, asked)) };
}

/** Undefined leaves it to the model. */
function levelOf(
  { effort, maxTokens }: AskedReasoning,
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
      // The first Pro of Gemini 3 has two levels.
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

/** Flash and Flash-Lite of Gemini 3 up to 3.6. */
function hasMinimalLevel({ version, isPro, isLite }: ModelGeneration): boolean {
  return !isPro && (version <= 306 || (isLite && version < 400));
}
