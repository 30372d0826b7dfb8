import { isFields } from "../../lib/json.ts";
import { JSON_TOOL } from "../anthropic/tools.ts";
import type { FinishReason, ReasoningDetail, ToolCall, TypedCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { DETAIL_FORMAT } from "./converse-messages.ts";
import { reportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Finish reasons by Converse's stop reason:
 * https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html
 */
const REASONS: ReadonlyMap<unknown, FinishReason> = new Map<unknown, FinishReason>([
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["guardrail_intervened", "content_filter"],
  ["content_filtered", "content_filter"],
]);
/** Stop reasons for model output that Bedrock could not parse. */
const MALFORMED = /^malformed_/;

/**
 * Returns the finish reason. An unknown stop reason counts as "stop". Some models state no reason for calls,
 * or state calls without sending any. Throws ProviderFailure if the model's output is malformed.
 *
 * @param calls number of calls of the caller's tools in the answer
 */
export function finishReason(stopReason: unknown, calls: number): FinishReason {
  if (typeof stopReason === "string" && MALFORMED.test(stopReason)) {
    throw brokenAnswer("malformed model output");
  }
  const reason = REASONS.get(stopReason) ?? "stop";
  if (reason === "stop" && calls > 0) return "tool_calls";
  return reason === "tool_calls" && calls === 0 ? "stop" : reason;
}

/**
 * Returns true if the caller has to run the tool of a call. Bedrock runs tools of type `server_tool_use`
 * itself: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html. Other calls
 * have the type `tool_use` or no type.
 */
export function isOfCaller(type: unknown): boolean {
  return type === undefined || type === null || type === "tool_use";
}

export function textDetail(
  index: number,
  piece: { readonly text?: string; readonly signature?: string },
): ReasoningDetail {
  return { type: "reasoning.text", ...piece, format: DETAIL_FORMAT, index };
}

/** Returns the detail for reasoning that only its model can read. @param data in base64 */
export function redactedDetail(index: number, data: string): ReasoningDetail {
  return { type: "reasoning.encrypted", data, format: DETAIL_FORMAT, index };
}

interface PartialAnswer {
  text: string;
  reasoning: string;
  readonly details: ReasoningDetail[];
  readonly calls: ToolCall[];
}

/**
 * Reads an answer of Converse that was not streamed. Skips blocks of unknown kinds. Throws ProviderFailure if
 * the text is not an answer. If `answersByTool` is true, the input of JSON_TOOL is the answer.
 */
export const converseAnswer = new AnswerRead(
  import.meta.url,
  (text, { answersByTool }: { readonly answersByTool: boolean }) =>
    completionOf(parsedAnswer(text), answersByTool),
);

function completionOf(answer: unknown, answersByTool: boolean): TypedCompletion {
  const { output, stopReason, usage } = isFields(answer) ? answer : {};
  const message = isFields(output) ? output.message : undefined;
  if (!isFields(message) || !Array.isArray(message.content)) {
    throw brokenAnswer("an answer without a message");
  }
  const read: PartialAnswer = { text: "", reasoning: "", details: [], calls: [] };
  for (const [index, block] of message.content.entries()) {
    if (isFields(block)) readBlock(read, block, index, answersByTool);
  }
  const { text, reasoning, details, calls } = read;
  return {
    choices: [
      {
        text: text === "" && calls.length > 0 ? undefined : text,
        reasoning: reasoning === "" ? undefined : reasoning,
        reasoningDetails: details,
        toolCalls: calls,
        finish: finishReason(stopReason, calls.length),
      },
    ],
    usage: reportedUsage(usage),
  };
}

function readBlock(
  read: PartialAnswer,
  block: Fields,
  index: number,
  answersByTool: boolean,
): void {
  const { text, toolUse, reasoningContent, citationsContent } = block;
  if (typeof text === "string") read.text += text;
  else if (isFields(toolUse)) readCall(read, toolUse, answersByTool);
  else if (isFields(reasoningContent)) readReasoning(read, reasoningContent, index);
  else if (isFields(citationsContent) && Array.isArray(citationsContent.content)) {
    for (const piece of citationsContent.content) {
      if (isFields(piece) && typeof piece.text === "string") read.text += piece.text;
    }
  }
}

function readReasoning(
  read: PartialAnswer,
  { reasoningText, redactedContent }: Fields,
  index: number,
) {
  if (typeof redactedContent === "string") {
    read.details.push(redactedDetail(index, redactedContent));
  }
  if (!isFields(reasoningText)) return;
  const { text: stated, signature } = reasoningText;
  const text = typeof stated === "string" ? stated : "";
  const isSigned = typeof signature === "string" && signature !== "";
  read.reasoning += text;
  read.details.push(textDetail(index, { text, ...(isSigned && { signature }) }));
}

function readCall(
  read: PartialAnswer,
  { toolUseId, name, input, type }: Fields,
  answersByTool: boolean,
) {
  if (!isOfCaller(type)) return;
  if (typeof toolUseId !== "string" || typeof name !== "string") {
    throw brokenAnswer("a call without id or name");
  }
  const text = JSON.stringify(input ?? {});
  if (answersByTool && name === JSON_TOOL) read.text += text;
  else read.calls.push({ id: toolUseId, name, arguments: text });
}
