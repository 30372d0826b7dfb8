import type { SandboxMessage } from "./request.ts";
import type { LearnedAnswers } from "./tuning/learned-answers.ts";

/** More numbers than any answer has tokens for. */
const MAX_COUNT = 16_384;

const STATEMENT =
  "This is the sandbox of the gateway, not a language model. It repeats what it is told, " +
  'counts when asked to ("count to 100"), calls the tools it is offered with arguments that ' +
  "satisfy their schemas, and obeys response formats. The same request always gets the same answer.";

/**
 * The text that answers a conversation: a tool's result if one came after the last user message,
 * a count if the user asked for one ("count to 100"), else what the user said.
 */
export function answerText(messages: readonly SandboxMessage[]): string {
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const toolResults = messages.slice(lastUser + 1).filter((message) => message.role === "tool");
  if (toolResults.length > 0) {
    return toolResults.map((result) => `The tool said: ${result.text}`).join("\n");
  }
  const said = lastUser === -1 ? "" : messages[lastUser]!.text;
  const count = /\bcount (?:up )?to (\d{1,9})\b/i.exec(said);
  if (count !== null) return countedTo(Number(count[1]));
  return said === "" ? `You said nothing.\n\n${STATEMENT}` : `You said: ${said}\n\n${STATEMENT}`;
}

/** What a tuned model has learned for the last thing that the user said, otherwise what its base model says. */
export function learnedText(
  learned: LearnedAnswers | undefined,
  messages: readonly SandboxMessage[],
): string {
  const said = messages.findLast((message) => message.role === "user")?.text ?? "";
  return learned?.answerTo(said) ?? answerText(messages);
}

function countedTo(last: number): string {
  const numbers = Array.from({ length: Math.min(last, MAX_COUNT) }, (_, index) => index + 1);
  return `${numbers.join(", ")}.`;
}
