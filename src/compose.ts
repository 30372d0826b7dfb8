import type { DatabaseTarget } from "../db/client.ts";
import type { InstanceIdentity } from "../db/ledger/commit-batch.ts";
import { LEDGER_SETTINGS, SHARED_LEDGER_SETTINGS } from "../db/ledger/connection-settings.ts";
import type { Query } from "../db/query.ts";
import { untilReachable } from "../db/unavailable.ts";
import { createApp } from "./app.ts";
import { CallAdmission } from "./calls/admission.ts";
import { Idempotency } from "./calls/idempotency/idempotency.ts";
import { TunedModels } from "./calls/routing/tuned-models.ts";
import { HeartbeatThread } from "./cluster/heartbeat-thread.ts";
import { InFlight } from "./cluster/in-flight.ts";
import { createActorWorld } from "./compose/actor-world.ts";
import { composeAdministration } from "./compose/administration.ts";
import { tellOfChange, tellOfGap } from "./compose/change-feed.ts";
import { createClusterNode } from "./compose/cluster-node.ts";
import { openConnections } from "./compose/connections.ts";
import { openCoordination, restoreRateWindows } from "./compose/coordination.ts";
import { composeEnding, type Ending } from "./compose/ending.ts";
import { composeEndpoints } from "./compose/endpoints.ts";
import { composeFiles } from "./compose/files.ts";
import { composeFineTuning } from "./compose/fine-tuning.ts";
import { registerGauges, watchBalances } from "./compose/gauges.ts";
import { composeModels } from "./compose/models.ts";
import { composeOwedRefunds, createMoney } from "./compose/money.ts";
import { createWebhooks } from "./compose/webhooks.ts";
import type { GatewayConfig } from "./config.ts";
import { Authentication } from "./http/authentication.ts";
import { BodyBudget } from "./http/body-budget.ts";
import { LoadGate } from "./http/load-gate.ts";
import { Suspensions } from "./http/suspensions.ts";
import { LastUse } from "./keys/last-use.ts";
import { type Clock, systemClock } from "./lib/clock.ts";
import { newId } from "./lib/ids.ts";
import type { Keyring } from "./lib/keyring.ts";
import { tellKeys } from "./master-key/establish.ts";
import { CreditOrders } from "./money/credit-orders.ts";
import { createProviders, trainersOf, type Wire } from "./providers/registry.ts";
import { SandboxTunedModels } from "./providers/sandbox/tuning/tuned-models.ts";
import { createHttpClient } from "./providers/transport/http-client.ts";
import { mountedRoutes } from "./routes.ts";
import { EventLoopLag } from "./telemetry/event-loop-lag.ts";
import type { Telemetry } from "./telemetry/interface.ts";
import { cleanWebhooks } from "./webhooks/delivery-cleaning.ts";

export interface ComposeOptions {
  readonly config: GatewayConfig;
  /** A migrated database that holds at least one organization. */
  readonly database: DatabaseTarget;
  readonly keyring: Keyring;
  readonly telemetry: Telemetry;
  /** Called when this process was declared dead and must stop at once. */
  onFenced(): void;
  readonly clock?: Clock;
  /** By provider type, wire formats that stand in the place of the built-in one. */
  readonly wires?: Readonly<Record<string, Wire>> | undefined;
}

export interface Gateway extends Ending {
  readonly app: ReturnType<typeof createApp>;
}

const PASSIVATION_SWEEP_MS = 10_000;

