import type { ClientCompletion } from "../../../providers/interface.ts";
import { AnswerRead, CompletionRender } from "../../../providers/thread-work.ts";
import { choiceOf } from "../../../providers/typed-answers.ts";
import { completionOf } from "./whole-message.ts";

/** Whole answers that are too long for the event loop: the body is JSON without id, model and usage. */

/** Of a typed answer. */
export const longTypedMessage = new CompletionRender(
  import.meta.url,
  ({ choices, usage }): ClientCompletion => inJson(completionOf(choices[0]!, usage)),
);

/** Of an answer of OpenAI's wire in the gateway's form. */
export const longMessage = new AnswerRead(
  import.meta.url,
  (text): ClientCompletion => inJson(completionOf(choiceOf(JSON.parse(text)), undefined)),
);

function inJson({ body, ...facts }: ClientCompletion): ClientCompletion {
  return { ...facts, body: new TextEncoder().encode(JSON.stringify(body)) };
}
