import { isFields } from "../../lib/json.ts";
import { estimatedUsage } from "../../lib/usage.ts";
import type {
  ModerationCall,
  ModerationResult,
  Moderations,
  Provider,
  ProviderSettings,
} from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

/**
 * Returns a function that requests moderations with OpenAI's API
 * (https://platform.openai.com/docs/api-reference/moderations/create). Mistral's is the same API without `flagged`. It
 * rejects with ProviderFailure.
 */
export function openAiModerate(
  wire: HttpJsonProvider,
  settings: ProviderSettings,
): NonNullable<Provider["moderate"]> {
  const url = endpointUrl(settings.baseUrl, "/moderations");
  return async (call: ModerationCall) => {
    const { model, input, fields } = call;
    const response = await wire.post(url, JSON.stringify({ ...fields, model, input }), call);
    const results = typeof input[0] === "string" ? input.length : 1;
    const { failureContext } = wire;
    return wire.read(response, moderationsRead, { results, failureContext }, call);
  };
}

interface ModerationsOptions {
  readonly results: number;
  readonly failureContext: FailureContext;
}

/** Reads moderation results. Throws ProviderFailure if the text is not a list with one result for each input. */
export const moderationsRead = new AnswerRead(
  import.meta.url,
  (text, { results: expected, failureContext }: ModerationsOptions): Moderations => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    const { results, usage } = isFields(answer) ? answer : {};
    // An input without a result has not been checked.
    if (!Array.isArray(results) || results.length !== expected) {
      throw brokenAnswer("a number of results that differs from the number of inputs");
    }
    // All results are read, so that a broken one is never skipped.
    return { results: results.map(resultOf), usage: usageOf(usage) };
  },
);

function resultOf(result: unknown): ModerationResult {
  const fields = isFields(result) ? result : {};
  const { categories, category_scores: scores, category_applied_input_types: types } = fields;
  return {
    flagged: isFlagged(fields),
    categories: isFields(categories) ? categories : {},
    category_scores: isFields(scores) ? scores : {},
    ...(isFields(types) && { category_applied_input_types: types }),
  };
}

function isFlagged({ flagged, categories }: Readonly<Record<string, unknown>>): boolean {
  if (typeof flagged === "boolean") return flagged;
  if (flagged !== undefined || !isFields(categories))
    throw brokenAnswer("a result without a decision");
  const decisions = Object.values(categories);
  if (decisions.length > 0 && decisions.every((decision) => typeof decision === "boolean")) {
    return decisions.includes(true);
  }
  throw brokenAnswer("a result without a decision");
}

function usageOf(raw: unknown): Moderations["usage"] {
  const tokens = isFields(raw) ? (raw.prompt_tokens ?? raw.total_tokens) : undefined;
  if (!Number.isSafeInteger(tokens) || (tokens as number) <= 0) return undefined;
  return { ...estimatedUsage(tokens as number, 0), estimated: false };
}
