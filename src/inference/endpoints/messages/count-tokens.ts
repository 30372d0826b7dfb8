import { anthropicWire } from "../../../http/anthropic-wire.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";
import { FreeCall } from "../../call/free-call.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { preparePreset } from "../fill-preset.ts";
import type { LongBodies } from "../long-bodies.ts";
import { type AcceptedMessages, acceptMessages } from "./accepted.ts";
import { MessagesEndpoint, nativeCall } from "./endpoint.ts";
import { type CountTokensCall, LongMessages, readLongMessages } from "./long-messages.ts";
import { checkCount, filledMessages } from "./preset.ts";
import { countBody, messagesQuery, tokenCount } from "./schema.ts";

/**
 * Returns the route POST /v1/messages/count_tokens. It returns Anthropic's own count for Anthropic's models,
 * and an estimate for others.
 */
export function countTokensRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  thread: FairWorkThread,
): RouteDefinition {
  const endpoint = new MessagesEndpoint(dependencies.calls.clock);
  const paid = new PaidCall(dependencies, endpoint);
  const counting = new FreeCall<AcceptedMessages, number>(dependencies, paid);
  const prepare = preparePreset(dependencies.definitions, filledMessages, checkCount);
  return {
    method: "POST",
    path: "/v1/messages/count_tokens",
    tag: "Messages",
    operationId: "messages.count_tokens",
    summary: "Count message tokens",
    access: { kind: "model", scope: "chat:completions" },
    wire: anthropicWire,
    query: messagesQuery,
    body: countBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) =>
      readLongMessages(longBodies, "messages.count", bytes, owner, signal),
    responses: {
      200: {
        description:
          "The token count: Anthropic's own for its models, and an estimate for others. Free of charge.",
        schema: tokenCount,
      },
    },
    async handle(context) {
      const { caller, log, lifetime, requestId, request } = context;
      const filling = prepare(context, () => paid.admitReading(context));
      const { body, admittedRateHeaders } = (await filling) ?? context;
      const incoming = {
        ...{ caller, admittedRateHeaders, log, lifetime, requestId, clientSignal: request.signal },
        request: acceptMessages(body, request.headers),
      };
      const { answer, headers } = await counting.run(incoming, {
        isAnsweredBy: ({ provider }) => provider.messages?.countTokens !== undefined,
        ask: (call, candidate, accepted) =>
          candidate.provider.messages!.countTokens!(nativeCall(call, candidate, accepted)),
        answerHere() {
          const call: CountTokensCall =
            body instanceof LongMessages
              ? { kind: "messages.count", body: body.bytes, preset: body.preset }
              : { kind: "messages.count", body: JSON.stringify(body) };
          return thread.call<number>(caller.key.organizationId, call, request.signal);
        },
      });
      const sent = { ...headers, "content-type": "application/json" };
      return context.respond(JSON.stringify({ input_tokens: answer }), sent);
    },
  };
}
