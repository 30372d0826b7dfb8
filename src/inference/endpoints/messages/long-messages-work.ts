import { bodyHash } from "../../../http/idempotency-key.ts";
import { parseJson, textOfShared } from "../../../http/read-body.ts";
import type { Check } from "../../../http/validate.ts";
import { assertRecordable } from "../../call/endpoint.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import type { CountTokensCall, LongMessagesFacts } from "./long-messages.ts";
import { checkCount, checkMessages, filledMessages } from "./preset.ts";
import { MESSAGES_ROUTE, type MessagesBody } from "./request.ts";
import { assertMessages } from "./request-checks.ts";
import { factsOf, type MessagesShape, shapedMessages } from "./request-facts.ts";

/** Reads and renders long bodies of messages and of token counts in a work thread. */
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

export function countPromptTokens({ body: source, preset }: CountTokensCall): Promise<number> {
  const text = typeof source === "string" ? source : textOfShared(source);
  const body = JSON.parse(text) as MessagesBody;
  const filled = preset === undefined ? body : filledMessages(body, preset);
  return countChatTokens(chatRequestOf(filled, false).request);
}
