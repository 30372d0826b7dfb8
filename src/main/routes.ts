import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../../actors/subject-budget/actor.ts";
import type { Database } from "../../db/client.ts";
import { version } from "../../package.json";
import { type AdminServices, adminRoutes } from "../accounts/admin/routes.ts";
import { auditRoutes } from "../accounts/audit/routes.ts";
import { budgetRoutes } from "../accounts/budgets/routes.ts";
import { SubjectBudgets } from "../accounts/budgets/subject-budgets.ts";
import { ApiKeys } from "../accounts/keys/api-keys.ts";
import { keyRoutes } from "../accounts/keys/routes.ts";
import { organizationRoutes } from "../accounts/organizations/routes.ts";
import type { ProviderKeys } from "../accounts/provider-keys/provider-keys.ts";
import { providerKeyRoutes } from "../accounts/provider-keys/routes.ts";
import { creditRoutes } from "../billing/credits/routes.ts";
import type { BudgetSubjects } from "../billing/ledger/budget-subjects.ts";
import { type BillingServices, billingRoutes } from "../billing/payment-methods/routes.ts";
import type { AutoReplenish } from "../billing/payments/auto-replenish.ts";
import type { PlanBilling } from "../billing/payments/plan-billing.ts";
import { requestRoutes } from "../billing/requests/routes.ts";
import { subscriptionRoutes } from "../billing/subscriptions/routes.ts";
import { Subscriptions } from "../billing/subscriptions/subscriptions.ts";
import { usageRoutes } from "../billing/usage/routes.ts";
import { type DashboardDependencies, dashboardRoutes } from "../dashboard/routes.ts";
import type { Offers } from "../dashboard/settings.ts";
import { openApiDocument } from "../http/openapi.ts";
import type { RouteDefinition } from "../http/route.ts";
import { documentationRoutes } from "../http/system/documentation/routes.ts";
import { healthRoutes, metricsRoutes } from "../http/system/monitoring.ts";
import { descriptionRoutes } from "../http/system/pages.ts";
import { responseCacheRoutes } from "../inference/cache/routes.ts";
import type { TunedModels } from "../inference/call/routing/tuned-models.ts";
import type { DefinitionCache } from "../inference/definitions/definition-cache.ts";
import { DefinitionService } from "../inference/definitions/definition-service.ts";
import { guardrailRoutes } from "../inference/guardrails/routes.ts";
import type { MediaLinks } from "../inference/media-links/media-links.ts";
import { mediaRoutes } from "../inference/media-links/routes.ts";
import { ModelCatalogue } from "../inference/models/model-catalogue.ts";
import { modelRoutes } from "../inference/models/routes.ts";
import { presetRoutes } from "../inference/presets/routes.ts";
import type { Batches } from "../jobs/batches/batches.ts";
import { batchRoutes } from "../jobs/batches/routes.ts";
import type { FileLibrary } from "../jobs/files/file-library.ts";
import type { FileUploads } from "../jobs/files/file-uploads.ts";
import { fileRoutes } from "../jobs/files/routes.ts";
import type { FineTuning } from "../jobs/fine-tuning/fine-tuning.ts";
import { fineTuningRoutes } from "../jobs/fine-tuning/routes.ts";
import { vectorStoreRoutes } from "../jobs/vector-stores/routes.ts";
import type { VectorStores } from "../jobs/vector-stores/vector-stores.ts";
import type { Clock } from "../lib/clock.ts";
import type { InFlight } from "../platform/cluster/in-flight.ts";
import type { Coordination } from "../platform/cluster/interface.ts";
import type { ClusterMembership } from "../platform/cluster/membership.ts";
import type { GatewayConfig } from "../platform/config.ts";
import type { Telemetry } from "../platform/telemetry/interface.ts";
import type { Provider } from "../providers/interface.ts";
import { webhookRoutes } from "../webhooks/routes.ts";
import type { Webhooks } from "../webhooks/webhooks.ts";
import examples from "./openapi-examples.json";

