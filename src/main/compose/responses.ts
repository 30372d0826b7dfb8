import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { ResponseStore } from "../../inference/endpoints/responses/response-store.ts";
import type { ResponseServices } from "../../inference/responses/background-routes.ts";
import { BackgroundRuns } from "../../inference/responses/background-runs.ts";
import { BackgroundStore } from "../../inference/responses/background-store.ts";
import { Conversations } from "../../inference/responses/conversations.ts";
import { EventFollowing } from "../../inference/responses/follow-events.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { GatewayConfig } from "../../platform/config.ts";

interface ResponseParts {
  readonly config: GatewayConfig;
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  readonly changes: ChangeFeed;
  onError(error: unknown): void;
}

/** Composes stored responses, and the runs of background responses. */
export function composeResponses(parts: ResponseParts): ResponseServices {
  const { config, changes, clock, onError } = parts;
  const store = new ResponseStore(parts);
  const background = new BackgroundStore({
    ...parts,
    responses: store,
    maxRunning: config.maxBackgroundResponses,
  });
  const runs = new BackgroundRuns({ ...parts, store: background });
  changes.on("response-cancel", (responseId) => runs.cancel(responseId));
  changes.onGap(() => runs.recheck());
  const { keepaliveMs } = config;
  const following = new EventFollowing({ store: background, runs, clock, keepaliveMs, onError });
  const conversations = new Conversations({ ...parts, store });
  return { store, conversations, background, runs, following };
}
