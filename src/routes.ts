import type { Database } from "../db/client.ts";
import { version } from "../package.json";
import type { GatewayConfig } from "./config.ts";
import type { Coordination } from "./coordination/interface.ts";
import { openApiDocument } from "./http/openapi.ts";
import type { RouteDefinition } from "./http/route.ts";
import type { Clock } from "./lib/clock.ts";
import { type AdminServices, adminRoutes } from "./routes/admin/index.ts";
import { chatRoutes } from "./routes/chat/index.ts";
import { creditRoutes } from "./routes/credits/index.ts";
import { descriptionRoutes } from "./routes/description/index.ts";
import { fileRoutes } from "./routes/files/index.ts";
import { fineTuningRoutes } from "./routes/fine-tuning/index.ts";
import { healthRoutes } from "./routes/health/index.ts";
import { homeRoutes } from "./routes/home/index.ts";
import { keyRoutes } from "./routes/keys/index.ts";
import { metricsRoutes } from "./routes/metrics/index.ts";
import { modelRoutes } from "./routes/models/index.ts";
import { webhookRoutes } from "./routes/webhooks/index.ts";
import type { ChatCompletions } from "./services/chat/chat-completions.ts";
import type { FileLibrary } from "./services/files/file-library.ts";
import type { FileUploads } from "./services/files/file-uploads.ts";
import type { FineTuning } from "./services/fine-tuning/fine-tuning.ts";
import { ApiKeys } from "./services/keys/api-keys.ts";
import { ModelCatalogue } from "./services/models/model-catalogue.ts";
import type { TunedModels } from "./services/models/tuned-models.ts";
import type { ApiKeyActors, OrganizationActors } from "./services/money/alone.ts";
import type { InFlight } from "./services/presence/in-flight.ts";
import type { Presence } from "./services/presence/presence.ts";
import type { Webhooks } from "./services/webhooks/webhooks.ts";
import type { Telemetry } from "./telemetry/interface.ts";

export interface RouteDependencies {
  readonly admin: AdminServices;
  readonly config: GatewayConfig;
  readonly telemetry: Telemetry;
  readonly tunedModels: TunedModels;
  readonly fineTuning: FineTuning;
  readonly sql: Database;
  readonly world: { readonly keys: ApiKeyActors; readonly organizations: OrganizationActors };
  readonly chat: ChatCompletions;
  readonly webhooks: Webhooks;
  readonly files: { readonly uploads: FileUploads; readonly library: FileLibrary };
  readonly clock: Clock;
  readonly presence: Presence;
  readonly inFlight: InFlight;
  readonly coordination: Coordination;
}

/** Every route of the gateway. */
export function mountedRoutes(dependencies: RouteDependencies): RouteDefinition[] {
  const { chat, files, sql, world, clock, config, telemetry } = dependencies;
  const routes: RouteDefinition[] = [
    ...chatRoutes(chat),
    ...modelRoutes(new ModelCatalogue({ tunedModels: dependencies.tunedModels, sql })),
    ...keyRoutes(
      new ApiKeys({ sql, ...world, clock, rates: dependencies.coordination.rates }),
      clock,
    ),
    ...creditRoutes(sql),
    ...webhookRoutes(dependencies.webhooks),
    ...fileRoutes({
      uploads: files.uploads,
      files: files.library,
      clock,
      publicUrl: config.publicUrl,
      uploadMinBytesPerSecond: config.uploadMinBytesPerSecond,
    }),
    ...fineTuningRoutes(dependencies.fineTuning),
    ...adminRoutes(dependencies.admin),
    ...healthRoutes({ isReady: () => readiness(dependencies) }),
    ...metricsRoutes({
      telemetry,
      token: config.metricsToken,
      isLoopback: config.hostIsLoopback,
    }),
    ...homeRoutes(config.publicUrl),
    ...descriptionRoutes({ document: () => openApiDocument(routes, { version }) }),
  ];
  return routes;
}

/** Ready: the database answers, its news are fresh, Redis counts if there is one, and nothing is stopping. */
async function readiness({ sql, presence, inFlight, coordination }: RouteDependencies) {
  const database =
    presence.isFresh && (await sql`SELECT 1`.then(() => true)) ? "ok" : "unreachable";
  const draining = inFlight.isStopping ? "stopping" : "ok";
  const redis = coordination.redis?.isUp === false ? "unreachable" : "ok";
  const ok = database === "ok" && draining === "ok" && redis === "ok";
  const checks = { database, draining };
  return { ok, checks: coordination.redis === undefined ? checks : { ...checks, redis } };
}
