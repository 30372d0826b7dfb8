import { bodyHash } from "../../../http/idempotency-key.ts";
import { parseJson, textOfShared } from "../../../http/read-body.ts";
import { assertRecordable } from "../../call/endpoint.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import { countChatTokens } from "../chat-completions/chat-tokens.ts";
import { longChatFacts } from "../chat-completions/long-chat-work.ts";
import { type BodyShape, shapedBody } from "../chat-completions/provider-body.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { chatRequestOf } from "./chat-request.ts";
import { COMPACT_ROUTE, compactionOf } from "./compaction.ts";
import type { CountInputCall, LongResponsesFacts, LongUse, StoredShape } from "./long-responses.ts";
import { needsOf } from "./prepared-turn.ts";
import { checkResponses, filledResponses } from "./preset.ts";
import { RESPONSES_ROUTE, type ResponsesBody, type ResponsesTurn } from "./request.ts";
import { assertResponses } from "./request-checks.ts";
import { factsOf } from "./request-facts.ts";
import { storedInput } from "./stored-items.ts";

/** A use of a turn, and the endpoint that it belongs to. */
interface Use {
  readonly route: string;
  turnOf(turn: ResponsesTurn): ResponsesTurn;
}

const RESPONSE_USE: Use = { route: RESPONSES_ROUTE, turnOf: (turn) => turn };
const COMPACTION_USE: Use = { route: COMPACT_ROUTE, turnOf: compactionOf };

/** Returns the form for turns that are long together with the stored items that they continue. */
function turnForm(use: Use): LongBodyForm {
  return {
    parse: parseJson,
    bodyOf,
    check,
    fill,
    read(turn: ResponsesTurn, text) {
      assertResponses(turn.body);
      return longFacts(use, turn, text);
    },
    fieldsOf: (turn: ResponsesTurn, shape: BodyShape | StoredShape) =>
      fieldsOf(use.turnOf(turn), shape),
  };
}

/** Returns the form for bodies without stored items. */
function bodyForm(use: Use): LongBodyForm {
  return {
    ...turnForm(use),
    parse: bodyAlone,
    read(turn: ResponsesTurn, text) {
      assertResponses(turn.body);
      const needs = needsOf(turn.body);
      return needs === undefined
        ? longFacts(use, turn, text)
        : { needs, hash: bodyHash(use.route, text) };
    },
  };
}

/** The forms of long bodies by name. A work thread reads and renders the bodies. */
export const longResponsesForms: Readonly<Record<`${LongUse}${"" | ".turn"}`, LongBodyForm>> = {
  responses: bodyForm(RESPONSE_USE),
  "responses.turn": turnForm(RESPONSE_USE),
  "responses.compact": bodyForm(COMPACTION_USE),
  "responses.compact.turn": turnForm(COMPACTION_USE),
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

function longFacts({ route, turnOf }: Use, turn: ResponsesTurn, text: string): LongResponsesFacts {
  const { chat, ...facts } = factsOf(turnOf(turn));
  assertRecordable(chat);
  return { ...facts, chat: longChatFacts(chat, bodyHash(route, text)) };
}

function fieldsOf(turn: ResponsesTurn, shape: BodyShape | StoredShape): Record<string, unknown> {
  return "storedAs" in shape
    ? { items: storedInput(turn, shape.storedAs) }
    : shapedBody(chatRequestOf(turn).request, shape);
}

export function countInputTokens({
  text: source,
  isTurn,
  preset,
}: CountInputCall): Promise<number> {
  const text = typeof source === "string" ? source : textOfShared(source);
  const turn = isTurn ? (JSON.parse(text) as ResponsesTurn) : bodyAlone(text);
  const filled = preset === undefined ? turn : fill(turn, preset);
  return countChatTokens(chatRequestOf(filled).request);
}
