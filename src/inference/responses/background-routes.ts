import type { RequestContext } from "../../http/route.ts";
import { isFields } from "../../lib/json.ts";
import { type BackgroundStart, responseOf } from "../endpoints/paid-route.ts";
import type { AcceptedResponse } from "../endpoints/responses/accepted.ts";
import type { ResponsesCall } from "../endpoints/responses/endpoint.ts";
import type { ResponseStoreWriter } from "../endpoints/responses/keep-response.ts";
import { EVENT_STREAM } from "../endpoints/responses/response-renderer.ts";
import type { ResponseStore } from "../endpoints/responses/response-store.ts";
import type { BackgroundRuns, BegunOutcome } from "./background-runs.ts";
import type { BackgroundStore } from "./background-store.ts";
import type { Conversations } from "./conversations.ts";
import type { EventFollowing } from "./follow-events.ts";

/** Everything that keeps and runs responses, composed once. */
export interface ResponseServices {
  readonly store: ResponseStore;
  readonly conversations: Conversations;
  readonly background: BackgroundStore;
  readonly runs: BackgroundRuns;
  readonly following: EventFollowing;
}

type OpenEvents = ReturnType<EventFollowing["reserve"]>["open"];

/** Answers requests for responses that run without their clients. */
export function answerBackground(
  { runs, following }: ResponseServices,
  call: ResponsesCall,
  keeping: ResponseStoreWriter,
): BackgroundStart<AcceptedResponse> {
  return (context, arrived) => {
    const { background, facts } = arrived.request;
    if (background === undefined) return undefined;
    const start = () => runs.start(call, arrived, keeping);
    return answerAtOnce(context, following, facts.isStreamed, start);
  };
}

/** With the response as it waits, or with the stream of its events. */
async function answerAtOnce(
  context: RequestContext,
  following: EventFollowing,
  isStreamed: boolean,
  start: () => Promise<BegunOutcome>,
): Promise<Response> {
  const room = isStreamed ? following.reserve(context.caller.key.organizationId) : undefined;
  let begun: BegunOutcome;
  try {
    begun = await start();
  } catch (error) {
    room?.free();
    throw error;
  }
  // The request is over when its call is.
  if (begun.kind === "begun") context.log.isDeferred = true;
  if (room !== undefined) {
    const headers = begun.kind === "begun" ? begun.headers : REPLAYED;
    return eventsOf(context, room.open, { id: idOf(begun), startingAfter: -1 }, headers);
  }
  if (begun.kind === "replay") return responseOf(context, begun);
  const headers = { ...begun.headers, "content-type": "application/json" };
  return context.respond(begun.json, headers);
}

const REPLAYED = { "x-gateway-idempotent-replay": "true" };

function idOf(begun: BegunOutcome): string {
  if (begun.kind === "begun") return begun.id;
  const kept: unknown = JSON.parse(Buffer.from(begun.body).toString("utf8"));
  return isFields(kept) ? String(kept.id) : "";
}

/** The events of a response, as far as it has come, and those that follow. */
export function eventsOf(
  context: RequestContext,
  open: OpenEvents,
  { id, startingAfter }: { readonly id: string; readonly startingAfter: number },
  headers: Record<string, string> = {},
): Response {
  const { caller, request } = context;
  const follower = {
    ...{ organizationId: caller.key.organizationId, startingAfter, signal: request.signal },
    assertAllowed: () => context.admitAgain(),
  };
  return context.respond(open(id, follower, context.keepOpen()), {
    ...headers,
    "content-type": EVENT_STREAM,
    "cache-control": "no-cache",
    connection: "keep-alive",
    "x-accel-buffering": "no",
  });
}
