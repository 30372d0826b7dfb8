import type { ArrivedCall, CallOutcome } from "../call/call.ts";
import type { AcceptedRequest } from "../call/endpoint.ts";
import type { CallGuard } from "../call/guard/call-guard.ts";
import type { PaidCall } from "../call/run-call.ts";
import type { ReceivedForm } from "../../http/model-form.ts";
import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";

/** What an endpoint accepts in the place of the body, and the headers of the rate where it was taken. */
export interface PreparedBody {
  readonly body: unknown;
  readonly takenRate: RequestContext["takenRate"];
}

/**
 * Brings what a request builds on besides its body. What is long to read waits for `admit`, which takes the request's
 * place in the rate window and rejects where its key has no money left. Throws, or rejects with, what refuses it.
 */
export type Prepare = (
  context: RequestContext,
  admit: () => Promise<PreparedBody["takenRate"]>,
) => PreparedBody | Promise<PreparedBody>;

/** Answers a request in another way than with the outcome of its call; undefined where it does not. */
export type TakeOver<Request> = (
  context: RequestContext,
  call: ArrivedCall<Request>,
) => Promise<Response> | undefined;

/** The route of a billed endpoint, which runs each of its requests through the paid call. */
export function paidRoute<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  description: Omit<RouteDefinition, "method" | "handle" | "takesIdempotencyKey">,
  prepare?: Prepare,
  takeOver?: TakeOver<Request>,
): RouteDefinition {
  const answer = (context: RequestContext, prepared: PreparedBody): Promise<Response> => {
    const isForm = description.modelForm !== undefined;
    const arrived = arrivedCall(call, context, prepared, isForm);
    return (
      takeOver?.(context, arrived) ??
      call.run(arrived).then((outcome) => responseOf(context, outcome))
    );
  };
  return {
    ...description,
    method: "POST",
    takesIdempotencyKey: true,
    handle(context) {
      const prepared = prepare?.(context, () => call.admitReading(context)) ?? context;
      return prepared instanceof Promise
        ? prepared.then((body) => answer(context, body))
        : answer(context, prepared);
    },
  };
}

function arrivedCall<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  context: RequestContext,
  { body, takenRate }: PreparedBody,
  isForm: boolean,
): ArrivedCall<Request> {
  const { headers } = context.request;
  const request = call.endpoint.accept(body, headers);
  context.log.asked = request.fields;
  return {
    caller: context.caller,
    requestId: context.requestId,
    startedMs: context.startedMs,
    takenRate,
    request,
    screened: async (guard) => {
      const readable = (guard.screensInput && (await call.endpoint.readable?.(body))) || body;
      const screened = isForm ? screenedForm(readable, guard) : screenedBody(readable, guard);
      return call.endpoint.accept(await screened, headers, guard);
    },
    bodyText: context.bodyText,
    idempotencyHeader: context.request.headers.get("idempotency-key"),
    ownIdempotency: context.ownIdempotency,
    keepLarge: context.keepLarge,
    half: context.half,
    headers: context.request.headers,
    clientSignal: context.request.signal,
    log: context.log,
    admitAgain: () => context.admitAgain(),
  };
}

/** The method of bodies that are not looked through as they are. */
export const SCREENED: unique symbol = Symbol("screened");

/** A body that lies in a work thread, or is part of a larger text. */
interface ScreenableBody {
  [SCREENED](guard: CallGuard): Promise<unknown>;
}

function screenedBody(body: unknown, guard: CallGuard): Promise<unknown> {
  const isScreenable = typeof body === "object" && body !== null && SCREENED in body;
  return isScreenable ? (body as ScreenableBody)[SCREENED](guard) : guard.input(body);
}

/** Its files are sound and images. */
async function screenedForm(body: unknown, guard: CallGuard): Promise<unknown> {
  const form = body as ReceivedForm;
  return { ...form, fields: await guard.input(form.fields) };
}

export function responseOf(context: RequestContext, outcome: CallOutcome): Response {
  if (outcome.kind === "stream") context.keepOpen();
  if (outcome.kind === "replay") {
    const headers = {
      ...outcome.headers,
      "x-gateway-latency-ms": String(Math.round(performance.now() - context.startedMs)),
      "x-gateway-idempotent-replay": "true",
    };
    return context.respond(bodyOf(outcome), headers, outcome.status);
  }
  const body = outcome.kind === "stream" ? outcome.body : bodyOf(outcome);
  return context.respond(body, outcome.headers);
}

const SOUND = /^audio\//;

/** Sound in one piece, which has a Content-Length: players show it. In pieces Bun sends chunks. */
function bodyOf({ body, headers }: Exclude<CallOutcome, { readonly kind: "stream" }>): BodyInit {
  const isSound = body instanceof Uint8Array && SOUND.test(headers["content-type"] ?? "");
  return isSound ? (body as Uint8Array<ArrayBuffer>) : bodyInPieces(body);
}
