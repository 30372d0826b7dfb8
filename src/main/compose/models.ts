import { ProviderKeys } from "../../accounts/provider-keys/provider-keys.ts";
import { ByokKeys } from "../../inference/call/routing/byok-keys.ts";
import { ByokProviders } from "../../inference/call/routing/byok-providers.ts";
import type { EndpointActors } from "../../inference/call/routing/failover.ts";
import { HealthChecks } from "../../inference/call/routing/health-checks.ts";
import { HealthRecorder } from "../../inference/call/routing/health-recorder.ts";
import { ProviderHealth } from "../../inference/call/routing/provider-health.ts";
import { DefinitionCache } from "../../inference/definitions/definition-cache.ts";
import { LiveConfiguration } from "../../inference/models/live-configuration.ts";
import { ProvidersModelLists } from "../../inference/models/model-lists.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import { requestsModelList } from "../../platform/config/provider-types.ts";
import { isLocalServer } from "../../platform/config/providers.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { askModelList } from "../../providers/catalogue/ask-model-list.ts";
import type { ProviderReport } from "../../providers/catalogue/build-catalogue.ts";
import { readStoredLists, storeLists } from "../../providers/catalogue/model-list-cache.ts";
import { builtInModels } from "../../providers/catalogue/provider-models.ts";
import type { Provider } from "../../providers/interface.ts";
import { createHttpClient } from "../../providers/transport/http-client.ts";
import type { HttpClient } from "../../providers/transport/provider-response.ts";
import { createSandboxProvider } from "../../sandbox/chat-provider.ts";
import { SandboxFineTuning } from "../../sandbox/tuning/fine-tuning-provider.ts";
import { SandboxTunedModels } from "../../sandbox/tuning/tuned-models.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";

/**
 * Composes the providers and models that are in force, their search, the providers' own lists, which add new models,
 * and the BYOK keys of organizations.
 */
export async function composeModels(base: Base, workThread: FairWorkThread) {
  const { config, sql, background, changes, clock, providerFactories, telemetry } = base;
  const httpClient = createHttpClient({ clock, proxies: config.proxies });
  const tunedModels = new SandboxTunedModels(sql);
  const sandboxDependencies = { sql: background, workThread, clock, tunedModels };
  const sandbox = {
    ...createSandboxProvider(sandboxDependencies),
    train: new SandboxFineTuning(sandboxDependencies),
  };
  const shared = {
    workThread,
    clock,
    httpClient,
    providerFactories: { sandbox: () => sandbox, ...providerFactories },
  };
  const live = new LiveConfiguration({
    ...{ ...base, base: config, shared },
    connectTimeoutMs: config.upstreamTimeouts.connectMs,
    builtIn: memoised((typeName) => builtInModels(typeName, new Date())),
    onReport: (report) => logReport(telemetry.log, report),
  });
  const modelLists = await composeModelLists(base, live, httpClient);
  await live.open(modelLists.lists);
  changes.on("configuration", () => live.follow());
  changes.onGap(() => live.follow());

  const guard = createEgressGuard(config);
  const byokProviders = new ByokProviders({ settings: () => live.settings, shared, clock, guard });
  const byokKeys = new ByokKeys({ ...base, byokProviders });
  changes.invalidate("provider-keys", byokKeys);
  live.onChanged((changed) => {
    if (changed.length > 0) byokKeys.forgetAll();
  });
  const definitions = new DefinitionCache(base.read);
  changes.invalidate("definitions", definitions);
  return {
    ...{ httpClient, byokKeys, definitions, live, modelLists },
    models: live.views,
    providers: live.providers,
    providerKeys: new ProviderKeys({ ...base, guard, byokProviders, byokKeys }),
  };
}

export type ModelParts = Awaited<ReturnType<typeof composeModels>>;

/** Composes the reading of the providers' own lists of models. */
async function composeModelLists(base: Base, live: LiveConfiguration, httpClient: HttpClient) {
  const { config, telemetry, clock, onError } = base;
  const providers = () => live.config.providers.filter(({ type }) => requestsModelList(type));
  const isEnabled = config.modelListsSeconds > 0;
  const saved = isEnabled
    ? await readStoredLists(config.dataDir, providers(), clock.nowMs())
    : new Map();
  const lists = new ProvidersModelLists({
    providers,
    clock,
    intervalMs: config.modelListsSeconds * 1_000,
    random: Math.random,
    readList: (provider) => askModelList(httpClient, provider),
    saved,
    save: (read) => storeLists(config.dataDir, providers(), read),
    onChanged: (discovered) => live.replaceLists(discovered),
    onUnanswered: ({ id }, reason) =>
      telemetry.log.warn({ provider: id }, `provider ${id} does not list its models: ${reason}`),
    onError,
  });
  let isStarted = false;
  live.onChanged((changed) => {
    if (!isEnabled || !isStarted) return;
    for (const id of changed) {
      lists.forget(id);
      lists.readAgain(id);
    }
  });
  return {
    lists: lists.lists,
    /** Reads the list of a provider that answers again. */
    readAgain(providerId: string): void {
      if (isEnabled) lists.readAgain(providerId);
    },
    start(): void {
      isStarted = true;
      if (isEnabled) lists.start();
    },
    stop(): void {
      lists.stop();
      live.stop();
    },
  };
}

/** Composes the measurements of providers by this instance's calls, and their record in the database. */
export function composeHealth(
  base: Base,
  { models, providers }: ModelParts,
  { endpoints }: { readonly endpoints: EndpointActors },
) {
  const instanceId = base.instance.id;
  const health = new ProviderHealth({ instanceId, models, providers, endpoints });
  return { health, healthRecorder: new HealthRecorder({ ...base, health, instanceId }) };
}

/** Composes the checks of the operator's own servers. */
export function composeHealthChecks(
  base: Base,
  { membership }: ClusterNode,
  { live, modelLists }: ModelParts,
): HealthChecks {
  const servers = (): ReadonlyMap<string, Provider> =>
    new Map(
      live.config.providers.filter(isLocalServer).flatMap(({ id }) => {
        const provider = live.providers.get(id);
        return provider === undefined ? [] : [[id, provider] as const];
      }),
    );
  return new HealthChecks({
    ...base,
    providers: servers,
    intervalMs: base.config.healthCheckSeconds * 1_000,
    isReporter: () => membership.peers().rank === 0,
    onRecovered: (providerId) => modelLists.readAgain(providerId),
  });
}

function memoised<Value>(make: (key: string) => Promise<Value>): (key: string) => Promise<Value> {
  const made = new Map<string, Promise<Value>>();
  return (key) => {
    const value = made.get(key) ?? make(key);
    made.set(key, value);
    return value;
  };
}

function logReport(log: Telemetry["log"], report: ProviderReport): void {
  const { provider, models, leftOut, reason } = report;
  const fields = { provider, models, left_out: leftOut.length };
  if (reason === undefined) log.info(fields, `provider ${provider} offers ${models} models`);
  else log.warn(fields, `provider ${provider} offers no models: ${reason}`);
}
