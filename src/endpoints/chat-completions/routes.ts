import type { PaidCallDependencies } from "../../calls/run-call.ts";
import { PaidCall } from "../../calls/run-call.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { paidRoute } from "../paid-route.ts";
import { chatCompletion, chatCompletionChunk } from "./answer-schema.ts";
import { ChatEndpoint } from "./endpoint.ts";
import type { LongBodies } from "./long-body.ts";
import { chatCompletionBody } from "./schema.ts";

/** POST /v1/chat/completions (spec 4.5, 6.2). */
export function chatRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
): RouteDefinition {
  const endpoint = new ChatEndpoint(dependencies.calls.clock);
  return paidRoute(new PaidCall(dependencies, endpoint), {
    path: "/v1/chat/completions",
    tag: "Chat",
    summary: "Create a chat completion, streamed or not",
    access: { kind: "model", scope: "chat:completions" },
    body: chatCompletionBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) => longBodies.read(bytes, owner, signal),
    responses: {
      200: {
        description: "A chat completion, or with stream true a stream of its chunks",
        schema: chatCompletion,
        eventSchema: chatCompletionChunk,
      },
    },
  });
}
