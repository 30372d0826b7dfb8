import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail, ToolCall, TypedCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { CarriedThinking } from "./carried-thinking.ts";
import { annotationsOf } from "./citations.ts";
import { failureOfErrorBody } from "./failure-mapping.ts";
import { redactedDetail, thinkingDetail } from "./reasoning-details.ts";
import { ReportedUsage } from "./reported-usage.ts";
import { finishReason, refusalText } from "./stop-reason.ts";
import { JSON_TOOL } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;

interface PartialAnswer {
  text: string;
  reasoning: string;
  readonly details: ReasoningDetail[];
  readonly calls: ToolCall[];
  readonly annotations: unknown[];
  readonly carried: CarriedThinking;
}

interface MessageOptions {
  readonly answersByTool: boolean;
  readonly failureContext: FailureContext;
}

/**
 * Reads a message that was not streamed. Throws ProviderFailure if the text is not a message or reports an
 * error.
 */
export const wholeMessage = new AnswerRead(
  import.meta.url,
  (text, { answersByTool, failureContext }: MessageOptions) => {
    const message = parsedAnswer(text);
    if (isFields(message) && (message.type === "error" || isFields(message.error))) {
      throw failureOfErrorBody(message, failureContext);
    }
    return completionOf(message, answersByTool);
  },
);

/**
 * Returns a message in typed form. Skips blocks of unknown types. Throws ProviderFailure if it is not a
 * message. If `answersByTool` is true, the input of JSON_TOOL is the answer.
 */
function completionOf(message: unknown, answersByTool: boolean): TypedCompletion {
  if (!isFields(message) || !Array.isArray(message.content)) {
    throw brokenAnswer("a message without content");
  }
  const read: PartialAnswer = {
    text: "",
    reasoning: "",
    details: [],
    calls: [],
    annotations: [],
    carried: new CarriedThinking(),
  };
  for (const [index, block] of message.content.entries()) {
    if (isFields(block)) readBlock(read, block, index, answersByTool);
  }
  const usage = new ReportedUsage();
  usage.take(message.usage);
  const { text, reasoning, details, calls, annotations } = read;
  const { stop_reason: stopReason, stop_details: stopDetails, stop_sequence: sequence } = message;
  const hasNoText = text === "" && calls.length > 0;
  return {
    choices: [
      {
        text: hasNoText || stopReason === "refusal" ? text || undefined : text,
        reasoning: reasoning === "" ? undefined : reasoning,
        reasoningDetails: details,
        refusal: refusalText(stopReason, stopDetails),
        toolCalls: calls,
        ...(annotations.length > 0 && { annotations }),
        finish: finishReason(stopReason, calls.length),
        ...(typeof sequence === "string" && { stopSequence: sequence }),
      },
    ],
    usage: usage.usage,
  };
}

function readBlock(
  read: PartialAnswer,
  block: Fields,
  index: number,
  answersByTool: boolean,
): void {
  switch (block.type) {
    case "text":
      readText(read, block);
      break;
    case "thinking":
      readThinking(read, block, index);
      break;
    case "redacted_thinking":
      if (typeof block.data !== "string") break;
      read.details.push(redactedDetail(index, block.data));
      read.carried.addRedacted(index, block.data);
      break;
    case "tool_use":
      readCall(read, block, answersByTool);
      break;
  }
}

function readText(read: PartialAnswer, { text, citations }: Fields): void {
  if (typeof text !== "string") return;
  const start = read.text.length;
  read.text += text;
  read.annotations.push(...annotationsOf(citations, start, read.text.length));
}

function readThinking(read: PartialAnswer, { thinking, signature }: Fields, index: number): void {
  const text = typeof thinking === "string" ? thinking : "";
  read.reasoning += text;
  const isSigned = typeof signature === "string" && signature !== "";
  read.details.push(thinkingDetail(index, { text, ...(isSigned && { signature }) }));
  read.carried.add(index, text, isSigned ? signature : "");
}

function readCall(read: PartialAnswer, { id, name, input }: Fields, answersByTool: boolean): void {
  if (typeof id !== "string" || typeof name !== "string") {
    throw brokenAnswer("a call without id or name");
  }
  const text = JSON.stringify(input ?? {});
  if (answersByTool && name === JSON_TOOL) read.text += text;
  else {
    const extraContent = read.carried.take();
    const carried = extraContent === undefined ? {} : { extraContent };
    read.calls.push({ id, name, arguments: text, ...carried });
  }
}
