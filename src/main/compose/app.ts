import { join } from "node:path";
import type { Database, Query } from "../../../db/client.ts";
import type { LastUse } from "../../accounts/keys/api-keys.ts";
import { OrganizationAdministration } from "../../accounts/organizations/organizations.ts";
import type { ProviderKeys } from "../../accounts/provider-keys/provider-keys.ts";
import type { CreditOrders } from "../../billing/ledger/credit-orders.ts";
import { OperatorCredit } from "../../billing/ledger/operator-credit.ts";
import { FailedRequests } from "../../billing/requests/failed-requests.ts";
import { LiveFigures } from "../../dashboard/live.ts";
import type { PageBundle } from "../../dashboard/pages.ts";
import { DashboardSessions } from "../../dashboard/sessions.ts";
import { type SignInRejected, SingleSignOn } from "../../dashboard/single-sign-on.ts";
import { Authentication, type Suspensions } from "../../http/authentication.ts";
import type { BodyBudget } from "../../http/body-budget.ts";
import { AdministrativeRate, createReadSemaphore, LoadGate } from "../../http/call-bounds.ts";
import { ERROR_TABLE } from "../../http/error-response.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { SpooledUploads } from "../../http/spooled-uploads.ts";
import { ProviderHealth } from "../../inference/call/routing/provider-health.ts";
import type { TunedModels } from "../../inference/call/routing/tuned-models.ts";
import type { DefinitionCache } from "../../inference/definitions/definition-cache.ts";
import { type Clock, steady } from "../../lib/clock.ts";
import type { ErrorCode } from "../../lib/errors.ts";
import { networkCheck } from "../../lib/public-address.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { Coordination, RateWindows } from "../../platform/cluster/interface.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";
import type { MetricExport } from "../../platform/telemetry/metric-export.ts";
import type { EventLoopLag } from "../../platform/telemetry/process-metrics.ts";
import type { Tracing } from "../../platform/telemetry/tracing.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Provider } from "../../providers/interface.ts";
import { createApp } from "../app.ts";
import { mountedRoutes, type RouteDependencies } from "../routes.ts";
import type { ActorWorld } from "./actor-world.ts";
import type { Base } from "./base.ts";
import type { BatchParts } from "./batches.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FileParts } from "./files.ts";
import type { FineTuningParts } from "./fine-tuning.ts";
import type { MoneyParts } from "./money.ts";
import type { PaymentParts } from "./payments.ts";
import type { VectorStoreParts } from "./vector-stores.ts";
import type { WebhookParts } from "./webhooks.ts";

interface AppParts {
  readonly node: ClusterNode;
  readonly coordination: Coordination;
  readonly accounts: MoneyParts;
  readonly billing: PaymentParts;
  readonly models: ModelIndex;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly providerKeys: ProviderKeys;
  readonly definitions: DefinitionCache;
  readonly tunedModels: TunedModels;
  readonly endpoints: RouteDependencies["endpoints"];
  readonly tuning: FineTuningParts;
  readonly files: FileParts;
  readonly vectorStores: VectorStoreParts;
  readonly batches: BatchParts;
  readonly webhooks: WebhookParts;
  readonly inFlight: InFlight;
  readonly bodies: BodyBudget;
  readonly lag: EventLoopLag;
  readonly lastUse: LastUse;
  /** Files of the dashboard. */
  readonly bundle: PageBundle;
  /** Receives each request of an organization after its end. */
  note(request: RequestRecord): void;
  readonly tracing: Tracing | undefined;
}

/** Composes the routes and the pipeline in front of them. */
export function composeApp(base: Base, parts: AppParts): ReturnType<typeof createApp> {
  const { config, telemetry, sql, clock, instance, read } = base;
  const { coordination, tunedModels, endpoints, models, files, inFlight, bodies, lag } = parts;
  const { tuning, webhooks, lastUse } = parts;
  const { world, suspensions, budgetSubjects, orders, admission } = parts.accounts;
  const { membership } = parts.node;
  const { keys } = world;
  const { rates } = coordination;
  const { publicUrl } = config;
  const isTrustedProxy = networkCheck(config.trustedProxies);
  const { admin, administrativeRate } = composeAdministration({
    config,
    definitions: parts.definitions,
    sql,
    clock,
    instanceId: instance.id,
    world,
    suspensions,
    orders,
    cardRefunds: parts.billing.cardRefunds,
    models,
    providers: parts.providers,
    rates,
    read,
  });
  const authentication = new Authentication({ keys, suspensions, clock, read });
  const singleSignOn =
    config.singleSignOn &&
    new SingleSignOn({
      config: config.singleSignOn,
      egress: {
        guard: createEgressGuard(config, false),
      },
      clock,
    });
  const sessions = new DashboardSessions({
    singleSignOn,
    ...{ sql, clock, keys, suspensions, authentication, rates, publicUrl, read },
  });
  const live = new LiveFigures({
    ...{ sessions, clock, read },
    keepaliveMs: config.keepaliveMs,
    isStopping: () => inFlight.isStopping,
  });
  const routes = mountedRoutes({
    admin,
    dashboard: {
      sessions,
      live,
      bundle: parts.bundle,
      publicUrl,
      sql,
      clock,
      isTrustedProxy,
      singleSignOn,
      onRejected: ({ message, cause, claims }: SignInRejected) =>
        telemetry.log.warn(
          { reason: reasonOf(cause) ?? message, claims },
          "single sign-on rejected",
        ),
    },
    config,
    telemetry,
    tunedModels,
    providers: parts.providers,
    fineTuning: tuning.fineTuning,
    billing: parts.billing,
    sql,
    background: base.background,
    world,
    budgetSubjects,
    endpoints,
    webhooks: webhooks.webhooks,
    providerKeys: parts.providerKeys,
    definitions: parts.definitions,
    files,
    vectorStores: parts.vectorStores.stores,
    batches: parts.batches.batches,
    clock,
    membership,
    inFlight,
    coordination,
    isLedgerOpen: () => base.connections.isLedgerOpen,
  });
  return createApp(routes, {
    authentication,
    sessions,
    whenAdmitting: () => membership.whenFresh(),
    inFlight,
    reads: createReadSemaphore(config.databasePoolSize),
    loadGate: new LoadGate({ lagMs: () => lag.lagMs }),
    bodies,
    forms: {
      files: new SpooledUploads(join(config.dataDir, "passing")),
      clock: steady(clock),
      minBytesPerSecond: config.uploadMinBytesPerSecond,
    },
    isTrustedProxy,
    administrativeRate,
    admitLongBody: (caller, log) => admission.admitLongBody(caller, log),
    noteUse: (keyId) => lastUse.note(keyId, clock.nowMs()),
    tracing: parts.tracing,
    connectionIdleSeconds: config.connectionIdleSeconds,
    record(request) {
      telemetry.record(request);
      parts.note(request);
    },
    onInternalError: (error, requestId) =>
      telemetry.log.error(
        { err: error.cause ?? error, code: error.code, request_id: requestId },
        "request failed",
      ),
    corsOrigins: config.corsOrigins,
  });
}

