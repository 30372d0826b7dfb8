import { isFields } from "../../lib/json.ts";
import type { ChatEvent, ToolCall, TypedChoice, TypedCompletion } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { AnswerEvents } from "./answer-events.ts";

interface WholeOptions {
  readonly requestId: string;
  readonly failureContext: FailureContext;
}

/**
 * Reads an answer that was not streamed. Throws ProviderFailure if the text is not an answer or reports an
 * error.
 */
export const wholeAnswer = new AnswerRead(
  import.meta.url,
  (text, { requestId, failureContext }: WholeOptions): TypedCompletion => {
    const answer = parsedAnswer(text);
    const events: ChatEvent[] = [];
    new AnswerEvents(requestId, () => failureContext).add(answer, events);
    const completion = collected(events);
    if (!isFields(answer) || !isFields(answer.message)) {
      throw brokenAnswer("an answer without a message");
    }
    return completion;
  },
);

function collected(events: readonly ChatEvent[]): TypedCompletion {
  const calls: ToolCall[] = [];
  const choice: { -readonly [Member in keyof TypedChoice]: TypedChoice[Member] } = {
    finish: "stop",
  };
  let usage: TypedCompletion["usage"];
  for (const event of events) {
    if (event.type === "error") throw event.failure;
    if (event.type === "usage") usage = event.usage;
    else if (event.type === "reasoning") choice.reasoning = event.text;
    else if (event.type === "finish") choice.finish = event.reason;
    else if (event.type === "text") {
      choice.text = event.text;
      choice.logprobs = event.logprobs;
    } else if (event.type === "tool_call") {
      const { id = "", name = "", arguments: text = "{}" } = event;
      calls.push({ id, name, arguments: text });
    }
  }
  if (calls.length > 0) choice.toolCalls = calls;
  else choice.text ??= "";
  return { choices: [choice], usage };
}
