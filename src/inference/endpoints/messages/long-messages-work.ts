import { parseJson, textOfShared } from "../../../http/read-body.ts";
import type { Check } from "../../../http/validate.ts";
import { assertRecordable } from "../../call/endpoint.ts";
import { bodyHash } from "../../call/idempotency/idempotency.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import type { CountTokensCall, LongMessagesFacts } from "./long-messages.ts";
import { checkCount, checkMessages, filledMessages } from "./preset.ts";
import { MESSAGES_ROUTE, type MessagesBody } from "./request.ts";
import { assertMessages } from "./request-checks.ts";
import { factsOf, type MessagesShape, shapedMessages } from "./request-facts.ts";

/** Long bodies of messages, and of counts of their tokens, in the thread. */
export const longMessagesForm = formOf(checkMessages);
export const longCountForm = formOf(checkCount);

function formOf(checkBody: Check): LongBodyForm {
  return {
    parse: parseJson,

    check: checkBody,
    fill: filledMessages,

    read(body: MessagesBody, text) {
      assertMessages(body);
      const { chat, ...facts } = factsOf(body);
      assertRecordable(chat);
      const hash = bodyHash(MESSAGES_ROUTE, text);
      const long: LongMessagesFacts = { ...facts, chat: longChatFacts(chat, hash) };
      return long;
    },

    fieldsOf: (body: MessagesBody, shape: MessagesShape) => shapedMessages(body, shape),
  };
}

export function countPromptTokens({ body: given, preset }: CountTokensCall): Promise<number> {
  const text = typeof given === "string" ? given : textOfShared(given);
  const body = JSON.parse(text) as MessagesBody;
  const filled = preset === undefined ? body : filledMessages(body, preset);
  return countChatTokens(chatRequestOf(filled, false).request);
}
