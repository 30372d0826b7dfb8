import { estimatedUsage } from "../lib/usage.ts";
import type { ModerationCall, ModerationResult, Moderations } from "../providers/interface.ts";
import { unknownModel } from "./drills.ts";
import { countTokens } from "./tokens.ts";
import { aborted } from "./wait.ts";

const MODEL = "moderation";

/** OpenAI's, in its order. */
const CATEGORIES = [
  "harassment",
  "harassment/threatening",
  "hate",
  "hate/threatening",
  "illicit",
  "illicit/violent",
  "self-harm",
  "self-harm/instructions",
  "self-harm/intent",
  "sexual",
  "sexual/minors",
  "violence",
  "violence/graphic",
] as const;
const FOUND_SCORE = 0.99;
const OTHER_SCORE = 0.01;

/** Flags what names a category: a text with the word "violence" is of that category. Images are never flagged. */
export async function sandboxModerate(call: ModerationCall): Promise<Moderations> {
  if (call.signal.aborted) throw aborted(call.signal);
  const name = call.model.replace(/^sandbox\//, "");
  if (name !== MODEL) throw unknownModel(name, "moderation");
  const texts = call.input.map((one) => (typeof one === "string" ? one : (one.text ?? "")));
  const isOne = typeof call.input[0] !== "string";
  const results: ModerationResult[] = [];
  let tokens = 0;
  for (const text of isOne ? [texts.join("\n")] : texts) {
    // Many long inputs would hold the event loop.
    await new Promise<void>((resolve) => void setImmediate(resolve));
    if (call.signal.aborted) throw aborted(call.signal);
    tokens += countTokens(text);
    results.push(resultOf(text.toLowerCase()));
  }
  return { results, usage: { ...estimatedUsage(tokens, 0), estimated: false } };
}

function resultOf(text: string): ModerationResult {
  const found = CATEGORIES.map((category) => [category, text.includes(category)] as const);
  return {
    flagged: found.some(([, isFound]) => isFound),
    categories: Object.fromEntries(found),
    category_scores: Object.fromEntries(
      found.map(([category, isFound]) => [category, isFound ? FOUND_SCORE : OTHER_SCORE]),
    ),
    category_applied_input_types: Object.fromEntries(
      CATEGORIES.map((category) => [category, ["text"]]),
    ),
  };
}
