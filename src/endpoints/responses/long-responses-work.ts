import { assertRecordable } from "../../calls/endpoint.ts";
import { bodyHash } from "../../calls/idempotency/idempotency.ts";
import type { Preset } from "../../definitions/known-definitions.ts";
import { parseJson, textOfShared } from "../../http/read-body.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import { type BodyShape, shapedBody } from "../chat-completions/provider-body.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import type { CountInputCall, LongResponsesFacts, StoredShape } from "./long-responses.ts";
import { needsOf } from "./prepared-turn.ts";
import { checkResponses, filledResponses } from "./preset.ts";
import { RESPONSES_ROUTE, type ResponsesBody, type ResponsesTurn } from "./request.ts";
import { assertResponses } from "./request-checks.ts";
import { factsOf } from "./request-facts.ts";
import { storedInput } from "./stored-items.ts";

/** Long bodies of responses, in the thread. */
export const longResponsesForm: LongBodyForm = {
  parse: bodyAlone,
  bodyOf,
  check,
  fill,

  read(turn: ResponsesTurn, text) {
    assertResponses(turn.body);
    const needs = needsOf(turn.body);
    return needs === undefined ? longFacts(turn, text) : { needs };
  },

  fieldsOf,
};

/** Turns that build on stored items, where they are long together. */
export const longTurnForm: LongBodyForm = {
  parse: parseJson,
  bodyOf,
  check,
  fill,

  read(turn: ResponsesTurn, text) {
    assertResponses(turn.body);
    return longFacts(turn, text);
  },

  fieldsOf,
};

function bodyOf({ body }: ResponsesTurn): unknown {
  return body;
}

function check({ body }: ResponsesTurn): void {
  checkResponses(body);
}

function fill(turn: ResponsesTurn, preset: Preset): ResponsesTurn {
  return { ...turn, body: filledResponses(turn.body, preset) };
}

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

export function countInputTokens({ text: given, isTurn, preset }: CountInputCall): Promise<number> {
  const text = typeof given === "string" ? given : textOfShared(given);
  const turn = isTurn ? (JSON.parse(text) as ResponsesTurn) : bodyAlone(text);
  const filled = preset === undefined ? turn : fill(turn, preset);
  return countChatTokens(chatRequestOf(filled).request);
}
