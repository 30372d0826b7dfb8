import { apiKeyActor } from "../actors/api-key/actor.ts";
import { endpointActor } from "../actors/endpoint/actor.ts";
import { organizationActor } from "../actors/organization/actor.ts";
import { type ActorEnvironment, ActorRegistry } from "../actors/runtime/registry.ts";
import { connectDatabase, type Database, type DatabaseTarget } from "../db/client.ts";
import type { InstanceIdentity } from "../db/ledger/commit-batch.ts";
import { LEDGER_SETTINGS, SHARED_LEDGER_SETTINGS } from "../db/ledger/connection-settings.ts";
import type { GroupCommit } from "../db/ledger/group-commit.ts";
import type { Query } from "../db/query.ts";
import { createApp } from "./app.ts";
import { composeFiles } from "./compose/files.ts";
import { createMoney } from "./compose/money.ts";
import type { GatewayConfig } from "./config.ts";
import { createCoordination } from "./coordination/create-coordination.ts";
import type { Coordination } from "./coordination/interface.ts";
import { errorEnvelope } from "./http/error-response.ts";
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
import { CreditOrders } from "./services/money/credit-orders.ts";
import type { MoneyPort } from "./services/money/interface.ts";
import { InFlight } from "./services/presence/in-flight.ts";
import { Presence } from "./services/presence/presence.ts";
import { takeOver } from "./services/presence/recovery.ts";
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
  /** Stops admitting, lets what runs end within `graceMs`, and writes what is left. */
  drain(graceMs: number): Promise<void>;
  /** Rejects where the database was out of reach: what it did not hear of, the next start settles. */
  close(): Promise<void>;
}

const PASSIVATION_SWEEP_MS = 10_000;

/** The one place where implementations are chosen and constructed. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const { config, telemetry } = options;
  const clock = options.clock ?? systemClock;
  const instance: InstanceIdentity = { id: newId("ins"), epoch: BigInt(Date.now()) };
  const areSeveral = config.redisUrl !== undefined;
  const connections = openConnections(options.database, {
    poolSize: config.databasePoolSize,
    ledger: areSeveral
      ? { use: `ledger-${instance.id}`, settings: SHARED_LEDGER_SETTINGS }
      : { use: "ledger", settings: LEDGER_SETTINGS },
  });
  const { sql } = connections;
  const onError = (error: unknown): void =>
    telemetry.log.error({ err: error }, "background failure");

  const estate = await takeOver(connections.lock, sql, instance);
  if (estate.settled + estate.released > 0) {
    telemetry.log.warn(
      { charged: estate.settled, released: estate.released },
      "settled what a predecessor left running",
    );
  }
  for (const error of estate.failures) onError(error);
  const models = await loadModels(config);
  await publishSearch(sql, models);
  const world = createActorWorld({
    sql,
    clock,
    commit: (effects, lineage) => ledger.submit(effects, lineage),
  });
  const { money, ledger } = createMoney({
    areSeveral,
    world,
    connections,
    instance,
    clock,
    telemetry,
    onFenced: options.onFenced,
    onError,
  });

  const read = <Result>(query: Query<Result>): Promise<Result> => query.run(sql);
  const orders = new CreditOrders({
    organizations: world.organizations,
    holdsAreShared: areSeveral,
    read,
    onError,
  });
  const presence = new Presence({
    sql: connections.lock,
    instance,
    onChange(kind, objectId) {
      if (kind === "api-key") world.keys.forget(objectId);
      else if (kind === "organization") world.organizations.forget(objectId);
      else if (kind === "credit-command") void orders.carryOut();
    },
    onGap() {
      world.keys.forgetAll();
      world.organizations.forgetAll();
      void orders.carryOut();
    },
    onFenced: options.onFenced,
    onError,
  });
  await presence.start();

  const coordination = await openCoordination(options, instance.id, onError);
  await coordination.start();

  const ticker = new StreamTicker(clock);
  const inFlight = new InFlight();
  const lastUse = new LastUse(sql, onError);
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
    calls: { endpoints: world.endpoints, clock, random: Math.random },
    ticker,
    keepaliveMs: config.keepaliveMs,
    firstTokenTimeoutMs: upstreamTimeouts.firstTokenMs,
    idleTimeoutMs: upstreamTimeouts.idleMs,
    totalTimeoutMs: upstreamTimeouts.totalMs,
    deadlines: new DeadlineQueue(clock, upstreamTimeouts.totalMs),
    errorEnvelope,
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
    noteUse: (keyId) => lastUse.note(keyId, clock.nowMs()),
    record: (request) => telemetry.record(request),
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
  }, PASSIVATION_SWEEP_MS);

  return {
    app,
    drain: (graceMs) => inFlight.drain(graceMs),
    async close() {
      clearInterval(sweep);
      await idempotency.close();
      await files.close();
      await lastUse.write();
      await ledger.close();
      try {
        await presence.stop();
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
  onError: (error: unknown) => void,
): Promise<Coordination> {
  const coordination = await createCoordination({
    redisUrl: config.redisUrl,
    instanceId,
    clock,
    // As long as another one refuses to start beside this one.
    liveInstances: () => 1,
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

/** Commits and the lock of the only gateway have connections of their own; everything else shares a pool. */
function openConnections(
  target: DatabaseTarget,
  options: {
    readonly poolSize: number;
    readonly ledger: { readonly use: string; readonly settings: Record<string, string> };
  },
) {
  const open = (size: number, use: string, settings?: Record<string, string>): Database =>
    connectDatabase(target, { poolSize: size, applicationName: `gateway-${use}`, settings });
  const sql = open(options.poolSize, "pool");
  const ledger = open(1, options.ledger.use, options.ledger.settings);
  const lock = open(1, "lock");
  return {
    sql,
    ledger,
    /** As the database shows the sessions of the ledger. */
    ledgerName: `gateway-${options.ledger.use}`,
    lock,
    close: () =>
      Promise.all([sql, ledger, lock].map((connection) => connection.end({ timeout: 5 }))),
  };
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
    readonly money: MoneyPort;
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
