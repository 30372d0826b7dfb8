import { apiKeyActor } from "../actors/api-key/actor.ts";
import { endpointActor } from "../actors/endpoint/actor.ts";
import { organizationActor } from "../actors/organization/actor.ts";
import { type ActorEnvironment, ActorRegistry } from "../actors/runtime/registry.ts";
import type { Database, DatabaseTarget } from "../db/client.ts";
import type { InstanceIdentity } from "../db/ledger/commit-batch.ts";
import { GroupCommit } from "../db/ledger/group-commit.ts";
import type { Query } from "../db/query.ts";
import { createApp } from "./app.ts";
import { openConnections } from "./compose/connections.ts";
import { composeFiles } from "./compose/files.ts";
import { createMembership } from "./compose/membership.ts";
import { createWebhooks } from "./compose/webhooks.ts";
import type { GatewayConfig } from "./config.ts";
import { createCoordination } from "./coordination/create-coordination.ts";
import type { Coordination } from "./coordination/interface.ts";
import { BodyBudget } from "./http/body-budget.ts";
import { errorEnvelope } from "./http/error-response.ts";
import { LoadGate } from "./http/load-gate.ts";
import { type Clock, systemClock } from "./lib/clock.ts";
import { DeadlineQueue } from "./lib/deadline-queue.ts";
import { newId } from "./lib/ids.ts";
import { buildCatalogue } from "./providers/catalogue/build-catalogue.ts";
import { createModelIndex, type ModelIndex } from "./providers/catalogue/model-index.ts";
import { createProviders } from "./providers/registry.ts";
import { mountedRoutes } from "./routes.ts";
import { Authentication } from "./services/authentication.ts";
import { ChatCompletions } from "./services/chat/chat-completions.ts";
import { StreamTicker } from "./services/chat/stream-ticker.ts";
import { Idempotency } from "./services/idempotency/idempotency.ts";
import { LastUse } from "./services/keys/last-use.ts";
import { publishSearch } from "./services/models/publish-search.ts";
import { AloneMoney } from "./services/money/alone.ts";
import { CreditOrders } from "./services/money/credit-orders.ts";
import { InFlight } from "./services/presence/in-flight.ts";
import { cleanWebhooks } from "./services/webhooks/delivery-cleaning.ts";
import { EventLoopLag } from "./telemetry/event-loop-lag.ts";
import type { Telemetry } from "./telemetry/interface.ts";

export interface ComposeOptions {
  readonly config: GatewayConfig;
  /** A migrated database that holds at least one organization. */
  readonly database: DatabaseTarget;
  readonly masterKey: Uint8Array;
  readonly telemetry: Telemetry;
  /** Called when this process was declared dead and must stop at once. */
  onFenced(): void;
  readonly clock?: Clock;
}

export interface Gateway {
  readonly app: ReturnType<typeof createApp>;
  /** Says that it is not ready any more, and keeps no connection; what comes is still served. */
  announceStop(): void;
  /** Lets what runs end within `graceMs`; what is left then is cut short, told so, and charged. */
  drain(graceMs: number): Promise<void>;
  /** Rejects where the database was out of reach: what it did not hear of, the next start settles. */
  close(): Promise<void>;
}

const PASSIVATION_SWEEP_MS = 10_000;
/** How long what was cut short takes to be charged and told. */
const CUT_SHORT_MS = 2_000;

