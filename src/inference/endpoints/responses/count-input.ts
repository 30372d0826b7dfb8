import type { RouteDefinition } from "../../../http/route.ts";
import { secondsNow } from "../../../lib/clock.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";
import { FreeCall } from "../../call/free-call.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import type { HostedServices } from "../../tools/hosted-services.ts";
import type { LongBodies } from "../long-bodies.ts";
import { type AcceptedResponse, acceptResponse } from "./accepted.ts";
import { ResponsesEndpoint } from "./endpoint.ts";
import { type CountInputCall, LongResponses, readLongResponses } from "./long-responses.ts";
import { type ShortTurn, TurnPreparation } from "./prepared-turn.ts";
import type { ResponseStore } from "./response-store.ts";
import { ResponseStoreWriter } from "./response-store-writer.ts";
import { inputTokens, responsesBody } from "./schema.ts";

/**
 * Returns the route POST /v1/responses/input_tokens. It estimates the tokens of a request, including the
 * stored items that it continues.
 */
export function countInputRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  thread: FairWorkThread,
  store: ResponseStore,
  hosted: HostedServices,
): RouteDefinition {
  const { clock } = dependencies.calls;
  const storeWriter = new ResponseStoreWriter(store);
  const endpoint = new ResponsesEndpoint({ clock, storeWriter, hosted });
  const paid = new PaidCall(dependencies, endpoint);
  const counting = new FreeCall<AcceptedResponse, number>(dependencies, paid);
  const { prepare } = new TurnPreparation({ ...dependencies, store, longBodies });
  return {
    method: "POST",
    path: "/v1/responses/input_tokens",
    tag: "Responses",
    operationId: "responses.input_tokens.count",
    summary: "Count input tokens",
    access: { kind: "model", scope: "responses" },
    body: responsesBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) => readLongResponses(longBodies, bytes, owner, signal),
    responses: {
      200: {
        description: "The estimated number of input tokens. Free of charge.",
        schema: inputTokens,
      },
    },
    async handle(context) {
      const { body, admittedRateHeaders } = await prepare(context, () =>
        paid.admitReading(context),
      );
      const { caller, log, lifetime, requestId, request } = context;
      const prepared = body as ShortTurn | LongResponses;
      const incoming = {
        ...{ caller, admittedRateHeaders, log, lifetime, requestId, clientSignal: request.signal },
        request: acceptResponse(prepared, secondsNow(clock), hosted.registry),
      };
      const { answer, headers } = await counting.run(incoming, {
        isAnsweredBy: () => false,
        ask: () => Promise.reject(new Error("no provider counts these tokens")),
        answerHere: () =>
          thread.call<number>(caller.key.organizationId, countOf(prepared), request.signal),
      });
      const counted = { object: "response.input_tokens", input_tokens: answer };
      const sent = { ...headers, "content-type": "application/json" };
      return context.respond(JSON.stringify(counted), sent);
    },
  };
}

function countOf(prepared: ShortTurn | LongResponses): CountInputCall {
  return prepared instanceof LongResponses
    ? {
        kind: "responses.count",
        text: prepared.bytes,
        isTurn: prepared.isTurn,
        preset: prepared.preset,
      }
    : { kind: "responses.count", text: JSON.stringify(prepared.turn), isTurn: true };
}
