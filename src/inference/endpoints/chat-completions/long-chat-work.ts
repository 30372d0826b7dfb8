import { assertRecordable } from "../../call/endpoint.ts";
import { bodyHash } from "../../call/idempotency/idempotency.ts";
import { parseJson } from "../../../http/read-body.ts";
import { isNamedField } from "../../../providers/chat-fields.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { promptSize } from "./cost-bound.ts";
import { customToolsOf } from "./custom-tools.ts";
import type { LongChatFacts } from "./long-chat.ts";
import { checkChat, filledChat } from "./preset.ts";
import { type BodyShape, isGatewayField, shapedBody } from "./provider-body.ts";
import { CHAT_ROUTE, type ChatRequest, conversationHead } from "./request.ts";
import { assertSupported, assertWellFormed } from "./request-checks.ts";
import { askedParts } from "./request-fields.ts";
import { lastQuestion } from "./web-plugin.ts";

/** Long bodies of chat completions, in the thread. */
export const longChatForm: LongBodyForm = {
  parse: parseJson,

  check: checkChat,
  fill: filledChat,

  read(request: ChatRequest, text) {
    assertWellFormed(request);
    assertRecordable(request);
    assertSupported(request);
    return longChatFacts(request, bodyHash(CHAT_ROUTE, text));
  },

  fieldsOf(request: ChatRequest, shape: BodyShape) {
    const leftOut = withUnnamedFields(shape.leftOut, request);
    return shapedBody(request, { ...shape, leftOut });
  },
};

/** What decides about a request that has passed all checks. */
export function longChatFacts(request: ChatRequest, hash: string): LongChatFacts {
  const customTools = customToolsOf(request);
  return {
    request: leanRequest(request),
    size: promptSize(request),
    parts: askedParts(request),
    head: conversationHead(request),
    hash,
    ...(isSearched(request) && { question: lastQuestion(request) }),
    ...(customTools.length > 0 && { customTools }),
  };
}

function isSearched({ plugins, web_search_options: options }: ChatRequest): boolean {
  return Boolean(plugins) || Boolean(options);
}

/**
 * A lean request names some of its unknown fields, and the event loop decides on those. A provider has all
 * or none of them, so the decision holds for the rest.
 */
function withUnnamedFields(leftOut: readonly string[], request: ChatRequest): readonly string[] {
  if (leftOut.every(isNamedField)) return leftOut;
  const isUnnamed = (field: string) =>
    field !== "messages" && !isNamedField(field) && !isGatewayField(field);
  return [...leftOut, ...Object.keys(request).filter(isUnnamed)];
}

/** No name of a model or provider is longer, so that a cut one names nothing either. */
const MAX_NAME_CHARACTERS = 1_024;
/** More than are listed in a header. */
const MAX_UNNAMED_FIELDS = 1_000;
const MAX_UNNAMED_CHARACTERS = 65_536;
const MAX_MEMBERS = 1_000;
/** A longer one is passed on, and says nothing to the gateway. */
const MAX_FORMAT_CHARACTERS = 65_536;
const MAX_TEXT_CHARACTERS = 1_024;

/**
 * What the event loop needs of a request that has passed all checks: small, whatever the request holds, and
 * leading to the same decisions. What the gateway reads is there unchanged (its own size is bounded by the
 * checks, but for names, which are cut); of other fields it is their presence, and the values that
 * chat-fields.ts looks at. Messages are left out: their size and parts are kept separately.
 */
export function leanRequest(request: ChatRequest): ChatRequest {
  const lean: Record<string, unknown> = {};
  let unnamed = 0;
  let unnamedCharacters = 0;
  for (const field in request) {
    const value = request[field];
    if (field === "__proto__" || value === null || value === undefined) continue;
    if (field === "messages") lean.messages = [];
    else if (field in READ_EXACTLY) lean[field] = READ_EXACTLY[field]!(value);
    else if (isNamedField(field) || isGatewayField(field)) lean[field] = standIn(value);
    else if (unnamed < MAX_UNNAMED_FIELDS && unnamedCharacters < MAX_UNNAMED_CHARACTERS) {
      unnamed++;
      unnamedCharacters += field.length;
      lean[field.slice(0, MAX_UNNAMED_CHARACTERS)] = true;
    }
  }
  return lean as unknown as ChatRequest;
}

const asItIs = (value: unknown): unknown => value;
const cutName = (name: unknown): unknown => (name as string).slice(0, MAX_NAME_CHARACTERS);
const cutNames = (names: unknown): unknown => (names as readonly string[]).map(cutName);

const READ_EXACTLY: Readonly<Record<string, (value: unknown) => unknown>> = Object.assign(
  Object.create(null) as Record<string, never>,
  {
    model: cutName,
    models: cutNames,
    provider: (value: unknown) => {
      const { order, only, ignore, ...rest } = value as NonNullable<ChatRequest["provider"]>;
      return {
        ...rest,
        ...(order && { order: cutNames(order) }),
        ...(only && { only: cutNames(only) }),
        ...(ignore && { ignore: cutNames(ignore) }),
      };
    },
    response_format: (value: unknown) =>
      JSON.stringify(value).length <= MAX_FORMAT_CHARACTERS ? value : standIn(value),
    // Each of a few words.
    modalities: (value: unknown) => [...new Set(value as readonly string[])],
    web_search_options: asItIs,
    transforms: asItIs,
    plugins: asItIs,
    // Their lengths are checked.
    metadata: asItIs,
    trace: asItIs,
    user: asItIs,
    session_id: asItIs,
  },
);

/** A small value that is as empty as the other one, and has the members and plain values next to its top. */
function standIn(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.slice(0, 1).map((first) => (Array.isArray(first) ? [] : standIn(first)));
  }
  if (typeof value !== "object" || value === null) return plainOrEmpty(value);
  const members: Record<string, unknown> = {};
  let count = 0;
  for (const name in value) {
    if (count++ === MAX_MEMBERS) break;
    if (name === "__proto__") continue;
    members[name.slice(0, MAX_TEXT_CHARACTERS)] = plainOrEmpty(
      (value as Record<string, unknown>)[name],
    );
  }
  return members;
}

function plainOrEmpty(value: unknown): unknown {
  if (typeof value === "string") return value.slice(0, MAX_TEXT_CHARACTERS);
  if (Array.isArray(value)) return [];
  return typeof value === "object" && value !== null ? {} : value;
}
