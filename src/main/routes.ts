import { version } from "../../package.json";
import { type AdminServices, adminRoutes } from "../accounts/admin/routes.ts";
import { auditRoutes } from "../accounts/audit/routes.ts";
import { budgetRoutes } from "../accounts/budgets/routes.ts";
import { SubjectBudgets } from "../accounts/budgets/subject-budgets.ts";
import { configurationRoutes } from "../accounts/configuration/routes.ts";
import type { IdentityProviders } from "../accounts/identity-providers/identity-providers.ts";
import { identityProviderRoutes } from "../accounts/identity-providers/routes.ts";
import { ApiKeys } from "../accounts/keys/api-keys.ts";
import { keyRoutes } from "../accounts/keys/routes.ts";
import { Members } from "../accounts/members/members.ts";
import { memberRoutes } from "../accounts/members/routes.ts";
import { organizationRoutes } from "../accounts/organizations/routes.ts";
import { operatorPeopleRoutes } from "../accounts/people/operator-routes.ts";
import { providerKeyRoutes } from "../accounts/provider-keys/routes.ts";
import { scimRoutes } from "../accounts/scim/routes.ts";
import { scimTokenRoutes } from "../accounts/scim/token-routes.ts";
import { ScimTokens } from "../accounts/scim/tokens.ts";
import { teamRoutes } from "../accounts/teams/routes.ts";
import { Teams } from "../accounts/teams/teams.ts";
import { alertChannelRoutes } from "../alerts/routes.ts";
import { creditRoutes } from "../billing/credits/routes.ts";
import { transactionRoutes } from "../billing/credits/transaction-routes.ts";
import { paymentRoutes } from "../billing/payment-list/routes.ts";
import { billingRoutes } from "../billing/payment-methods/routes.ts";
import { requestRoutes } from "../billing/requests/routes.ts";
import { statementRoutes } from "../billing/statements/routes.ts";
import { subscriptionRoutes } from "../billing/subscriptions/routes.ts";
import { Subscriptions } from "../billing/subscriptions/subscriptions.ts";
import { gatewayUsageRoutes } from "../billing/usage/gateway-routes.ts";
import { usageRoutes } from "../billing/usage/routes.ts";
import type { ObjectServices } from "../dashboard/objects/object-access.ts";
import { type DashboardDependencies, dashboardRoutes } from "../dashboard/routes.ts";
import type { Offers } from "../dashboard/settings.ts";
import { CsvExports } from "../http/csv.ts";
import { openApiDocument } from "../http/openapi.ts";
import type { RouteDefinition } from "../http/route.ts";
import { documentationRoutes } from "../http/system/documentation/routes.ts";
import { healthRoutes, metricsRoutes } from "../http/system/monitoring.ts";
import { descriptionRoutes } from "../http/system/pages.ts";
import { responseCacheRoutes } from "../inference/cache/routes.ts";
import { DefinitionService } from "../inference/definitions/definition-service.ts";
import { guardrailRoutes } from "../inference/guardrails/routes.ts";
import { mediaRoutes } from "../inference/media-links/routes.ts";
import { ModelCatalogue } from "../inference/models/model-catalogue.ts";
import { modelRoutes } from "../inference/models/routes.ts";
import { presetRoutes } from "../inference/presets/routes.ts";
import { batchRoutes } from "../jobs/batches/routes.ts";
import { fileRoutes } from "../jobs/files/routes.ts";
import { fineTuningRoutes } from "../jobs/fine-tuning/routes.ts";
import { vectorStoreRoutes } from "../jobs/vector-stores/routes.ts";
import { webhookRoutes } from "../webhooks/routes.ts";
import type { Services } from "./compose/services.ts";
import examples from "./openapi-examples.json";

