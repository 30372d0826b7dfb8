import { isFields } from "../lib/json.ts";
import type {
  ChatEvent,
  FinishReason,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
} from "./interface.ts";

/**
 * Reads answers of OpenAI's API in typed form. The provider has already converted them to the gateway's form, so
 * differences between servers are settled.
 */

type Fields = Readonly<Record<string, unknown>>;

/** Returns the choice of a whole completion. */
export function choiceOf(completion: Fields): TypedChoice {
  const [choice] = completion.choices as readonly Fields[];
  const { message, finish_reason: finish, logprobs } = choice!;
  const {
    content,
    reasoning,
    refusal,
    tool_calls: calls,
    reasoning_details: details,
    annotations,
  } = message as Fields;
  return {
    text: textIn(content),
    reasoning: textIn(reasoning),
    refusal: textIn(refusal),
    ...(Array.isArray(details) && { reasoningDetails: details as ReasoningDetail[] }),
    ...(Array.isArray(calls) && { toolCalls: calls.map(callOf) }),
    ...(Array.isArray(annotations) && { annotations }),
    ...(isFields(logprobs) && { logprobs }),
    finish: finish as FinishReason,
    stopSequence: stopSequenceOf(choice!),
  };
}

function callOf({ id, function: called }: Fields): ToolCall {
  const { name, arguments: json } = called as Fields;
  return { id: String(id), name: String(name), arguments: String(json) };
}

/** Returns the stop sequence, which vLLM and SGLang report in addition to the finish reason. */
export function stopSequenceOf({ stop_reason: reason, matched_stop: matched }: Fields) {
  return textIn(reason) ?? textIn(matched);
}

export function textIn(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Returns the UTF-8 bytes of the answer that an event contains. */
export function answerBytes(event: ChatEvent): number {
  switch (event.type) {
    case "tool_call":
      return Buffer.byteLength((event.name ?? "") + (event.arguments ?? ""));
    case "reasoning":
      return Buffer.byteLength(event.text) + encryptedBytes(event.details);
    case "text":
    case "refusal":
      return Buffer.byteLength(event.text);
    case "foreign_item":
      return foreignBytes(event);
    default:
      return 0;
  }
}

/** Returns the bytes of the model's text in a foreign item. Only pieces count. */
function foreignBytes({
  step,
  fields,
}: Extract<ChatEvent, { readonly type: "foreign_item" }>): number {
  const isDelta = typeof step === "object" && step.event.endsWith(".delta");
  return isDelta && typeof fields.delta === "string" ? Buffer.byteLength(fields.delta) : 0;
}

/** Returns the bytes of encrypted reasoning. It is output, although only the provider can read it. */
function encryptedBytes(details: readonly ReasoningDetail[] = []): number {
  let bytes = 0;
  for (const detail of details) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}
