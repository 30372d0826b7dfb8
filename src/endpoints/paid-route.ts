import type { CallOutcome } from "../calls/call.ts";
import type { AcceptedRequest } from "../calls/endpoint.ts";
import type { PaidCall } from "../calls/run-call.ts";
import type { RequestContext, RouteDefinition } from "../http/route.ts";
import { bodyInPieces } from "../lib/body-pieces.ts";

/** The route of a billed endpoint, which runs each of its requests through the paid call. */
export function paidRoute<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  description: Omit<RouteDefinition, "method" | "handle" | "takesIdempotencyKey">,
): RouteDefinition {
  return {
    ...description,
    method: "POST",
    takesIdempotencyKey: true,
    handle(context) {
      const answered = call.run({
        caller: context.caller,
        requestId: context.requestId,
        startedMs: context.startedMs,
        takenRate: context.takenRate,
        request: call.endpoint.accept(context.body),
        bodyText: context.bodyText,
        idempotencyHeader: context.request.headers.get("idempotency-key"),
        clientSignal: context.request.signal,
        log: context.log,
        admitAgain: () => context.admitAgain(),
      });
      return answered.then((outcome) => responseOf(context, outcome));
    },
  };
}

function responseOf(context: RequestContext, outcome: CallOutcome): Response {
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
