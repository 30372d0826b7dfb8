import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import { LONG_BODY } from "../../providers/interface.ts";
import { chatCompletion, chatCompletionChunk } from "./answer-schema.ts";
import type { ChatCompletions } from "./chat-completions.ts";
import type { LongBodies } from "./long-body.ts";
import type { ChatOutcome } from "./prepared-chat.ts";
import { assertRecordable } from "./recorded-fields.ts";
import type { ChatRequest } from "./request.ts";
import { chatCompletionBody } from "./schema.ts";
import { assertWellFormed } from "./well-formed.ts";

/** POST /v1/chat/completions (spec 4.5, 6.2). */
export function chatRoutes(chat: ChatCompletions, longBodies: LongBodies): RouteDefinition[] {
  return [
    {
      method: "POST",
      path: "/v1/chat/completions",
      tag: "Chat",
      summary: "Create a chat completion, streamed or not",
      access: { kind: "model", scope: "chat:completions" },
      body: chatCompletionBody,
      allowsUnknownFields: true,
      takesIdempotencyKey: true,
      responses: {
        200: {
          description: "A chat completion, or with stream true a stream of its chunks",
          schema: chatCompletion,
          eventSchema: chatCompletionChunk,
        },
      },
      readLongBody: (bytes, owner, signal) => longBodies.read(bytes, owner, signal),
      handle: (context) =>
        chat.complete(chatContext(context)).then((outcome) => responseOf(context, outcome)),
    },
  ];
}

function chatContext(context: RequestContext) {
  const request = context.body as ChatRequest;
  if (request[LONG_BODY] === undefined) {
    assertWellFormed(request);
    assertRecordable(request);
  }
  return {
    caller: context.caller,
    arrival: context,
    requestId: context.requestId,
    startedMs: context.startedMs,
    takenRate: context.takenRate,
    request,
    bodyText: context.bodyText,
    idempotencyHeader: context.request.headers.get("idempotency-key"),
    clientSignal: context.request.signal,
    log: context.log,
  };
}

function responseOf(context: RequestContext, outcome: ChatOutcome): Response {
  if (outcome.kind === "stream") context.keepOpen();
  if (outcome.kind === "replay") {
    const headers = {
      ...outcome.headers,
      "x-gateway-latency-ms": String(Math.round(performance.now() - context.startedMs)),
      "x-gateway-idempotent-replay": "true",
    };
    return context.respond(bodyInPieces(outcome.body), headers, outcome.status);
  }
  const body = outcome.kind === "stream" ? outcome.body : bodyInPieces(outcome.body);
  return context.respond(body, outcome.headers);
}
