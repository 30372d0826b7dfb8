import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail, ToolCall, TypedCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { CitedText } from "./citations.ts";
import { failureInside, failureOfEnd, finishReason } from "./failure-mapping.ts";
import { planDetail, thinkingDetail } from "./reasoning-details.ts";
import { reportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Reads an answer that was not streamed. Throws ProviderFailure if the text is not an answer or Cohere
 * aborted the answer.
 */
export const wholeAnswer = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: { readonly failureContext: FailureContext }) =>
    completionOf(parsedAnswer(text), failureContext),
);

function completionOf(answer: unknown, context: FailureContext): TypedCompletion {
  if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
  const { message, finish_reason: reason, usage } = answer;
  if (!isFields(message)) {
    throw failureInside(answer, context) ?? brokenAnswer("an answer without a message");
  }
  const failure = failureOfEnd(reason, answer.error, context);
  if (failure !== undefined) throw failure;
  const { text, thoughts, annotations } = readContent(message);
  const calls = callsOf(message.tool_calls);
  if (text === "" && thoughts.length === 0 && calls.length === 0 && reason === undefined) {
    throw brokenAnswer("a message without content");
  }
  const reasoning = thoughts.map((detail) => textOf(detail)).join("");
  return {
    choices: [
      {
        text: text === "" && calls.length > 0 ? undefined : text,
        reasoning: reasoning === "" ? undefined : reasoning,
        reasoningDetails: thoughts,
        toolCalls: calls,
        annotations: annotations.length > 0 ? annotations : undefined,
        finish: finishReason(reason, calls.length > 0),
      },
    ],
    usage: reportedUsage(usage),
  };
}

function readContent({ content, tool_plan: plan, citations }: Fields) {
  const cited = new CitedText();
  const thoughts: ReasoningDetail[] = [];
  let text = "";
  const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
  for (const [index, block] of (Array.isArray(blocks) ? blocks : []).entries()) {
    if (!isFields(block)) continue;
    if (typeof block.thinking === "string" && block.thinking !== "") {
      thoughts.push(thinkingDetail(thoughts.length, block.thinking));
    }
    if (typeof block.text !== "string" || block.text === "") continue;
    cited.add(index, block.text);
    text += block.text;
  }
  if (typeof plan === "string" && plan !== "") thoughts.push(planDetail(thoughts.length, plan));
  const annotations = (Array.isArray(citations) ? citations : []).flatMap((citation) =>
    cited.annotationsOf(citation),
  );
  return { text, thoughts, annotations };
}

function textOf(detail: ReasoningDetail): string {
  if (detail.type === "reasoning.summary") return detail.summary;
  return detail.type === "reasoning.text" ? (detail.text ?? "") : "";
}

function callsOf(calls: unknown): ToolCall[] {
  if (!Array.isArray(calls)) return [];
  return calls.map((call) => {
    const { id, function: calledFunction } = isFields(call) ? call : {};
    const { name, arguments: text } = isFields(calledFunction) ? calledFunction : {};
    if (typeof id !== "string" || typeof name !== "string") {
      throw brokenAnswer("a call without id or name");
    }
    return { id, name, arguments: typeof text === "string" && text !== "" ? text : "{}" };
  });
}
