import type { ReceivedForm } from "../../http/model-form.ts";
import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import type { BatchAnswer, PreparedBatchLine, SettledBatchAnswer } from "../call/batched-call.ts";
import type { AcceptedCall, CallOutcome, InternalIdempotencyKey } from "../call/call.ts";
import type { AcceptedRequest } from "../call/endpoint.ts";
import type { CallGuard } from "../call/guard/call-guard.ts";
import type { PaidCall } from "../call/run-call.ts";

type ContextMember =
  | "requestId"
  | "startedMs"
  | "caller"
  | "admitAgain"
  | "body"
  | "bodyText"
  | "admittedRateHeaders"
  | "log"
  | "lifetime";

/** A request to a billed endpoint before it is accepted, from a client or from a line of a batch. */
export interface IncomingCall extends Pick<RequestContext, ContextMember> {
  readonly request: Pick<Request, "headers" | "signal">;
  /**
   * Stores an answer that is too large for the table of idempotency keys, before it is charged. Absent if such
   * an answer cannot be replayed.
   */
  storeLargeResult?(body: Uint8Array): Promise<void>;
  readonly internalIdempotency?: InternalIdempotencyKey | undefined;
  /** True if a provider batch answers the request. Its documents are then not read. */
  readonly isForProviderBatch?: boolean;
}

/** The route of a billed endpoint. Lines of batches use `direct`. */
export interface PaidRoute extends RouteDefinition {
  readonly direct: DirectCalls;
}

/** The calls of a billed endpoint without HTTP. Each rejects with the error that a client would receive. */
export interface DirectCalls {
  run(context: IncomingCall): Promise<CallOutcome>;
  /** Returns undefined if the request must be called with `run`. */
  prepareForBatch(context: IncomingCall): Promise<PreparedBatchLine | undefined>;
  settleBatchAnswer(context: IncomingCall, answer: BatchAnswer): Promise<SettledBatchAnswer>;
}

/** The body that the endpoint accepts, and the rate headers if the rate was already counted. */
export interface LoadedBody {
  readonly body: unknown;
  readonly admittedRateHeaders: RequestContext["admittedRateHeaders"];
}

/**
 * Loads the stored input of a request. Before long work it waits for `admit`, which counts the request in the
 * rate window and rejects if no budget or credit is left. Rejects if the request is rejected. Returns
 * undefined, and not a promise, if nothing is loaded: a chat without these features then has no additional
 * await before its call.
 */
export type Prepare = (
  context: IncomingCall,
  admit: () => Promise<LoadedBody["admittedRateHeaders"]>,
) => Promise<LoadedBody> | undefined;

/** Answers a request without waiting for its call. Returns undefined if the request is answered by its call. */
export type BackgroundStart<Request> = (
  context: RequestContext,
  call: AcceptedCall<Request>,
) => Promise<Response> | undefined;

/** Returns the route of a billed endpoint. The route runs each request as a paid call. */
export function paidRoute<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  description: Omit<RouteDefinition, "method" | "handle" | "takesIdempotencyKey">,
  prepare?: Prepare,
  startInBackground?: BackgroundStart<Request>,
): PaidRoute {
  const isForm = description.modelForm !== undefined;
  const load = (context: IncomingCall) => prepare?.(context, () => call.admitReading(context));
  const acceptedOf = async (context: IncomingCall) =>
    acceptedCall(call, context, (await load(context)) ?? context, isForm);
  const answer = (context: RequestContext, loaded: LoadedBody): Promise<Response> => {
    const accepted = acceptedCall(call, context, loaded, isForm);
    return (
      startInBackground?.(context, accepted) ??
      call.run(accepted).then((outcome) => responseOf(context, outcome))
    );
  };
  return {
    ...description,
    method: "POST",
    takesIdempotencyKey: true,
    handle(context) {
      const loading = load(context);
      return loading === undefined
        ? answer(context, context)
        : loading.then((loaded) => answer(context, loaded));
    },
    direct: {
      run: async (context) => call.run(await acceptedOf(context)),
      prepareForBatch: async (context) => call.prepareForBatch(await acceptedOf(context)),
      settleBatchAnswer: async (context, batchAnswer) =>
        call.settleBatchAnswer(await acceptedOf(context), batchAnswer),
    },
  };
}

function acceptedCall<Request extends AcceptedRequest, Answer>(
  call: PaidCall<Request, Answer>,
  context: IncomingCall,
  { body, admittedRateHeaders }: LoadedBody,
  isForm: boolean,
): AcceptedCall<Request> {
  const { headers } = context.request;
  const request = call.endpoint.accept(body, headers);
  context.log.request = request.fields;
  return {
    caller: context.caller,
    requestId: context.requestId,
    startedMs: context.startedMs,
    admittedRateHeaders,
    request,
    applyGuardrails: async (guard) => {
      const readable = (guard.screensInput && (await call.endpoint.readable?.(body))) || body;
      const screened = isForm ? screenedForm(readable, guard) : screenedBody(readable, guard);
      return call.endpoint.accept(await screened, headers, guard);
    },
    bodyText: context.bodyText,
    idempotencyHeader: headers.get("idempotency-key"),
    internalIdempotency: context.internalIdempotency,
    storeLargeResult: context.storeLargeResult,
    headers,
    clientSignal: context.request.signal,
    log: context.log,
    lifetime: context.lifetime,
    admitAgain: () => context.admitAgain(),
  };
}

/** The name of the method that applies guardrails to a body that `guard.input` cannot read directly. */
export const APPLY_GUARDRAILS: unique symbol = Symbol("screened");

/** A body that a work thread holds, or that is part of a longer text. */
interface ScreenableBody {
  [APPLY_GUARDRAILS](guard: CallGuard): Promise<unknown>;
}

function screenedBody(body: unknown, guard: CallGuard): Promise<unknown> {
  const isScreenable = typeof body === "object" && body !== null && APPLY_GUARDRAILS in body;
  return isScreenable ? (body as ScreenableBody)[APPLY_GUARDRAILS](guard) : guard.input(body);
}

/** Applies guardrails to the fields of a form. Its files are audio and images, which are not checked. */
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

const AUDIO = /^audio\//;

/**
 * Returns the body of a response. Audio stays in one piece, so that the response has a Content-Length, which
 * players use. Bun sends a stream of pieces in chunked encoding.
 */
function bodyOf({ body, headers }: Exclude<CallOutcome, { readonly kind: "stream" }>): BodyInit {
  const isAudio = body instanceof Uint8Array && AUDIO.test(headers["content-type"] ?? "");
  return isAudio ? (body as Uint8Array<ArrayBuffer>) : bodyInPieces(body);
}
