import { readUsage, type Usage } from "../billing/usage.ts";
import { isFields } from "./provider-content.ts";

/**
 * The usage that a completion or a chunk of one tells: its own, or Groq's in `x_groq`, or Moonshot's in the
 * choice, which is that of the answer where that has `oneChoice`. Undefined where it tells none that can be
 * true.
 */
export function reportedUsage(
  body: Readonly<Record<string, unknown>>,
  oneChoice: boolean,
): Usage | undefined {
  const { usage, x_groq: groq, choices } = body;
  const told = readUsage(usage) ?? readUsage(isFields(groq) ? groq.usage : undefined);
  if (told !== undefined || !oneChoice || !Array.isArray(choices)) return told;
  const choice: unknown = choices[0];
  return isFields(choice) ? readUsage(choice.usage) : undefined;
}