/**
 * Composes the record of failed billed requests, and `note`, which passes ended requests to that record and to
 * completion events.
 */
export function composeFailedRequests(
  { background, clock, telemetry, onError }: Base,
  endpoints: readonly RouteDefinition[],
  { completionEvents }: Pick<AppParts["webhooks"], "completionEvents">,
): { readonly failedRequests: FailedRequests; note(request: RequestRecord): void } {
  const paid = endpoints.filter((route) => route.takesIdempotencyKey === true);
  const routes = new Set(paid.map(({ method, path }) => `${method} ${path}`));
  const failedRequests = new FailedRequests({
    sql: background,
    steadyClock: steady(clock),
    routes,
    statusOf: (code) => (ERROR_TABLE[code as ErrorCode] ?? ERROR_TABLE.internal).status,
    onError,
  });
  telemetry.counter(
    "gateway_failed_requests_dropped_total",
    "Failed requests that are missing in GET /v1/requests, because the database did not accept them in time.",
    () => failedRequests.dropped,
  );
  return {
    failedRequests,
    note(request) {
      completionEvents.noteFinished(request, routes.has(`${request.method} ${request.route}`));
      failedRequests.note(request);
    },
  };
}

/** Returns only the messages of an error and its causes, because their other members hold tokens and claims. */
function reasonOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return [error.message, reasonOf(error.cause)].filter(Boolean).join(": ");
}

const PASSIVATION_SWEEP_MS = 10_000;

/** Starts to drop idle actors from memory, every few seconds. */
export function startPassivation({
  accounts: { world },
  tuning,
  webhooks,
}: Pick<AppParts, "accounts" | "tuning" | "webhooks">): ReturnType<typeof setInterval> {
  return setInterval(() => {
    world.keys.passivateIdle();
    world.organizations.passivateIdle();
    world.subjectBudgets.passivateIdle();
    world.endpoints.passivateIdle();
    tuning.passivateIdle();
    webhooks.passivateIdle();
  }, PASSIVATION_SWEEP_MS);
}

/** Composes the services of operators, and the limit of administrative calls of organizations. */
function composeAdministration(parts: {
  readonly config: GatewayConfig;
  readonly sql: Database;
  readonly clock: Clock;
  readonly instanceId: string;
  readonly world: ActorWorld;
  readonly suspensions: Suspensions;
  readonly orders: CreditOrders;
  readonly cardRefunds: PaymentParts["cardRefunds"];
  readonly definitions: DefinitionCache;
  readonly models: ModelIndex;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly rates: RateWindows;
  read<Result>(query: Query<Result>): Promise<Result>;
}) {
  const { config, world } = parts;
  return {
    administrativeRate: new AdministrativeRate(parts.rates),
    admin: {
      organizations: new OrganizationAdministration({
        ...parts,
        organizations: world.organizations,
        defaults: { plan: config.plan, startingCreditNano: config.startingCreditNanoUsd },
      }),
      credit: new OperatorCredit({ ...parts, organizations: world.organizations }),
      providers: new ProviderHealth({ ...parts, endpoints: world.endpoints }),
    },
  };
}

/** The exports to a collector. */
export interface Collected {
  readonly tracing: Tracing | undefined;
  readonly metricExport: MetricExport | undefined;
}

/** Composes the exporters of traces and metrics. OpenTelemetry is loaded only if a collector is configured. */
export async function composeCollected(base: Base): Promise<Collected> {
  const { telemetry, instance } = base;
  const { tracing, metricExport } = base.config;
  const shared = { instanceId: instance.id, telemetry };
  const traced = tracing && (await import("../../platform/telemetry/tracing.ts"));
  const measured = metricExport && (await import("../../platform/telemetry/metric-export.ts"));
  return {
    tracing: traced && new traced.Tracing({ ...shared, config: tracing }),
    metricExport: measured && new measured.MetricExport({ ...shared, config: metricExport }),
  };
}
