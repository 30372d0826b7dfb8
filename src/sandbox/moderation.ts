import { estimatedUsage } from "../lib/usage.ts";
import { yieldToEventLoop } from "../lib/yield-to-event-loop.ts";
import type { ModerationCall, ModerationResult, Moderations } from "../providers/interface.ts";
import { unknownModel } from "./drills.ts";
import { countTokens } from "./tokens.ts";
import { aborted } from "./wait.ts";

const MODEL = "moderation";

/** OpenAI's categories, in its order. */
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
const FLAGGED_SCORE = 0.99;
const OTHER_SCORE = 0.01;

/** Flags texts that contain the name of a category, such as "violence". Never flags images. */
export async function sandboxModerate(call: ModerationCall): Promise<Moderations> {
  if (call.signal.aborted) throw aborted(call.signal);
  const name = call.model.replace(/^sandbox\//, "");
  if (name !== MODEL) throw unknownModel(name, "moderation");
  const texts = call.input.map((item) => (typeof item === "string" ? item : (item.text ?? "")));
  const isSingleInput = typeof call.input[0] !== "string";
  const results: ModerationResult[] = [];
  let tokens = 0;
  for (const text of isSingleInput ? [texts.join("\n")] : texts) {
    // Without a pause, many long inputs would block the event loop.
    await yieldToEventLoop();
    if (call.signal.aborted) throw aborted(call.signal);
    tokens += countTokens(text);
    results.push(resultOf(text.toLowerCase()));
  }
  return { results, usage: { ...estimatedUsage(tokens, 0), estimated: false } };
}

function resultOf(text: string): ModerationResult {
  const matches = CATEGORIES.map((category) => [category, text.includes(category)] as const);
  return {
    flagged: matches.some(([, isMatch]) => isMatch),
    categories: Object.fromEntries(matches),
    category_scores: Object.fromEntries(
      matches.map(([category, isMatch]) => [category, isMatch ? FLAGGED_SCORE : OTHER_SCORE]),
    ),
    category_applied_input_types: Object.fromEntries(
      CATEGORIES.map((category) => [category, ["text"]]),
    ),
  };
}
