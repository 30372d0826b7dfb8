import { bodyHash } from "../../../http/idempotency-key.ts";
import { parseJson } from "../../../http/read-body.ts";
import { isNamedField } from "../../../providers/chat-fields.ts";
import { assertRecordable } from "../../call/endpoint.ts";
import type { LongBodyForm } from "../long-body-work.ts";
import { promptSize } from "./cost-bound.ts";
import { customToolsOf } from "./custom-tools.ts";
import type { LongChatFacts } from "./long-chat.ts";
import { checkChat, filledChat } from "./preset.ts";
import { type BodyShape, isGatewayField, shapedBody } from "./provider-body.ts";
import { CHAT_ROUTE, type ChatRequest, conversationHead } from "./request.ts";
import { assertSupported, assertWellFormed } from "./request-checks.ts";
import { requestedParts } from "./request-fields.ts";
import { lastQuestion } from "./web-plugin.ts";

/** Reads and renders long bodies of chat completions in a work thread. */
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

/** Returns the facts of a request that has passed all checks. */
export function longChatFacts(request: ChatRequest, hash: string): LongChatFacts {
  const customTools = customToolsOf(request);
  return {
    request: routingView(request),
    size: promptSize(request),
    parts: requestedParts(request),
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
 * Adds the unknown fields that the reduced request does not list. The reduced request lists only some of
 * them, and the event loop decides from those. A provider supports all unknown fields or none, so the
 * decision holds for the rest.
 */
function withUnnamedFields(leftOut: readonly string[], request: ChatRequest): readonly string[] {
  if (leftOut.every(isNamedField)) return leftOut;
  const isUnnamed = (field: string) =>
    field !== "messages" && !isNamedField(field) && !isGatewayField(field);
  return [...leftOut, ...Object.keys(request).filter(isUnnamed)];
}

/** No model or provider name is longer, so a cut name matches none either. */
const MAX_NAME_CHARACTERS = 1_024;
/** More names than a response header lists. */
const MAX_UNNAMED_FIELDS = 1_000;
const MAX_UNNAMED_CHARACTERS = 65_536;
const MAX_MEMBERS = 1_000;
/** Maximum characters of a response format that the gateway reads. A longer one is only passed to the provider. */
const MAX_FORMAT_CHARACTERS = 65_536;
const MAX_TEXT_CHARACTERS = 1_024;

/**
 * Returns the part of a checked request that the event loop needs. It is small for a request of any size, and
 * leads to the same decisions. Fields that the gateway reads are unchanged; the checks bound their size, and
 * only names are cut. Of other fields, the result has their presence and the values that chat-fields.ts
 * reads. Messages are left out, since their size and parts are separate facts.
 */
export function routingView(request: ChatRequest): ChatRequest {
  const view: Record<string, unknown> = {};
  let unnamed = 0;
  let unnamedCharacters = 0;
  for (const field in request) {
    const value = request[field];
    if (field === "__proto__" || value === null || value === undefined) continue;
    if (field === "messages") view.messages = [];
    else if (field in READ_EXACTLY) view[field] = READ_EXACTLY[field]!(value);
    else if (isNamedField(field) || isGatewayField(field)) view[field] = truncatedCopy(value);
    else if (unnamed < MAX_UNNAMED_FIELDS && unnamedCharacters < MAX_UNNAMED_CHARACTERS) {
      unnamed++;
      unnamedCharacters += field.length;
      view[field.slice(0, MAX_UNNAMED_CHARACTERS)] = true;
    }
  }
  return view as unknown as ChatRequest;
}

const unchanged = (value: unknown): unknown => value;
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
      JSON.stringify(value).length <= MAX_FORMAT_CHARACTERS ? value : truncatedCopy(value),
    // Each value is a short word.
    modalities: (value: unknown) => [...new Set(value as readonly string[])],
    web_search_options: unchanged,
    transforms: unchanged,
    plugins: unchanged,
    // The checks bound the length of these fields.
    metadata: unchanged,
    trace: unchanged,
    user: unchanged,
    session_id: unchanged,
  },
);

/**
 * Returns a small copy of a field: the same type and emptiness, its first-level members, and strings cut to
 * 1,024 characters. Routing decisions on the copy equal those on the original.
 */
function truncatedCopy(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.slice(0, 1).map((first) => (Array.isArray(first) ? [] : truncatedCopy(first)));
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
