import type { ApiKeyActors } from "../actors/api-key/actor.ts";
import type { OrganizationActors } from "../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../actors/subject-budget/actor.ts";
import type { Database } from "../db/client.ts";
import { version } from "../package.json";
import { type AdminServices, adminRoutes } from "./admin/routes.ts";
import { auditRoutes } from "./audit/routes.ts";
import type { Batches } from "./batches/batches.ts";
import { batchRoutes } from "./batches/routes.ts";
import { type BillingServices, billingRoutes } from "./billing/routes.ts";
import { budgetRoutes } from "./budgets/routes.ts";
import { SubjectBudgets } from "./budgets/subject-budgets.ts";
import type { TunedModels } from "./calls/routing/tuned-models.ts";
import type { InFlight } from "./cluster/in-flight.ts";
import type { Coordination } from "./cluster/interface.ts";
import type { ClusterMembership } from "./cluster/membership.ts";
import type { GatewayConfig } from "./config.ts";
import { creditRoutes } from "./credits/routes.ts";
import { type DashboardDependencies, dashboardRoutes } from "./dashboard/routes.ts";
import type { Offers } from "./dashboard/settings.ts";
import { Definitions } from "./definitions/definitions.ts";
import type { KnownDefinitions } from "./definitions/known-definitions.ts";
import type { FileLibrary } from "./files/file-library.ts";
import type { FileUploads } from "./files/file-uploads.ts";
import { fileRoutes } from "./files/routes.ts";
import type { FineTuning } from "./fine-tuning/fine-tuning.ts";
import { fineTuningRoutes } from "./fine-tuning/routes.ts";
import { guardrailRoutes } from "./guardrails/routes.ts";
import { openApiDocument } from "./http/openapi.ts";
import type { RouteDefinition } from "./http/route.ts";
import { ApiKeys } from "./keys/api-keys.ts";
import { keyRoutes } from "./keys/routes.ts";
import type { Clock } from "./lib/clock.ts";
import type { MediaLinks } from "./media-links/media-links.ts";
import { mediaRoutes } from "./media-links/routes.ts";
import { ModelCatalogue } from "./models/model-catalogue.ts";
import { modelRoutes } from "./models/routes.ts";
import type { BudgetSubjects } from "./money/budget-subjects.ts";
import { organizationRoutes } from "./organizations/routes.ts";
import type { AutoReplenish } from "./payments/auto-replenish.ts";
import type { PlanBilling } from "./payments/plan-billing.ts";
import { presetRoutes } from "./presets/routes.ts";
import type { ProviderKeys } from "./provider-keys/provider-keys.ts";
import { providerKeyRoutes } from "./provider-keys/routes.ts";
import type { Provider } from "./providers/interface.ts";
import { requestRoutes } from "./requests/routes.ts";
import { responseCacheRoutes } from "./response-cache/routes.ts";
import { subscriptionRoutes } from "./subscriptions/routes.ts";
import { Subscriptions } from "./subscriptions/subscriptions.ts";
import { healthRoutes, metricsRoutes } from "./system/monitoring.ts";
import { descriptionRoutes } from "./system/pages.ts";
import type { Telemetry } from "./telemetry/interface.ts";
import { usageRoutes } from "./usage/routes.ts";
import { vectorStoreRoutes } from "./vector-stores/routes.ts";
import type { VectorStores } from "./vector-stores/vector-stores.ts";
import { webhookRoutes } from "./webhooks/routes.ts";
import type { Webhooks } from "./webhooks/webhooks.ts";

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
  /** The same, for what may take its time. */
  readonly background: Database;
  readonly world: {
    readonly keys: ApiKeyActors;
    readonly organizations: OrganizationActors;
    readonly subjectBudgets: SubjectBudgetActors;
  };
  readonly budgetSubjects: BudgetSubjects;
  /** The billed endpoints. */
  readonly endpoints: readonly RouteDefinition[];
  readonly webhooks: Webhooks;
  readonly providerKeys: ProviderKeys;
  readonly definitions: KnownDefinitions;
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
  /** Whether the connection that charges serves. */
  isLedgerOpen(): boolean;
  readonly dashboard: Omit<DashboardDependencies, "offers">;
}

/** Every route of the gateway. */
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
    ...presetRoutes(new Definitions({ sql, clock, known: dependencies.definitions }, "preset")),
    ...guardrailRoutes(
      new Definitions({ sql, clock, known: dependencies.definitions }, "guardrail"),
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
    ...descriptionRoutes({ document: () => openApiDocument(routes, { version }) }),
  ];
  return [
    ...routes,
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

/** Ready: the database answers and takes charges, its news are fresh, Redis counts if there is one, and nothing is stopping. */
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
