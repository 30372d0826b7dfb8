import type { ClientCompletion } from "../../../providers/interface.ts";
import { AnswerRead, CompletionRender } from "../../../providers/thread-work.ts";
import { choiceOf } from "../../../providers/typed-answers.ts";
import { completionOf } from "./whole-message.ts";

/** Renders complete answers that are too long for the event loop. The body is JSON without id, model and usage. */

/** Renders a typed answer. */
export const longTypedMessage = new CompletionRender(
  import.meta.url,
  ({ choices, usage }): ClientCompletion => inJson(completionOf(choices[0]!, usage)),
);

/** Renders a provider's answer in OpenAI's chat format as a message. */
export const longMessage = new AnswerRead(
  import.meta.url,
  (text): ClientCompletion => inJson(completionOf(choiceOf(JSON.parse(text)), undefined)),
);

function inJson({ body, ...facts }: ClientCompletion): ClientCompletion {
  return { ...facts, body: new TextEncoder().encode(JSON.stringify(body)) };
}
