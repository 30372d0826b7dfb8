import type { RequestContext } from "../../http/route.ts";
import { isFields } from "../../lib/json.ts";
import { type BackgroundStart, responseOf } from "../endpoints/paid-route.ts";
import type { AcceptedResponse } from "../endpoints/responses/accepted.ts";
import type { ResponsesCall } from "../endpoints/responses/endpoint.ts";
import { EVENT_STREAM } from "../endpoints/responses/response-renderer.ts";
import type { ResponseStore } from "../endpoints/responses/response-store.ts";
import type { ResponseStoreWriter } from "../endpoints/responses/response-store-writer.ts";
import type { BackgroundRuns, BegunOutcome } from "./background-runs.ts";
import type { BackgroundStore } from "./background-store.ts";
import type { Conversations } from "./conversations.ts";
import type { EventFollowing } from "./follow-events.ts";

/** The services that store and run responses. */
export interface ResponseServices {
  readonly store: ResponseStore;
  readonly conversations: Conversations;
  readonly background: BackgroundStore;
  readonly runs: BackgroundRuns;
  readonly following: EventFollowing;
}

type OpenEvents = ReturnType<EventFollowing["reserve"]>["open"];

/**
 * Returns a function that starts background responses. The function returns undefined for other requests.
 */
export function answerBackground(
  { runs, following }: ResponseServices,
  call: ResponsesCall,
  storeWriter: ResponseStoreWriter,
): BackgroundStart<AcceptedResponse> {
  return (context, arrived) => {
    const { background, facts } = arrived.request;
    if (background === undefined) return undefined;
    const start = () => runs.start(call, arrived, storeWriter);
    return startAndAnswer(context, following, facts.isStreamed, start);
  };
}

/** Starts a response and returns it in its queued state, or returns the stream of its events. */
async function startAndAnswer(
  context: RequestContext,
  following: EventFollowing,
  isStreamed: boolean,
  start: () => Promise<BegunOutcome>,
): Promise<Response> {
  const reservation = isStreamed ? following.reserve(context.caller.key.organizationId) : undefined;
  let begun: BegunOutcome;
  try {
    begun = await start();
  } catch (error) {
    reservation?.free();
    throw error;
  }
  // The request ends when its call ends.
  if (begun.kind === "begun") context.lifetime.isDeferred = true;
  if (reservation !== undefined) {
    const headers = begun.kind === "begun" ? begun.headers : REPLAYED;
    return eventsOf(context, reservation.open, { id: idOf(begun), startingAfter: -1 }, headers);
  }
  if (begun.kind === "replay") return responseOf(context, begun);
  const headers = { ...begun.headers, "content-type": "application/json" };
  return context.respond(begun.json, headers);
}

const REPLAYED = { "x-gateway-idempotent-replay": "true" };

function idOf(begun: BegunOutcome): string {
  if (begun.kind === "begun") return begun.id;
  const stored: unknown = JSON.parse(Buffer.from(begun.body).toString("utf8"));
  return isFields(stored) ? String(stored.id) : "";
}

/** Returns the stream of a response's events: the events so far and all later events. */
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
