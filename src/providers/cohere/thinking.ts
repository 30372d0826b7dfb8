import { isFields } from "../../lib/json.ts";
import { BUDGET_PERCENT } from "../anthropic/thinking.ts";
import type { ChatRequestFields } from "../chat-body.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Assumed output limit of the reasoning models, in tokens, for requests without a limit. */
const USUAL_LIMIT_TOKENS = 32_000;

/** Models that cannot think. All later models can. */
const WITHOUT_THINKING = /command(?:-r|-light|-nightly|-a-(?:03|vision|translate)|$)|aya/;

export function canThink(model: string, modelId: string = model): boolean {
  return !WITHOUT_THINKING.test(model) && !WITHOUT_THINKING.test(modelId);
}

/**
 * Returns `thinking` for `reasoning` (OpenRouter's form) or `reasoning_effort` (OpenAI's form). Cohere has a
 * token budget instead of efforts (https://docs.cohere.com/docs/reasoning). Returns undefined if the request
 * says nothing about thinking.
 */
export function thinkingOf(fields: ChatRequestFields): Fields | undefined {
  const { reasoning, reasoning_effort: stated, max_tokens: limit } = fields;
  const { effort = stated, max_tokens: budget, enabled } = isFields(reasoning) ? reasoning : {};
  if (enabled === false || effort === "none") return { type: "disabled" };
  if (typeof budget === "number") return { type: "enabled", token_budget: Math.max(1, budget) };
  if (typeof effort === "string") {
    const percent = BUDGET_PERCENT[effort] ?? BUDGET_PERCENT.medium!;
    const tokens = typeof limit === "number" ? limit : USUAL_LIMIT_TOKENS;
    return { type: "enabled", token_budget: Math.max(1, Math.floor((tokens * percent) / 100)) };
  }
  return enabled === true ? { type: "enabled" } : undefined;
}

/**
 * Returns the members of `reasoning` that the model does not follow, or only "reasoning" if it cannot think.
 */
export function unfollowedReasoning(value: Fields, thinks: boolean): readonly string[] {
  const names = Object.entries(value)
    .filter(([name, member]) => name !== "exclude" && member !== null)
    .map(([name]) => name);
  if (names.length === 0) return [];
  if (!thinks) return value.enabled === false || value.effort === "none" ? [] : ["reasoning"];
  const unknown = names.filter((name) => !["effort", "max_tokens", "enabled"].includes(name));
  return unknown.map((name) => `reasoning.${name}`);
}