/** Returns every route of the gateway. */
export function mountedRoutes(
  services: Services,
  admin: AdminServices,
  dashboard: Omit<DashboardDependencies, "offers" | "objects"> & {
    readonly identityProviders: IdentityProviders;
  },
): RouteDefinition[] {
  const { billing, clock, config, definitions, files, sql, telemetry, world } = services;
  const { publicUrl } = config;
  const canModerate = config.moderationModel !== undefined;
  const definitionsOf = (kind: "preset" | "guardrail") =>
    new DefinitionService({ sql, clock, cache: definitions }, kind);
  const members = new Members({ sql, clock });
  const exports = new CsvExports(clock);
  const routes: RouteDefinition[] = [
    ...services.routes,
    ...modelRoutes(new ModelCatalogue(services)),
    ...keyRoutes(new ApiKeys({ sql, ...world, clock, rates: services.coordination.rates }), clock),
    ...budgetRoutes(new SubjectBudgets(services)),
    ...teamRoutes(new Teams({ sql, clock })),
    ...memberRoutes(members, { baseUrl: publicUrl, mail: dashboard.mail }),
    ...operatorPeopleRoutes({
      ...{ sql, accounts: dashboard.accounts, members, mail: dashboard.mail, publicUrl },
    }),
    ...scimTokenRoutes(new ScimTokens({ sql, clock, organizations: world.organizations })),
    ...identityProviderRoutes(dashboard.identityProviders),
    ...scimRoutes({ sql, clock, publicUrl }),
    ...creditRoutes({ sql, replenish: billing.replenish }),
    ...transactionRoutes({ sql, exports }),
    ...statementRoutes(sql),
    ...paymentRoutes(sql),
    ...billingRoutes({ ...billing, publicUrl }),
    ...subscriptionRoutes(
      new Subscriptions({ sql, clock, organizations: world.organizations, ...billing }),
    ),
    ...requestRoutes({ sql, exports }),
    ...usageRoutes(sql),
    ...gatewayUsageRoutes(sql),
    ...auditRoutes(sql),
    ...organizationRoutes({ sql, organizations: admin.organizations }),
    ...responseCacheRoutes({ ...services, sql: services.background }),
    ...webhookRoutes(services.webhooks.webhooks),
    ...alertChannelRoutes(services.alerts.channels),
    ...providerKeyRoutes(services.providerKeys),
    ...presetRoutes(definitionsOf("preset")),
    ...guardrailRoutes(definitionsOf("guardrail"), { canModerate }),
    ...fileRoutes({
      ...{ uploads: files.uploads, files: files.library, clock, publicUrl },
      uploadMinBytesPerSecond: config.uploadMinBytesPerSecond,
    }),
    ...vectorStoreRoutes(services.vectorStores.stores),
    ...batchRoutes(services.batches.batches),
    ...mediaRoutes(files.media),
    ...fineTuningRoutes(services.tuning.fineTuning),
    ...adminRoutes(admin),
    ...configurationRoutes(admin.configuration),
    ...healthRoutes({ isReady: () => readiness(services) }),
    ...metricsRoutes({
      telemetry,
      token: config.metricsToken,
      isLoopback: config.hostIsLoopback,
    }),
    ...descriptionRoutes({ document: () => openApiDocument(routes, { version, examples }) }),
  ];
  return [
    ...routes,
    ...documentationRoutes(),
    ...dashboardRoutes(routes, {
      ...dashboard,
      offers: offersOf(services),
      objects: objectServicesOf(services),
    }),
  ];
}

function offersOf({ config, billing, providerKeys }: Services): Offers {
  const { stripe, testPayments, moderationModel } = config;
  const test = testPayments ? "test" : undefined;
  return {
    planBilling: billing.planBilling,
    paymentProcessor: stripe === undefined ? test : "stripe",
    providersFor: (organizationId) => providerKeys.providersFor(organizationId),
    canModerate: moderationModel !== undefined,
  };
}

function objectServicesOf(services: Services): ObjectServices {
  const { batches, clock, config, files, keyring, responses, sql, tuning, vectorStores } = services;
  return {
    ...{ sql, clock, keyring, responses, files: files.library, batches: batches.batches },
    ...{ fineTuning: tuning.fineTuning, stores: vectorStores.stores },
    ...{ thread: services.workThread, publicUrl: config.publicUrl },
  };
}

/**
 * Checks whether this instance is ready: the database answers and accepts charges, heartbeats are recent, Redis (if
 * configured) answers, and no stop has begun.
 */
async function readiness({ connections, coordination, inFlight, node, sql }: Services) {
  const database =
    node.membership.isFresh && (await sql`SELECT 1`.then(() => true)) ? "ok" : "unreachable";
  const draining = inFlight.isStopping ? "stopping" : "ok";
  const redis = coordination.redis?.isUp === false ? "unreachable" : "ok";
  const ledger = connections.isLedgerOpen ? "ok" : "unreachable";
  const ok = [database, ledger, draining, redis].every((state) => state === "ok");
  const checks = { database, ledger, draining };
  return { ok, checks: coordination.redis === undefined ? checks : { ...checks, redis } };
}
