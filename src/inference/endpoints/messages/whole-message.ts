import { isFields } from "../../../lib/json.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { Usage } from "../../../lib/usage.ts";
import type {
  ClientCompletion,
  FinishReason,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
} from "../../../providers/interface.ts";
import { CompletionRender } from "../../../providers/thread-work.ts";
import { redactedData, signatureOf } from "./reasoning-mark.ts";

type Fields = Readonly<Record<string, unknown>>;

const STOP_REASONS: Readonly<Record<FinishReason, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
};

/** Returns the stop reason and stop sequence in Anthropic's form. */
export function endOf(
  finish: FinishReason,
  stopSequence: string | undefined,
): { readonly stop_reason: string; readonly stop_sequence: string | null } {
  return finish === "stop" && stopSequence !== undefined
    ? { stop_reason: "stop_sequence", stop_sequence: stopSequence }
    : { stop_reason: STOP_REASONS[finish], stop_sequence: null };
}

/**
 * Returns the usage of an answer, with `cost` in USD. Anthropic counts cache reads and writes separately from
 * other input.
 */
export function usageOf(usage: Usage, cost: number): Record<string, unknown> {
  const { promptTokens, cachedPromptTokens: cached, cacheWriteTokens: written } = usage;
  const forHour = usage.cacheWriteHourTokens ?? 0;
  return {
    input_tokens: promptTokens - cached - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    ...(written > 0 && {
      cache_creation: {
        ephemeral_5m_input_tokens: written - forHour,
        ephemeral_1h_input_tokens: forHour,
      },
    }),
    output_tokens: usage.completionTokens,
    cost,
  };
}

/** Returns a complete answer of the chat call as a message. The caller sets id, model and usage. */
export function messageOf(choice: TypedChoice): Record<string, unknown> {
  const { text, refusal, toolCalls = [], finish, stopSequence } = choice;
  const answerText = `${text ?? ""}${refusal ?? ""}`;
  const content: Fields[] = thinkingOf(choice);
  if (answerText !== "") content.push({ type: "text", text: answerText });
  for (const call of toolCalls) content.push(toolUse(call));
  return {
    // The caller sets id, model and usage. They are here to fix the order of the members.
    id: undefined,
    type: "message",
    role: "assistant",
    model: undefined,
    content,
    ...endOf(finish, stopSequence),
    usage: undefined,
  };
}

function thinkingOf({ reasoning, reasoningDetails = [] }: TypedChoice): Fields[] {
  const hasText = reasoningDetails.some(({ type }) => type !== "reasoning.encrypted");
  const plain = reasoning && !hasText ? [thinking(reasoning, undefined)] : [];
  return [...plain, ...reasoningDetails.map(blockOfDetail)];
}

function blockOfDetail(detail: ReasoningDetail): Fields {
  if (detail.type === "reasoning.encrypted") {
    return { type: "redacted_thinking", data: redactedData(detail) };
  }
  const text = detail.type === "reasoning.summary" ? detail.summary : (detail.text ?? "");
  return thinking(text, detail);
}

function thinking(text: string, detail: ReasoningDetail | undefined): Fields {
  return { type: "thinking", thinking: text, signature: signatureOf(detail) };
}

function toolUse({ id, name, arguments: json }: ToolCall): Fields {
  return { type: "tool_use", id, name, input: inputOf(json) };
}

/** Returns the input of a tool call. Arguments that are not a JSON object are returned as `INVALID_JSON`. */
function inputOf(json: string): Fields {
  try {
    const input: unknown = JSON.parse(json === "" ? "{}" : json);
    if (isFields(input)) return input;
  } catch {
    // Returned as INVALID_JSON below.
  }
  return { INVALID_JSON: json };
}

/** Renders a whole answer with one choice as a message. */
export const messageRender = new CompletionRender(
  import.meta.url,
  ({ choices, usage, estimatedTokens }): ClientCompletion => {
    const choice = choices[0]!;
    return {
      body: messageOf(choice),
      usage,
      estimatedTokens: estimatedTokens ?? tokensOfBytes(bytesOf(choice)),
    };
  },
);

function bytesOf({ text, reasoning, reasoningDetails, refusal, toolCalls = [] }: TypedChoice) {
  let bytes = 0;
  for (const part of [text, reasoning, refusal]) bytes += Buffer.byteLength(part ?? "");
  for (const call of toolCalls) bytes += Buffer.byteLength(call.name + call.arguments);
  for (const detail of reasoningDetails ?? []) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}
