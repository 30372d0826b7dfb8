import { isFields } from "../../lib/json.ts";
import { tokensOfBytes } from "../../lib/token-estimate.ts";
import type { ClientCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { MAX_QUICK_ANSWER_BYTES, parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureOfErrorBody } from "./failure-mapping.ts";
import { bytesOfBlock } from "./message-rewriter.ts";
import { ReportedUsage } from "./reported-usage.ts";

/**
 * Reads a message that is relayed unchanged except for id, model and usage, which the caller sets. A long
 * message is returned as JSON bytes. Throws ProviderFailure if the text is not a message or reports an error.
 */
export const passedMessage = new AnswerRead(
  import.meta.url,
  (text, context: FailureContext): ClientCompletion => {
    const body = assertAnswer(parsedAnswer(text), context);
    const { content, usage: raw } = body;
    if (!Array.isArray(content)) throw brokenAnswer("a message without content");
    const reported = new ReportedUsage();
    reported.take(raw);
    const { usage } = reported;
    let bytes = 0;
    if (usage === undefined) for (const block of content) bytes += bytesOf(block);
    const facts = { usage, estimatedTokens: tokensOfBytes(bytes) };
    if (text.length <= MAX_QUICK_ANSWER_BYTES) return { ...facts, body };
    const { id: _id, model: _model, usage: _usage, ...rest } = body;
    return { ...facts, body: new TextEncoder().encode(JSON.stringify(rest)) };
  },
);

/** Returns the parsed body if it is an object that reports no error. Otherwise throws ProviderFailure. */
export function assertAnswer(body: unknown, context: FailureContext): Record<string, unknown> {
  if (!isFields(body)) throw brokenAnswer("JSON that is not an object");
  if (body.type !== "error" && !isFields(body.error)) return body;
  throw failureOfErrorBody(body, context);
}

function bytesOf(block: unknown): number {
  return isFields(block) ? bytesOfBlock(block) : 0;
}
