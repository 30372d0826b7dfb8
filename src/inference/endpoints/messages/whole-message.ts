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
import { redactedData, signatureOf } from "./reasoning-mark.ts";

type Fields = Readonly<Record<string, unknown>>;

const STOP_REASONS: Readonly<Record<FinishReason, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
};

/** How an answer ended, in Anthropic's words. */
export function endOf(
  finish: FinishReason,
  stopSequence: string | undefined,
): { readonly stop_reason: string; readonly stop_sequence: string | null } {
  return finish === "stop" && stopSequence !== undefined
    ? { stop_reason: "stop_sequence", stop_sequence: stopSequence }
    : { stop_reason: STOP_REASONS[finish], stop_sequence: null };
}

/** The usage of an answer; `cost` in USD. Anthropic counts what its cache reads and writes apart. */
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

/** A whole answer of the chat call as a message, whose id, model and usage the caller sets. */
export function messageOf(choice: TypedChoice): Record<string, unknown> {
  const { text, refusal, toolCalls = [], finish, stopSequence } = choice;
  const said = `${text ?? ""}${refusal ?? ""}`;
  const content: Fields[] = thinkingOf(choice);
  if (said !== "") content.push({ type: "text", text: said });
  for (const call of toolCalls) content.push(toolUse(call));
  return {
    // Set by the caller, and in their place here.
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
  const isTold = reasoningDetails.some(({ type }) => type !== "reasoning.encrypted");
  const plain = reasoning && !isTold ? [thinking(reasoning, undefined)] : [];
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

/** What a model wrote that is no JSON object comes in a form that says so. */
function inputOf(json: string): Fields {
  try {
    const input: unknown = JSON.parse(json === "" ? "{}" : json);
    if (isFields(input)) return input;
  } catch {
    // Below.
  }
  return { INVALID_JSON: json };
}

/** A typed answer, in which a chat asks for one choice. */
export function completionOf(choice: TypedChoice, usage: Usage | undefined): ClientCompletion {
  return { body: messageOf(choice), usage, estimatedTokens: tokensOfBytes(bytesOf(choice)) };
}

function bytesOf({ text, reasoning, reasoningDetails, refusal, toolCalls = [] }: TypedChoice) {
  let bytes = 0;
  for (const said of [text, reasoning, refusal]) bytes += Buffer.byteLength(said ?? "");
  for (const call of toolCalls) bytes += Buffer.byteLength(call.name + call.arguments);
  for (const detail of reasoningDetails ?? []) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}
