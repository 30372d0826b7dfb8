import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail, ToolCall, TypedCompletion } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { redactedDetail, thinkingDetail } from "./reasoning-details.ts";
import { ReportedUsage } from "./reported-usage.ts";
import { finishReason, refusalText } from "./stop-reason.ts";
import { JSON_TOOL } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;

interface Read {
  text: string;
  reasoning: string;
  readonly details: ReasoningDetail[];
  readonly calls: ToolCall[];
}

/**
 * A message in typed form; blocks of types that are not known are left out. Throws ProviderFailure where it is
 * no message. `answersByTool` says that the input of JSON_TOOL is the answer.
 */
export function completionOf(message: unknown, answersByTool: boolean): TypedCompletion {
  if (!isFields(message) || !Array.isArray(message.content)) {
    throw brokenAnswer("a message without content");
  }
  const read: Read = { text: "", reasoning: "", details: [], calls: [] };
  for (const [index, block] of message.content.entries()) {
    if (isFields(block)) readBlock(read, block, index, answersByTool);
  }
  const usage = new ReportedUsage();
  usage.take(message.usage);
  const { text, reasoning, details, calls } = read;
  const { stop_reason: stopReason, stop_details: stopDetails } = message;
  const isSilent = text === "" && calls.length > 0;
  return {
    kind: "typed-completion",
    choices: [
      {
        text: isSilent || stopReason === "refusal" ? text || undefined : text,
        reasoning: reasoning === "" ? undefined : reasoning,
        reasoningDetails: details,
        refusal: refusalText(stopReason, stopDetails),
        toolCalls: calls,
        finish: finishReason(
          stopReason ?? (calls.length > 0 ? "tool_use" : undefined),
          answersByTool && calls.length === 0,
        ),
      },
    ],
    usage: usage.usage,
  };
}

function readBlock(read: Read, block: Fields, index: number, answersByTool: boolean): void {
  switch (block.type) {
    case "text":
      if (typeof block.text === "string") read.text += block.text;
      break;
    case "thinking":
      readThinking(read, block, index);
      break;
    case "redacted_thinking":
      if (typeof block.data === "string") read.details.push(redactedDetail(index, block.data));
      break;
    case "tool_use":
      readCall(read, block, answersByTool);
      break;
  }
}

function readThinking(read: Read, { thinking, signature }: Fields, index: number): void {
  const text = typeof thinking === "string" ? thinking : "";
  read.reasoning += text;
  const isSigned = typeof signature === "string" && signature !== "";
  read.details.push(thinkingDetail(index, { text, ...(isSigned && { signature }) }));
}

function readCall(read: Read, { id, name, input }: Fields, answersByTool: boolean): void {
  if (typeof id !== "string" || typeof name !== "string") {
    throw brokenAnswer("a call without id or name");
  }
  const text = jsonOf(input ?? {});
  if (answersByTool && name === JSON_TOOL) read.text += text;
  else read.calls.push({ id, name, arguments: text });
}

function jsonOf(input: unknown): string {
  try {
    return JSON.stringify(input);
  } catch (cause) {
    // What is nested very deeply can be parsed, and not written again.
    if (cause instanceof RangeError) throw brokenAnswer("JSON that is nested too deeply");
    throw cause;
  }
}
