import { join } from "node:path";
import type { AdminServices } from "../../accounts/admin/routes.ts";
import { IdentityProviders } from "../../accounts/identity-providers/identity-providers.ts";
import { OrganizationAdministration } from "../../accounts/organizations/organizations.ts";
import { Accounts } from "../../accounts/people/accounts.ts";
import { Passkeys } from "../../accounts/people/passkeys.ts";
import { OperatorCredit } from "../../billing/ledger/operator-credit.ts";
import { FailedRequests } from "../../billing/requests/failed-requests.ts";
import { IdentitySignOn } from "../../dashboard/identity-sign-on.ts";
import { LiveFigures } from "../../dashboard/live.ts";
import type { SignInRejected } from "../../dashboard/oidc-client.ts";
import { DashboardSessions } from "../../dashboard/sessions.ts";
import { SingleSignOn } from "../../dashboard/single-sign-on.ts";
import { Authentication } from "../../http/authentication.ts";
import { AdministrativeRate, createReadSemaphore, LoadGate } from "../../http/call-bounds.ts";
import { ERROR_TABLE } from "../../http/error-response.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { SpooledUploads } from "../../http/spooled-uploads.ts";
import { steady } from "../../lib/clock.ts";
import type { ErrorCode } from "../../lib/errors.ts";
import { networkCheck } from "../../lib/public-address.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";
import { createApp } from "../app.ts";
import { mountedRoutes } from "../routes.ts";
import { reasonOf } from "./alerts.ts";
import type { Base } from "./base.ts";
import type { Services } from "./services.ts";
import type { WebhookParts } from "./webhooks.ts";

/** Composes the routes and the pipeline in front of them. */
export function composeApp(services: Services): ReturnType<typeof createApp> {
  const { config, telemetry, sql, clock, read } = services;
  const { suspensions, world, coordination, inFlight, lag, lastUse, node } = services;
  const { keys } = world;
  const { rates } = coordination;
  const { publicUrl } = config;
  const isTrustedProxy = networkCheck(config.trustedProxies);
  const authentication = new Authentication({ keys, suspensions, clock, read });
  const guard = createEgressGuard(config, false);
  const singleSignOn =
    config.singleSignOn &&
    new SingleSignOn({ config: config.singleSignOn, egress: { guard }, clock });
  const sessions = new DashboardSessions({
    singleSignOn,
    ...{ sql, clock, keys, suspensions, authentication, rates, publicUrl, read },
  });
  const live = new LiveFigures({
    ...{ sessions, clock, read },
    keepaliveMs: config.keepaliveMs,
    isStopping: () => inFlight.isStopping,
  });
  const identityProviders = new IdentityProviders({ sql, clock, keyring: services.keyring });
  const accounts = new Accounts({ sql, clock, keyring: services.keyring, rates });
  const routes = mountedRoutes(services, composeAdministration(services), {
    ...{ accounts, passkeys: new Passkeys({ sql, clock, accounts }) },
    ...{ mail: services.mail, alerts: services.alerts.channels },
    ...{ keysSignIn: config.keysSignIn },
    identityProviders,
    identitySignOn: new IdentitySignOn({ providers: identityProviders, egress: { guard }, clock }),
    ...{ sessions, live, publicUrl, sql, clock, keys, isTrustedProxy, singleSignOn },
    bundle: services.bundle,
    onRejected: ({ message, cause, claims }: SignInRejected) =>
      telemetry.log.warn({ reason: reasonOf(cause) ?? message, claims }, "single sign-on rejected"),
  });
  return createApp(routes, {
    ...{ authentication, sessions, inFlight, isTrustedProxy },
    bodies: services.bodies,
    whenAdmitting: () => node.membership.whenFresh(),
    reads: createReadSemaphore(config.databasePoolSize),
    loadGate: new LoadGate({ lagMs: () => lag.lagMs }),
    forms: {
      files: new SpooledUploads(join(config.dataDir, "passing")),
      clock: steady(clock),
      minBytesPerSecond: config.uploadMinBytesPerSecond,
    },
    administrativeRate: new AdministrativeRate(rates),
    admitLongBody: (caller, log) => services.admission.admitLongBody(caller, log),
    noteUse: (keyId) => lastUse.note(keyId, clock.nowMs()),
    tracing: services.collected.tracing,
    connectionIdleSeconds: config.connectionIdleSeconds,
    record(request) {
      telemetry.record(request);
      services.note(request);
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
  { completionEvents }: WebhookParts,
) {
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
    /** Receives each request of an organization after its end. */
    note(request: RequestRecord): void {
      completionEvents.noteFinished(request, routes.has(`${request.method} ${request.route}`));
      failedRequests.note(request);
    },
  };
}

/** Composes the services of operators. */
function composeAdministration(services: Services): AdminServices {
  const { billing, config, world } = services;
  const shared = { ...services, ...world, instanceId: services.instance.id };
  return {
    organizations: new OrganizationAdministration({
      ...shared,
      defaults: { plan: config.plan, startingCreditNano: config.startingCreditNanoUsd },
    }),
    credit: new OperatorCredit({ ...shared, cardRefunds: billing.cardRefunds }),
    configuration: {
      ...services,
      stored: services.storedConfiguration,
      health: services.health,
      instanceId: services.instance.id,
    },
  };
}

/** Milliseconds for the last traces and metrics to be sent. */
const EXPORT_MS = 2_000;

/** Composes the exporters of traces and metrics. OpenTelemetry is loaded only if a collector is configured. */
export async function composeCollected(base: Base) {
  const { telemetry, instance } = base;
  const { tracing, metricExport } = base.config;
  const shared = { instanceId: instance.id, telemetry };
  const traced = tracing && (await import("../../platform/telemetry/tracing.ts"));
  const measured = metricExport && (await import("../../platform/telemetry/metric-export.ts"));
  const exporters = {
    tracing: traced && new traced.Tracing({ ...shared, config: tracing }),
    metricExport: measured && new measured.MetricExport({ ...shared, config: metricExport }),
  };
  let exported: Promise<unknown> | undefined;
  return {
    tracing: exporters.tracing,
    /** Begins to send the last traces and metrics. */
    export(): void {
      const all = Object.values(exporters).map((exporter) => exporter?.close(EXPORT_MS));
      exported = Promise.all(all);
    },
    whenExported: () => exported,
  };
}