export interface RouteDependencies {
  readonly admin: AdminServices;
  readonly config: GatewayConfig;
  readonly telemetry: Telemetry;
  readonly tunedModels: TunedModels;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly fineTuning: FineTuning;
  readonly billing: Omit<BillingServices, "publicUrl"> & {
    readonly replenish: AutoReplenish;
    readonly planBilling: PlanBilling;
  };
  readonly sql: Database;
  /** The same pool as `sql`, for statements that may take long. */
  readonly background: Database;
  readonly world: {
    readonly keys: ApiKeyActors;
    readonly organizations: OrganizationActors;
    readonly subjectBudgets: SubjectBudgetActors;
  };
  readonly budgetSubjects: BudgetSubjects;
  /** The routes of the billed endpoints. */
  readonly endpoints: readonly RouteDefinition[];
  readonly webhooks: Webhooks;
  readonly providerKeys: ProviderKeys;
  readonly definitions: DefinitionCache;
  readonly vectorStores: VectorStores;
  readonly batches: Batches;
  readonly files: {
    readonly uploads: FileUploads;
    readonly library: FileLibrary;
    readonly media: MediaLinks;
  };
  readonly clock: Clock;
  readonly membership: ClusterMembership;
  readonly inFlight: InFlight;
  readonly coordination: Coordination;
  /** True if the connection that writes charges is open. */
  isLedgerOpen(): boolean;
  readonly dashboard: Omit<DashboardDependencies, "offers">;
}

/** Returns every route of the gateway. */
export function mountedRoutes(dependencies: RouteDependencies): RouteDefinition[] {
  const { files, sql, world, clock, config, telemetry } = dependencies;
  const routes: RouteDefinition[] = [
    ...dependencies.endpoints,
    ...modelRoutes(new ModelCatalogue(dependencies)),
    ...keyRoutes(
      new ApiKeys({ sql, ...world, clock, rates: dependencies.coordination.rates }),
      clock,
    ),
    ...budgetRoutes(new SubjectBudgets(dependencies)),
    ...creditRoutes({ sql, replenish: dependencies.billing.replenish }),
    ...billingRoutes({ ...dependencies.billing, publicUrl: config.publicUrl }),
    ...subscriptionRoutes(
      new Subscriptions({
        sql,
        clock,
        organizations: world.organizations,
        ...dependencies.billing,
      }),
    ),
    ...requestRoutes(sql),
    ...usageRoutes(sql),
    ...auditRoutes(sql),
    ...organizationRoutes({ sql, organizations: dependencies.admin.organizations }),
    ...responseCacheRoutes({ ...dependencies, sql: dependencies.background }),
    ...webhookRoutes(dependencies.webhooks),
    ...providerKeyRoutes(dependencies.providerKeys),
    ...presetRoutes(
      new DefinitionService({ sql, clock, cache: dependencies.definitions }, "preset"),
    ),
    ...guardrailRoutes(
      new DefinitionService({ sql, clock, cache: dependencies.definitions }, "guardrail"),
      { canModerate: config.moderationModel !== undefined },
    ),
    ...fileRoutes({
      uploads: files.uploads,
      files: files.library,
      clock,
      publicUrl: config.publicUrl,
      uploadMinBytesPerSecond: config.uploadMinBytesPerSecond,
    }),
    ...vectorStoreRoutes(dependencies.vectorStores),
    ...batchRoutes(dependencies.batches),
    ...mediaRoutes(files.media),
    ...fineTuningRoutes(dependencies.fineTuning),
    ...adminRoutes(dependencies.admin),
    ...healthRoutes({ isReady: () => readiness(dependencies) }),
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
    ...dashboardRoutes(routes, { ...dependencies.dashboard, offers: offersOf(dependencies) }),
  ];
}

function offersOf({ config, billing, providerKeys }: RouteDependencies): Offers {
  const { stripe, testPayments, moderationModel } = config;
  const test = testPayments ? "test" : undefined;
  return {
    planBilling: billing.planBilling,
    paymentProcessor: stripe === undefined ? test : "stripe",
    providers: providerKeys.providers,
    canModerate: moderationModel !== undefined,
  };
}

/**
 * Checks whether this instance is ready: the database answers and accepts charges, heartbeats are recent, Redis (if
 * configured) answers, and no stop has begun.
 */
async function readiness(dependencies: RouteDependencies) {
  const { sql, membership, inFlight, coordination } = dependencies;
  const database =
    membership.isFresh && (await sql`SELECT 1`.then(() => true)) ? "ok" : "unreachable";
  const draining = inFlight.isStopping ? "stopping" : "ok";
  const redis = coordination.redis?.isUp === false ? "unreachable" : "ok";
  const ledger = dependencies.isLedgerOpen() ? "ok" : "unreachable";
  const ok = [database, ledger, draining, redis].every((state) => state === "ok");
  const checks = { database, ledger, draining };
  return { ok, checks: coordination.redis === undefined ? checks : { ...checks, redis } };
}