/** The one place where implementations are chosen and constructed. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const { config, telemetry } = options;
  const clock = options.clock ?? systemClock;
  const instance: InstanceIdentity = { id: newId("ins"), epoch: BigInt(Date.now()) };
  const connections = openConnections(options.database, config.databasePoolSize, clock);
  const { sql, background } = connections;
  const onError = (error: unknown): void =>
    telemetry.log.error({ err: error }, "background failure");

  const membership = createMembership({
    connections,
    instance,
    company: config.redisUrl === undefined ? "alone" : "several",
    clock,
    telemetry,
    onChange(kind, objectId) {
      if (kind === "api-key") world.keys.forget(objectId);
      else if (kind === "organization") world.organizations.forget(objectId);
      else if (kind === "credit-command") void orders.carryOut();
      else if (kind === "webhook") webhooks.deliveries.changed(objectId);
      else if (kind === "outbox") webhooks.deliveries.nudge();
      else if (kind === "subscriptions") webhooks.subscriptions.forget(objectId);
    },
    onGap() {
      world.keys.forgetAll();
      world.organizations.forgetAll();
      void orders.carryOut();
      webhooks.subscriptions.forgetAll();
      webhooks.deliveries.changedAll();
    },
    onFenced: options.onFenced,
    onError,
    cleaningTasks: [
      () =>
        cleanWebhooks(background, (webhookId, events) =>
          telemetry.log.warn(
            { webhook_id: webhookId, events },
            "dropped events of a webhook that was disabled for three days",
          ),
        ),
    ],
  });
  const { presence } = membership;
  const coordination = await openCoordination(
    options,
    instance.id,
    () => presence.peers().count,
    onError,
  );
  const webhooks = createWebhooks({
    ...options,
    wakes: coordination.wakes,
    connections,
    instance,
    membership,
    clock,
    onError,
  });
  await membership.enter();
  const models = await loadModels(config);
  await publishSearch(background, models);
  const world = createActorWorld({
    sql,
    clock,
    commit: (effects, lineage) => ledger.submit(effects, lineage),
  });
  const money = new AloneMoney({
    ...world,
    clock,
    onClamped: (hold, clampedNano) => {
      telemetry.countClampedCharge();
      telemetry.log.warn(
        { request_id: hold.requestId, clamped_nano_usd: clampedNano.toString() },
        "charge clamped to its hold",
      );
    },
    onBackgroundError: onError,
  });
  const ledger = new GroupCommit({
    sql: connections.ledger,
    instance,
    onCommitted: (settlements, totals) => money.committed(settlements, totals),
    onFenced: options.onFenced,
    onPostedAbandoned: (settlement) => money.refund(settlement),
    onBatch: (units, durationMs) => telemetry.observeCommit(units, durationMs),
  });
  money.connect(ledger);

  const read = <Result>(query: Query<Result>): Promise<Result> => query.run(sql);
  const orders = new CreditOrders({ organizations: world.organizations, read, onError });
  await membership.start();
  await coordination.start();

  const ticker = new StreamTicker(clock);
  const deadlines = new DeadlineQueue(clock, config.upstreamTimeouts.totalMs);
  const inFlight = new InFlight();
  const lag = new EventLoopLag();
  const lastUse = new LastUse(background, onError);
  const { upstreamTimeouts } = config;
  const idempotency = new Idempotency({
    sql,
    instance,
    masterKey: options.masterKey,
    clock,
    maxWaitMs: upstreamTimeouts.totalMs,
  });
  const chat = new ChatCompletions({
    money,
    models,
    providers: createProviders(
      config.providers.map((provider) => ({
        ...provider,
        apiKey: provider.apiKey,
        connectTimeoutMs: upstreamTimeouts.connectMs,
      })),
      { clock, probe: config.usesProxy ? null : undefined },
    ),
    rates: coordination.rates,
    organizations: world.organizations,
    idempotency,
    events: webhooks.completionEvents,
    calls: { endpoints: world.endpoints, clock, random: Math.random },
    ticker,
    keepaliveMs: config.keepaliveMs,
    firstTokenTimeoutMs: upstreamTimeouts.firstTokenMs,
    idleTimeoutMs: upstreamTimeouts.idleMs,
    totalTimeoutMs: upstreamTimeouts.totalMs,
    deadlines,
    isCutShort: () => inFlight.isCutShort,
    errorEnvelope,
    whenCurrent: () => presence.whenCurrent(),
    onError: (error, requestId) =>
      telemetry.log.warn({ err: error, request_id: requestId }, "stream failed"),
  });

  const { masterKey } = options;
  const files = composeFiles({ config, sql, instance, masterKey, clock, onError });

  registerGauges(telemetry, { money, ledger, world, ticker, inFlight });
  const routes = mountedRoutes({
    config,
    telemetry,
    models,
    sql,
    world,
    chat,
    webhooks: webhooks.webhooks,
    files,
    clock,
    presence,
    inFlight,
    coordination,
  });
  const app = createApp(routes, {
    authentication: new Authentication({ keys: world.keys, clock, read }),
    whenAdmitting: () => presence.whenFresh(),
    inFlight,
    loadGate: new LoadGate({ inFlight: () => inFlight.count, lagMs: () => lag.lagMs }),
    bodies: new BodyBudget(clock),
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
    webhooks.passivateIdle();
  }, PASSIVATION_SWEEP_MS);

  return {
    app,
    announceStop: () => inFlight.announceStop(),
    async drain(graceMs) {
      if (await inFlight.drained(graceMs)) return;
      inFlight.cutShort();
      ticker.cutShort();
      deadlines.expireAll();
      await inFlight.drained(CUT_SHORT_MS);
    },
    async close() {
      clearInterval(sweep);
      lag.stop();
      await idempotency.close();
      await files.close();
      await lastUse.write();
      await ledger.close();
      await webhooks.stop();
      try {
        await membership.leave();
      } finally {
        await coordination.close();
        await connections.close();
      }
    },
  };
}

/** How this instance speaks with the others. What becomes of Redis is told in a line each way and in metrics. */
async function openCoordination(
  { config, telemetry, clock = systemClock }: ComposeOptions,
  instanceId: string,
  liveInstances: () => number,
  onError: (error: unknown) => void,
): Promise<Coordination> {
  const coordination = await createCoordination({
    redisUrl: config.redisUrl,
    instanceId,
    clock,
    liveInstances,
    onRedisLost: (reason) =>
      telemetry.log.error(
        { err: reason },
        "Redis is lost: this instance admits its own share of each rate limit until it is back",
      ),
    onRedisBack: (lostForMs, admittedApart) =>
      telemetry.log.info(
        { lost_for_ms: Math.round(lostForMs), admitted_apart: admittedApart },
        "Redis is back: rate limits are counted there again",
      ),
    onError,
  });
  const { redis } = coordination;
  if (redis !== undefined) {
    telemetry.gauge("gateway_redis_up", "1 where rate limits are counted in Redis.", () =>
      redis.isUp ? 1 : 0,
    );
    telemetry.counter(
      "gateway_rate_admissions_apart_total",
      "Admissions of rate limits that were decided while Redis was lost.",
      () => redis.admittedApart,
    );
  }
  return coordination;
}

