import type {
  ChatEvent,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
  TypedCompletion,
} from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { AnswerReader } from "./answer-reader.ts";

type MutableChoice = { -readonly [Member in keyof TypedChoice]: TypedChoice[Member] };

interface AnswerOptions {
  readonly requestId: string;
  readonly failureContext: FailureContext;
}

/**
 * Reads a response that was not streamed. Throws ProviderFailure if it has no candidate or reports an error.
 * A candidate without a finish reason counts as stopped.
 */
export const wholeResponse = new AnswerRead(
  import.meta.url,
  (text, { requestId, failureContext }: AnswerOptions) =>
    completionOf(parsedAnswer(text), new AnswerReader(requestId, failureContext)),
);

function completionOf(response: unknown, reader: AnswerReader): TypedCompletion {
  const choices = new Map<number, MutableChoice>();
  let usage: TypedCompletion["usage"];
  for (const event of reader.read(response)) {
    if (event.type === "error") throw event.failure;
    if (event.type === "usage") usage = event.usage;
    else {
      // Usage before the text does not include the completion, so the gateway counts the completion itself.
      if (event.type !== "finish") usage = undefined;
      collect(choiceOf(choices, event.choice), event);
    }
  }
  if (choices.size === 0) throw brokenAnswer("no candidate");
  const ordered = [...choices].sort(([left], [right]) => left - right).map(([, choice]) => choice);
  return { choices: ordered, usage };
}

function choiceOf(choices: Map<number, MutableChoice>, index: number): MutableChoice {
  let choice = choices.get(index);
  if (choice === undefined) {
    choice = { finish: "stop" };
    choices.set(index, choice);
  }
  return choice;
}

type ChoiceEvent = Exclude<ChatEvent, { readonly type: "error" | "usage" }>;

function collect(choice: MutableChoice, event: ChoiceEvent): void {
  switch (event.type) {
    case "text":
      choice.text = (choice.text ?? "") + event.text;
      choice.annotations = event.annotations ?? choice.annotations;
      choice.logprobs = event.logprobs ?? choice.logprobs;
      break;
    case "reasoning":
      if (event.text !== "") choice.reasoning = (choice.reasoning ?? "") + event.text;
      choice.reasoningDetails = joined(choice.reasoningDetails ?? [], event.details ?? []);
      break;
    case "tool_call": {
      const { id = "", name = "", arguments: text = "{}", extraContent } = event;
      const call: ToolCall = {
        id,
        name,
        arguments: text,
        ...(extraContent !== undefined && { extraContent }),
      };
      choice.toolCalls = [...(choice.toolCalls ?? []), call];
      choice.finish = "tool_calls";
      break;
    }
    case "image":
      choice.images = [...(choice.images ?? []), event.url];
      break;
    case "finish":
      choice.finish = event.reason;
  }
}

/** Appends details. Joins the pieces of one thought to one detail. */
function joined(
  details: readonly ReasoningDetail[],
  added: readonly ReasoningDetail[],
): readonly ReasoningDetail[] {
  const last = details.at(-1);
  const [first, ...rest] = added;
  const isSameThought =
    last?.type === "reasoning.text" &&
    first?.type === "reasoning.text" &&
    last.index === first.index;
  if (!isSameThought) return [...details, ...added];
  const text = (last.text ?? "") + (first.text ?? "");
  return [...details.slice(0, -1), { ...last, ...first, text }, ...rest];
}
