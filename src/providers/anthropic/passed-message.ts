import { isFields } from "../../lib/json.ts";
import { tokensOfBytes } from "../../lib/token-estimate.ts";
import type { ClientCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { MAX_QUICK_ANSWER_BYTES, parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureTold } from "./failure-mapping.ts";
import { bytesOfBlock } from "./message-rewriter.ts";
import { ReportedUsage } from "./reported-usage.ts";

/**
 * Reads a message that passes as it came, but for id, model and usage, which the caller sets; a long one as JSON.
 * Throws ProviderFailure where it is none, or reports an error.
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

/** A parsed body that is an object and no error; else throws ProviderFailure. */
export function assertAnswer(body: unknown, context: FailureContext): Record<string, unknown> {
  if (!isFields(body)) throw brokenAnswer("JSON that is not an object");
  if (body.type !== "error" && !isFields(body.error)) return body;
  throw failureTold(body, context);
}

function bytesOf(block: unknown): number {
  return isFields(block) ? bytesOfBlock(block) : 0;
}
