import type { TSchema } from "typebox";
import { assertRecordable } from "../../calls/endpoint.ts";
import { bodyHash } from "../../calls/idempotency/idempotency.ts";
import { parseJson, textOfShared } from "../../http/read-body.ts";
import { createCheck } from "../../http/validate.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import type { CountTokensCall, LongMessagesFacts } from "./long-messages.ts";
import { MESSAGES_ROUTE, type MessagesBody } from "./request.ts";
import { assertMessages } from "./request-checks.ts";
import { factsOf, type MessagesShape, shapedMessages } from "./request-facts.ts";
import { countBody, messagesBody } from "./schema.ts";

/** Long bodies of messages, and of counts of their tokens, in the thread. */
export const longMessagesForm = formOf(messagesBody);
export const longCountForm = formOf(countBody);

function formOf(schema: TSchema): LongBodyForm {
  const checkBody = createCheck(schema, "invalid_body", "Request body");
  return {
    parse: parseJson,

    read(text) {
      const body = parseJson(text) as MessagesBody;
      checkBody(body);
      assertMessages(body);
      const { chat, ...facts } = factsOf(body);
      assertRecordable(chat);
      const hash = bodyHash(MESSAGES_ROUTE, text);
      const long: LongMessagesFacts = { ...facts, chat: longChatFacts(chat, hash) };
      return { request: body, facts: long };
    },

    fieldsOf: (body: MessagesBody, shape: MessagesShape) => shapedMessages(body, shape),
  };
}

export function countPromptTokens({ body }: CountTokensCall): Promise<number> {
  const text = typeof body === "string" ? body : textOfShared(body);
  return countChatTokens(chatRequestOf(JSON.parse(text) as MessagesBody, false).request);
}
