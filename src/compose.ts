import { Idempotency } from "./calls/idempotency/idempotency.ts";
import { TunedModels } from "./calls/routing/tuned-models.ts";
import { InFlight } from "./cluster/in-flight.ts";
import { composeApp, startPassivation } from "./compose/app.ts";
import { type ComposeOptions, composeBase } from "./compose/base.ts";
import {
  applyChange,
  type ChangeListeners,
  composeNode,
  enterCluster,
  forgetAll,
  openCoordination,
} from "./compose/cluster-node.ts";
import { composeEnding, type Ending } from "./compose/ending.ts";
import { composeEndpoints, createWorkThread } from "./compose/endpoints.ts";
import { composeFiles } from "./compose/files.ts";
import { composeFineTuning } from "./compose/fine-tuning.ts";
import { registerGauges, watchBalances } from "./compose/gauges.ts";
import { composeModels, composeProviders } from "./compose/models.ts";
import { composeMoney, composeOwedRefunds } from "./compose/money.ts";
import { createWebhooks } from "./compose/webhooks.ts";
import { BodyBudget } from "./http/body-budget.ts";
import { LastUse } from "./keys/api-keys.ts";
import { trainersOf } from "./providers/registry.ts";
import { EventLoopLag } from "./telemetry/process-metrics.ts";

export interface Gateway extends Ending {
  readonly app: ReturnType<typeof composeApp>;
}

/** The one place where implementations are chosen and constructed; parts in compose/. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const base = composeBase(options);
  const { config, telemetry, keyring, clock, connections, background, onError } = base;
  const owed = composeOwedRefunds({ ...base, sql: background });
  // Filled below, before the node starts and reports changes.
  let listeners: ChangeListeners | undefined;
  const node = composeNode(base, {
    onChange: (kind, objectId) => listeners && applyChange(listeners, kind, objectId),
    onGap: () => listeners && forgetAll(listeners),
    onFenced: owed.onFenced,
  });
  const { membership } = node;
  const coordination = await openCoordination(base, membership);
  const webhooks = createWebhooks({ ...base, wakes: coordination.wakes, node });
  await enterCluster(base, node, coordination);

  const workThread = createWorkThread(base.onError);
  const { httpClient, providers, ownKeys, providerKeys } = composeProviders(base, workThread);
  const { index: models, lists } = await composeModels({ ...base, sql: background, httpClient });
  const accounts = composeMoney(base, owed, coordination.rates);
  const { world, money, ledger, suspensions, admission, orders } = accounts;
  const files = composeFiles(base);
  const tunedModels = new TunedModels({ read: base.read, models });
  const tuning = composeFineTuning({
    ...base,
    ...node,
    ...{ money, models, tunedModels, admission, workThread },
    providers: trainersOf(providers),
    files: files.jobFiles,
    keepaliveMs: config.keepaliveMs,
  });
  listeners = { world, suspensions, orders, webhooks, tuning, ownKeys, keyring };
  await node.start();
  webhooks.start();

  const inFlight = new InFlight();
  const isCutShort = () => inFlight.isCutShort;
  const maxWaitMs = config.upstreamTimeouts.totalMs;
  const idempotency = new Idempotency({ ...base, maxWaitMs, isCutShort });
  const { endpoints, ticker, deadlines } = composeEndpoints({
    ...base,
    ...{ world, admission, money, tunedModels, ownKeys, providers, idempotency, isCutShort },
    workThread,
    events: webhooks.completionEvents,
    membership,
    notes: owed.notes,
  });
  owed.begin({ ledger, money, ticker });
  registerGauges(telemetry, { money, ledger, world, ticker, inFlight, tuning });
  const balances = watchBalances({ ...base, sql: background, membership });
  const shared = { tuning, files, webhooks, node, coordination, inFlight };
  const sweep = startPassivation({ accounts, tuning, webhooks });
  const lastUse = new LastUse(background, onError);
  const front = { bodies: new BodyBudget(clock), lag: new EventLoopLag(), lastUse };
  const served = { accounts, models, providers, providerKeys, tunedModels, endpoints };
  const app = composeApp(base, { ...shared, ...front, ...served });
  const ending = composeEnding({
    ...shared,
    ...front,
    ...{ workThread, ticker, deadlines, sweep, balances, orders, idempotency, ledger, connections },
    modelLists: lists,
    notes: owed.notes,
  });
  if (config.modelListsSeconds > 0) lists.start();
  return { app, ...ending };
}