/** The one place where implementations are chosen and constructed. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const { config, telemetry, keyring } = options;
  const clock = options.clock ?? systemClock;
  const instance: InstanceIdentity = { id: newId("ins"), epoch: BigInt(Date.now()) };
  const isClustered = config.redisUrl !== undefined;
  const connections = openConnections(options.database, {
    instance,
    poolSize: config.databasePoolSize,
    clock,
    ledgerSettings: isClustered ? SHARED_LEDGER_SETTINGS : LEDGER_SETTINGS,
    onRenewed: (connections) =>
      telemetry.log.warn({ connections }, "connections to the database were silent and made anew"),
  });
  const { sql, background } = connections;
  const onError = (error: unknown): void =>
    telemetry.log.error({ err: error }, "background failure");

  const owed = composeOwedRefunds({ ...options, sql: background, instance, clock, onError });
  const node = createClusterNode({
    connections,
    instance,
    deploymentMode: isClustered ? "clustered" : "single-node",
    // Nobody judges a lone gateway by its heartbeats: its lock says that it is alone.
    heartbeats: isClustered
      ? new HeartbeatThread({ target: options.database, instance, onError })
      : undefined,
    clock,
    telemetry,
    onChange: (kind, objectId) =>
      tellOfChange({ world, suspensions, orders, webhooks, tuning, keyring }, kind, objectId),
    onGap: () => tellOfGap({ world, suspensions, orders, webhooks, tuning, keyring }),
    onFenced: owed.onFenced,
    onError,
    cleaningTasks: [
      () =>
        cleanWebhooks(connections.webhooks, (webhookId, events) =>
          telemetry.log.warn(
            { webhook_id: webhookId, events },
            "dropped events of a webhook that was disabled for three days",
          ),
        ),
    ],
  });
  const { membership } = node;
  const coordination = await openCoordination(
    { config, telemetry, clock },
    instance.id,
    () => membership.liveInstances(),
    onError,
  );
  const webhooks = createWebhooks({
    ...options,
    wakes: coordination.wakes,
    connections,
    instance,
    node,
    clock,
    onError,
  });
  // Before the others know of this instance: they leave a share of each limit to one that has not joined.
  await coordination.start();
  await node.enter();
  await restoreRateWindows(coordination, background, clock);
  await tellKeys(background, instance, keyring);
  const httpClient = createHttpClient({ clock, proxies: config.proxies });
  const { index: models, lists: modelLists } = await composeModels({
    config,
    sql: background,
    telemetry,
    clock,
    httpClient,
    onError,
  });
  const read = <Result>(query: Query<Result>): Promise<Result> =>
    untilReachable(clock, () => query.run(sql));
  const world = createActorWorld({
    clock,
    read,
    commit: (effects, lineage) => ledger.submit(effects, lineage),
  });
  const suspensions = new Suspensions({ read });
  const { money, ledger } = createMoney({
    isClustered,
    world,
    connections,
    instance,
    clock,
    telemetry,
    ...owed,
    onError,
  });

  const admission = new CallAdmission({
    rates: coordination.rates,
    organizations: world.organizations,
    money,
    clock,
    read,
  });
  const orders = new CreditOrders({
    organizations: world.organizations,
    holdsAreShared: isClustered,
    clock,
    read,
    onError,
  });
  const { upstreamTimeouts } = config;
  const files = composeFiles({ config, sql, background, instance, keyring, clock, onError });
  const tunedModels = new TunedModels({ read, models });
  const sandboxModels = new SandboxTunedModels(sql);
  const providerSettings = config.providers.map((provider) => ({
    ...provider,
    apiKey: provider.apiKey,
    connectTimeoutMs: upstreamTimeouts.connectMs,
  }));
  const providers = createProviders(providerSettings, {
    sql: background,
    clock,
    httpClient,
    tunedModels: sandboxModels,
    wires: options.wires,
  });
  const tuning = composeFineTuning({
    sql,
    background,
    instance,
    clock,
    ownership: node.ownership,
    unowned: node.unowned,
    money,
    models,
    tunedModels,
    providers: trainersOf(providers),
    files: files.jobFiles,
    admission,
    keepaliveMs: config.keepaliveMs,
    warn: (message) => telemetry.log.warn(message),
    onError,
  });
  telemetry.gauge(
    "gateway_fine_tuning_jobs",
    "Fine-tuning jobs that this instance works on.",
    () => tuning.runningJobs,
  );
  await node.start();
  webhooks.start();

  const inFlight = new InFlight();
  const bodies = new BodyBudget(clock);
  const lag = new EventLoopLag();
  const lastUse = new LastUse(background, onError);
  const idempotency = new Idempotency({
    sql,
    instance,
    keyring,
    clock,
    maxWaitMs: upstreamTimeouts.totalMs,
    isCutShort: () => inFlight.isCutShort,
  });
  const { endpoints, workThread, ticker, deadlines } = composeEndpoints({
    onError,
    clock,
    config,
    world,
    admission,
    money,
    tunedModels,
    providers,
    idempotency,
    events: webhooks.completionEvents,
    isCutShort: () => inFlight.isCutShort,
    whenCurrent: () => membership.whenCurrent(),
    notes: owed.notes,
    onStreamError: (error, requestId) =>
      telemetry.log.warn({ err: error, request_id: requestId }, "stream failed"),
  });

  owed.begin({ ledger, money, ticker });
  registerGauges(telemetry, { money, ledger, world, ticker, inFlight });
  const { admin, administrativeRate } = composeAdministration({
    config,
    sql,
    clock,
    instanceId: instance.id,
    world,
    suspensions,
    orders,
    models,
    rates: coordination.rates,
    read,
  });
  const balances = watchBalances({ telemetry, sql: background, clock, membership, onError });
  const routes = mountedRoutes({
    admin,
    config,
    telemetry,
    tunedModels,
    fineTuning: tuning.fineTuning,
    sql,
    world,
    endpoints,
    webhooks: webhooks.webhooks,
    files,
    clock,
    membership,
    inFlight,
    coordination,
  });
  const app = createApp(routes, {
    authentication: new Authentication({ keys: world.keys, suspensions, clock, read }),
    whenAdmitting: () => membership.whenFresh(),
    inFlight,
    loadGate: new LoadGate({ inFlight: () => inFlight.count, lagMs: () => lag.lagMs }),
    bodies,
    administrativeRate,
    admission,
    noteUse: (keyId) => lastUse.note(keyId, clock.nowMs()),
    record(request) {
      telemetry.record(request);
      webhooks.completionEvents.noteFinished(request);
    },
    onInternalError: (error, requestId) =>
      telemetry.log.error(
        { err: error.cause ?? error, code: error.code, request_id: requestId },
        "request failed",
      ),
    corsOrigins: config.corsOrigins,
  });
  const sweep = setInterval(() => {
    world.keys.passivateIdle();
    world.organizations.passivateIdle();
    world.endpoints.passivateIdle();
    tuning.passivateIdle();
    webhooks.passivateIdle();
  }, PASSIVATION_SWEEP_MS);

  const ending = composeEnding({
    inFlight,
    modelLists,
    bodies,
    workThread,
    ticker,
    deadlines,
    sweep,
    lag,
    balances,
    orders,
    notes: owed.notes,
    tuning,
    idempotency,
    files,
    lastUse,
    ledger,
    webhooks,
    node,
    coordination,
    connections,
  });
  if (config.modelListsSeconds > 0) modelLists.start();
  return { app, ...ending };
}
