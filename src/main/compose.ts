import { LastUse } from "../accounts/keys/api-keys.ts";
import { PageBundle } from "../dashboard/pages.ts";
import { BodyBudget } from "../http/body-budget.ts";
import { Idempotency } from "../inference/call/idempotency/idempotency.ts";
import { TunedModels } from "../inference/call/routing/tuned-models.ts";
import { InFlight } from "../platform/cluster/in-flight.ts";
import { EventLoopLag } from "../platform/telemetry/process-metrics.ts";
import { trainersOf } from "../providers/registry.ts";
import {
  composeApp,
  composeCollected,
  composeFailedRequests,
  startPassivation,
} from "./compose/app.ts";
import { type ComposeOptions, composeBase } from "./compose/base.ts";
import { composeBatches } from "./compose/batches.ts";
import { composeNode, enterCluster, openCoordination } from "./compose/cluster-node.ts";
import { composeEndpoints, createWorkThread } from "./compose/endpoints.ts";
import { composeFiles } from "./compose/files.ts";
import { composeFineTuning } from "./compose/fine-tuning.ts";
import { registerGauges, startUsage, watchBalances } from "./compose/gauges.ts";
import { composeModels, composeProviders } from "./compose/models.ts";
import { composeMoney } from "./compose/money.ts";
import { composePayments } from "./compose/payments.ts";
import { composeResponses } from "./compose/responses.ts";
import { composeShutdown, type Shutdown } from "./compose/shutdown.ts";
import { composeTools } from "./compose/tools.ts";
import { composeVectorStores } from "./compose/vector-stores.ts";
import { createWebhooks } from "./compose/webhooks.ts";

export interface Gateway extends Shutdown {
  readonly app: ReturnType<typeof composeApp>;
  /** Builds the dashboard's files in advance, so that the first request for them does not wait. */
  buildPages(): Promise<void>;
}

/** Chooses and constructs all implementations. Its parts are in compose/. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const base = composeBase(options);
  const { config, telemetry, clock, connections, background, onError } = base;
  const node = composeNode(base);
  const { membership } = node;
  const coordination = await openCoordination(base, membership);
  const webhooks = createWebhooks({ ...base, ...coordination, node });
  await enterCluster(base, node, coordination);
  // The ledger's connection must be open before requests are admitted, because it charges them.
  await connections.whenOpen();

  const workThread = createWorkThread(base.onError);
  const providerParts = composeProviders(base, workThread, membership, (providerId) => {
    if (config.modelListsSeconds > 0) lists.readAgain(providerId);
  });
  const { index: models, lists } = await composeModels({
    ...base,
    ...providerParts,
    sql: background,
  });
  const accounts = composeMoney(base, coordination.rates);
  const { world, money, ledger, notes, suspensions, admission, orders } = accounts;
  const billing = composePayments(base, accounts);
  const files = composeFiles(base);
  const tunedModels = new TunedModels({ read: base.read, models });
  const tuning = composeFineTuning({
    ...base,
    ...node,
    ...{ money, models, tunedModels, admission, workThread },
    providers: trainersOf(providerParts.providers),
    files: files.jobFiles,
    keepaliveMs: config.keepaliveMs,
  });
  const vectorStores = composeVectorStores({ ...base, ...node, files: files.library });
  const batches = composeBatches({ ...base, ...node, ...providerParts, files, money });
  const inFlight = new InFlight();
  const isAborting = () => inFlight.isAborting;
  const maxWaitMs = config.upstreamTimeouts.totalMs;
  const idempotency = new Idempotency({ ...base, maxWaitMs, isAborting });
  const responses = composeResponses(base);
  const jobs = { tuning, vectorStores, batches };
  // Every part above subscribes to changes; the node reports them from here on.
  await node.start();
  webhooks.start();

  const hosted = composeTools({ ...base, ...vectorStores, ...world, suspensions, files });
  const { endpoints, ticker, deadlines, calls } = composeEndpoints({
    ...{ ...base, ...providerParts, coordination },
    ...{ world, admission, money, tunedModels, idempotency, isAborting, workThread, membership },
    ...{ events: webhooks.completionEvents, documents: vectorStores.documents },
    ...{ notes, media: files.media, responses, hosted },
  });
  vectorStores.connect({ calls, inFlight, ...world, suspensions, clock });
  const lag = new EventLoopLag();
  const { failedRequests, note } = composeFailedRequests(base, endpoints, webhooks);
  batches.connect({ routes: endpoints, note, inFlight, lag, ...world, suspensions, clock });
  base.beforeFenced(() => ticker.recordUndelivered());
  notes.watch();
  registerGauges(telemetry, { money, ledger, world, ticker, inFlight, tuning });
  const balances = watchBalances({ ...base, sql: background, membership });
  const usage = startUsage({ ...base, sql: background, membership });
  const owned = { ...jobs, responses };
  const shared = {
    ...providerParts,
    ...owned,
    files,
    webhooks,
    node,
    coordination,
    inFlight,
    billing,
  };
  const sweep = startPassivation({ accounts, tuning, webhooks });
  const lastUse = new LastUse(background, onError);
  const bodies = new BodyBudget(clock);
  const bundle = new PageBundle();
  const collected = await composeCollected(base);
  const front = { bodies, lag, lastUse, failedRequests, note, bundle, ...collected };
  const app = composeApp(base, { ...shared, ...front, accounts, models, tunedModels, endpoints });
  const ending = composeShutdown({
    ...shared,
    ...front,
    ...{ workThread, ticker, deadlines, sweep, balances, orders, idempotency, ledger, connections },
    ...{ modelLists: lists, notes, hosted, usage },
  });
  if (config.modelListsSeconds > 0) lists.start();
  providerParts.healthChecks.start();
  billing.start();
  return { app, buildPages: () => bundle.prepare(), ...ending };
}