async function loadModels(config: GatewayConfig): Promise<ModelIndex> {
  const { providers, models, sandbox } = config;
  return createModelIndex(await buildCatalogue({ providers, models, sandbox, now: new Date() }));
}

/** The actors of this process and the world they see. */
function createActorWorld(dependencies: {
  readonly sql: Database;
  readonly clock: Clock;
  readonly commit: ActorEnvironment["commit"];
}) {
  const { sql, clock } = dependencies;
  const context = {
    get nowMs(): number {
      return clock.nowMs();
    },
    random: Math.random,
  };
  const environment: ActorEnvironment = {
    clock,
    turnContext: () => context,
    commit: dependencies.commit,
    read: (query) => query.run(sql),
  };
  return {
    keys: new ActorRegistry(apiKeyActor, environment),
    organizations: new ActorRegistry(organizationActor, environment),
    endpoints: new ActorRegistry(endpointActor, environment),
  };
}

export type ActorWorld = ReturnType<typeof createActorWorld>;

function registerGauges(
  telemetry: Telemetry,
  parts: {
    readonly money: AloneMoney;
    readonly ledger: GroupCommit;
    readonly world: ActorWorld;
    readonly ticker: StreamTicker;
    readonly inFlight: InFlight;
  },
): void {
  const { money, ledger, world, ticker, inFlight } = parts;
  telemetry.gauge(
    "gateway_holds_outstanding",
    "Holds neither settled nor released.",
    () => money.outstandingHolds,
  );
  telemetry.gauge(
    "gateway_commit_queue",
    "Units that wait for the next commit.",
    () => ledger.queuedUnits,
  );
  telemetry.gauge("gateway_streams_running", "Streams that are open.", () => ticker.size);
  telemetry.gauge(
    "gateway_requests_in_flight",
    "Requests that are being answered.",
    () => inFlight.count,
  );
  telemetry.gauge(
    "gateway_mailbox_depth",
    "Messages that wait in the mailboxes of actors.",
    () =>
      world.keys.waitingMessages +
      world.organizations.waitingMessages +
      world.endpoints.waitingMessages,
  );
  telemetry.gauge(
    "gateway_actors",
    "Actors in memory.",
    () => world.keys.size + world.organizations.size + world.endpoints.size,
  );
}
