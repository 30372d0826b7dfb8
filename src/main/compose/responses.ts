import { ResponseStore } from "../../inference/endpoints/responses/response-store.ts";
import type { ResponseServices } from "../../inference/responses/background-routes.ts";
import { BackgroundRuns } from "../../inference/responses/background-runs.ts";
import { BackgroundStore } from "../../inference/responses/background-store.ts";
import { Conversations } from "../../inference/responses/conversations.ts";
import { EventFollowing } from "../../inference/responses/follow-events.ts";
import type { Base } from "./base.ts";

/** Composes stored responses, and the runs of background responses. */
export function composeResponses(base: Base): ResponseServices {
  const { config, changes, clock, onError } = base;
  const store = new ResponseStore(base);
  const background = new BackgroundStore({
    ...base,
    responses: store,
    maxRunning: config.maxBackgroundResponses,
  });
  const runs = new BackgroundRuns({ ...base, store: background });
  changes.on("response-cancel", (responseId) => runs.cancel(responseId));
  changes.onGap(() => runs.recheck());
  const { keepaliveMs } = config;
  const following = new EventFollowing({ store: background, runs, clock, keepaliveMs, onError });
  const conversations = new Conversations({ ...base, store });
  return { store, conversations, background, runs, following };
}
