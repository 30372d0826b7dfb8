import { isFields } from "../../../lib/json.ts";
import type {
  FinishReason,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
  TypedCompletion,
} from "../../interface.ts";
import { AnswerRead } from "../../thread-work.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { normaliseCompletion, parseCompletion } from "./raw-answers.ts";

type Fields = Readonly<Record<string, unknown>>;

interface CompletionOptions {
  readonly requestId: string;
  readonly failureContext: FailureContext;
}

/** Reads a completion in typed form. Throws ProviderFailure if the text is not a completion or reports an error. */
export const wholeCompletion = new AnswerRead(
  import.meta.url,
  (text, { requestId, failureContext }: CompletionOptions) =>
    typedCompletion(parseCompletion(text, failureContext), requestId),
);

/** Returns a parsed completion in typed form. Throws ProviderFailure if it is not an answer. */
export function typedCompletion(raw: unknown, requestId: string): TypedCompletion {
  const { body, usage, estimatedTokens } = normaliseCompletion(raw, requestId, false, 0);
  const { choices } = body as { readonly choices: readonly Fields[] };
  return { choices: choices.map(choiceOf), usage, estimatedTokens };
}

function choiceOf(choice: Fields): TypedChoice {
  const { message, finish_reason: finish, logprobs } = choice;
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
    stopSequence: stopSequenceOf(choice),
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
