import { bodyHash } from "../../calls/idempotency/idempotency.ts";
import { assertRecordable } from "../../calls/recorded-fields.ts";
import { parseJson, textOfShared } from "../../http/read-body.ts";
import { createCheck } from "../../http/validate.ts";
import type { SharedBytes } from "../../lib/shared-bytes.ts";
import { BodyRender } from "../../providers/chat-body.ts";
import { isNamedField } from "../../providers/chat-fields.ts";
import { exportOf, type ThreadOutcome, threadOutcome } from "../../providers/thread-work.ts";
import { promptSize } from "./cost-bound.ts";
import { leanRequest } from "./lean-request.ts";
import type { LongBodyCall, LongBodyFacts } from "./long-body.ts";
import { isGatewayField, shapedBody } from "./provider-body.ts";
import { CHAT_ROUTE, type ChatRequest, conversationHead } from "./request.ts";
import { askedMedia } from "./request-fields.ts";
import { chatCompletionBody } from "./schema.ts";
import { assertSupported } from "./unsupported-fields.ts";
import { assertWellFormed } from "./well-formed.ts";

/**
 * Requests that were read and not rendered yet, so that most bodies are parsed once; a body that is missing
 * here is parsed again. Bounded by the bytes that they were parsed from.
 */
const MAX_PARSED_BYTES = 67_108_864;
const parsed = new Map<number, { readonly request: ChatRequest; readonly byteLength: number }>();
let parsedBytes = 0;

const checkBody = createCheck(chatCompletionBody, "invalid_body", "Request body");

/** What a work thread does with long chat bodies. Throws what refuses a body. */
export function doLongBodyWork(call: LongBodyCall): unknown {
  return call.kind === "chat.read" ? read(call.id, call.bytes) : render(call);
}

type RenderCall = Extract<LongBodyCall, { kind: "chat.render" }>;

async function render({ id, bytes, shape, module, options }: RenderCall): Promise<ThreadOutcome> {
  const renderer = await exportOf<BodyRender<unknown, unknown>>(module, BodyRender);
  const request = take(id) ?? requestOf(textOfShared(bytes));
  const leftOut = withUnnamedFields(shape.leftOut, request);
  return threadOutcome(() => renderer.render(shapedBody(request, { ...shape, leftOut }), options));
}

/** The checks that any request passes, in their order. */
function read(id: number, bytes: SharedBytes): LongBodyFacts {
  const text = textOfShared(bytes);
  const request = requestOf(text);
  checkBody(request);
  assertWellFormed(request);
  assertRecordable(request);
  assertSupported(request);
  const facts: LongBodyFacts = {
    request: leanRequest(request),
    size: promptSize(request),
    media: askedMedia(request),
    head: conversationHead(request),
    hash: bodyHash(CHAT_ROUTE, text),
  };
  keep(id, request, bytes.byteLength);
  return facts;
}

function requestOf(text: string): ChatRequest {
  return parseJson(text) as ChatRequest;
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

function keep(id: number, request: ChatRequest, byteLength: number): void {
  parsed.set(id, { request, byteLength });
  parsedBytes += byteLength;
  for (const oldest of parsed.keys()) {
    if (parsedBytes <= MAX_PARSED_BYTES) break;
    take(oldest);
  }
}

function take(id: number): ChatRequest | undefined {
  const found = parsed.get(id);
  if (found === undefined) return undefined;
  parsed.delete(id);
  parsedBytes -= found.byteLength;
  return found.request;
}
