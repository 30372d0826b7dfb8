import type { ReceivedForm } from "../../http/model-form.ts";
import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import type { BatchPhase } from "../call/batched-call.ts";
import type { CallOutcome, IncomingCall, InternalIdempotencyKey } from "../call/call.ts";
import type { AcceptedRequest } from "../call/endpoint.ts";
import type { CallGuard } from "../call/guard/call-guard.ts";
import type { PaidCall } from "../call/run-call.ts";

/** The context of a request to a billed endpoint. A batch sets the members that a client's request does not have. */
export interface PaidContext extends RequestContext {
  /**
   * Stores an answer that is too large for the table of idempotency keys, before it is charged. Absent if such
   * an answer cannot be replayed.
   */
  storeLargeResult?(body: Uint8Array): Promise<void>;
  readonly internalIdempotency?: InternalIdempotencyKey | undefined;
  /** Set if the provider answers the request in a batch. */
  readonly batchPhase?: BatchPhase | undefined;
}

/** The body that the endpoint accepts, and the rate headers if the rate was already counted. */
export interface LoadedBody {
  readonly body: unknown;
  readonly admittedRateHeaders: RequestContext["admittedRateHeaders"];
}

/**
 * Loads the stored input of a request. If the load takes long, it first waits for `admit`, which counts the
 * request in the rate window and rejects if the key has no budget left. Throws or rejects if the request is
 * rejected.
 */
export type Prepare = (
  context: PaidContext,
  admit: () => Promise<LoadedBody["admittedRateHeaders"]>,
) => LoadedBody | Promise<LoadedBody>;

/** Answers a request without waiting for its call. Returns undefined if the request is answered by its call. */
export type BackgroundStart<Request> = (
  context: PaidContext,
  call: IncomingCall<Request>,
) => Promise<Response> | undefined;

/** Returns the route of a billed endpoint. The route runs each request as a paid call. */
export function paidRoute<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  description: Omit<RouteDefinition, "method" | "handle" | "takesIdempotencyKey">,
  prepare?: Prepare,
  takeOver?: BackgroundStart<Request>,
): RouteDefinition {
  const answer = (context: PaidContext, prepared: LoadedBody): Promise<Response> => {
    const isForm = description.modelForm !== undefined;
    const incoming = incomingCall(call, context, prepared, isForm);
    return (
      takeOver?.(context, incoming) ??
      call.run(incoming).then((outcome) => responseOf(context, outcome))
    );
  };
  return {
    ...description,
    method: "POST",
    takesIdempotencyKey: true,
    handle(context: PaidContext) {
      const prepared = prepare?.(context, () => call.admitReading(context)) ?? context;
      return prepared instanceof Promise
        ? prepared.then((body) => answer(context, body))
        : answer(context, prepared);
    },
  };
}

function incomingCall<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  context: PaidContext,
  { body, admittedRateHeaders }: LoadedBody,
  isForm: boolean,
): IncomingCall<Request> {
  const { headers } = context.request;
  const request = call.endpoint.accept(body, headers);
  context.log.request = request.fields;
  return {
    caller: context.caller,
    requestId: context.requestId,
    startedMs: context.startedMs,
    admittedRateHeaders,
    request,
    screened: async (guard) => {
      const readable = (guard.screensInput && (await call.endpoint.readable?.(body))) || body;
      const screened = isForm ? screenedForm(readable, guard) : screenedBody(readable, guard);
      return call.endpoint.accept(await screened, headers, guard);
    },
    bodyText: context.bodyText,
    idempotencyHeader: context.request.headers.get("idempotency-key"),
    internalIdempotency: context.internalIdempotency,
    storeLargeResult: context.storeLargeResult,
    batchPhase: context.batchPhase,
    headers: context.request.headers,
    clientSignal: context.request.signal,
    log: context.log,
    admitAgain: () => context.admitAgain(),
  };
}

/** The method that applies guardrails to a body that `guard.input` cannot read directly. */
export const GUARDRAILS_APPLIED: unique symbol = Symbol("screened");

/** A body that a work thread holds, or that is part of a longer text. */
interface ScreenableBody {
  [GUARDRAILS_APPLIED](guard: CallGuard): Promise<unknown>;
}

function screenedBody(body: unknown, guard: CallGuard): Promise<unknown> {
  const isScreenable = typeof body === "object" && body !== null && GUARDRAILS_APPLIED in body;
  return isScreenable ? (body as ScreenableBody)[GUARDRAILS_APPLIED](guard) : guard.input(body);
}

/** Applies guardrails to the fields of a form. Its files are audio and images. */
async function screenedForm(body: unknown, guard: CallGuard): Promise<unknown> {
  const form = body as ReceivedForm;
  return { ...form, fields: await guard.input(form.fields) };
}

export function responseOf(context: PaidContext, outcome: CallOutcome): Response {
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

const AUDIO = /^audio\//;

/**
 * Returns audio in one piece, so that the response has a Content-Length, which players need. Bun sends a
 * stream of pieces in chunked encoding.
 */
function bodyOf({ body, headers }: Exclude<CallOutcome, { readonly kind: "stream" }>): BodyInit {
  const isAudio = body instanceof Uint8Array && AUDIO.test(headers["content-type"] ?? "");
  return isAudio ? (body as Uint8Array<ArrayBuffer>) : bodyInPieces(body);
}
