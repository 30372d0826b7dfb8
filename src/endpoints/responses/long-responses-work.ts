import { assertRecordable } from "../../calls/endpoint.ts";
import { bodyHash } from "../../calls/idempotency/idempotency.ts";
import { parseJson, textOfShared } from "../../http/read-body.ts";
import { createCheck } from "../../http/validate.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import { type BodyShape, shapedBody } from "../chat-completions/provider-body.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import type { CountInputCall, LongResponsesFacts, StoredShape } from "./long-responses.ts";
import { needsOf } from "./prepared-turn.ts";
import { RESPONSES_ROUTE, type ResponsesBody, type ResponsesTurn } from "./request.ts";
import { assertResponses } from "./request-checks.ts";
import { factsOf } from "./request-facts.ts";
import { responsesBody } from "./schema.ts";
import { storedInput } from "./stored-items.ts";

const checkBody = createCheck(responsesBody, "invalid_body", "Request body");

/** Long bodies of responses, in the thread. */
export const longResponsesForm: LongBodyForm = {
  parse: bodyAlone,

  read(text) {
    const turn = bodyAlone(text);
    checkBody(turn.body);
    assertResponses(turn.body);
    const needs = needsOf(turn.body);
    const facts = needs === undefined ? longFacts(turn, text) : { needs };
    return { request: turn, facts };
  },

  fieldsOf,
};

/** Turns that build on stored items, where they are long together. */
export const longTurnForm: LongBodyForm = {
  parse: (text) => parseJson(text) as ResponsesTurn,

  read(text) {
    const turn = parseJson(text) as ResponsesTurn;
    checkBody(turn.body);
    assertResponses(turn.body);
    return { request: turn, facts: longFacts(turn, text) };
  },

  fieldsOf,
};

function bodyAlone(text: string): ResponsesTurn {
  return { body: parseJson(text) as ResponsesBody, earlier: [], referable: [] };
}

function longFacts(turn: ResponsesTurn, text: string): LongResponsesFacts {
  const { chat, ...facts } = factsOf(turn);
  assertRecordable(chat);
  return { ...facts, chat: longChatFacts(chat, bodyHash(RESPONSES_ROUTE, text)) };
}

function fieldsOf(turn: ResponsesTurn, shape: BodyShape | StoredShape): Record<string, unknown> {
  return "storedAs" in shape
    ? { items: storedInput(turn, shape.storedAs) }
    : shapedBody(chatRequestOf(turn).request, shape);
}

export function countInputTokens({ text: given, isTurn }: CountInputCall): Promise<number> {
  const text = typeof given === "string" ? given : textOfShared(given);
  const turn = isTurn ? (JSON.parse(text) as ResponsesTurn) : bodyAlone(text);
  return countChatTokens(chatRequestOf(turn).request);
}
