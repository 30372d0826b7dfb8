import { ProviderKeys } from "../../accounts/provider-keys/provider-keys.ts";
import { ByokKeys } from "../../inference/call/routing/byok-keys.ts";
import { ByokProviders } from "../../inference/call/routing/byok-providers.ts";
import { HealthChecks } from "../../inference/call/routing/health-checks.ts";
import { DefinitionCache } from "../../inference/definitions/definition-cache.ts";
import { publishSearch } from "../../inference/models/model-catalogue.ts";
import { ProvidersModelLists } from "../../inference/models/model-lists.ts";
import type { FairWorkThread } from "../../lib/work-thread.ts";
import { requestsModelList } from "../../platform/config/provider-types.ts";
import { isLocalServer } from "../../platform/config/providers.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { askModelList } from "../../providers/catalogue/ask-model-list.ts";
import {
  buildCatalogue,
  type Catalogue,
  type ProviderReport,
} from "../../providers/catalogue/build-catalogue.ts";
import { createModelIndex, replaceModels } from "../../providers/catalogue/model-index.ts";
import {
  type ModelLists,
  readStoredLists,
  storeLists,
} from "../../providers/catalogue/model-list-cache.ts";
import { builtInModels } from "../../providers/catalogue/provider-models.ts";
import { createProviders } from "../../providers/registry.ts";
import { createHttpClient } from "../../providers/transport/http-client.ts";
import { createSandboxProvider } from "../../sandbox/chat-provider.ts";
import { SandboxFineTuning } from "../../sandbox/tuning/fine-tuning-provider.ts";
import { SandboxTunedModels } from "../../sandbox/tuning/tuned-models.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";

/** Composes the configured providers, their shared HTTP client, and the BYOK keys of organizations. */
export function composeProviders(base: Base, workThread: FairWorkThread) {
  const { config, sql, background, changes, clock, providerFactories } = base;
  const httpClient = createHttpClient({ clock, proxies: config.proxies });
  const settings = config.providers.map((provider) => ({
    ...provider,
    apiKey: provider.apiKey,
    collectsNoData:
      provider.collectsNoData ?? (provider.type === "sandbox" || isLocalServer(provider)),
    connectTimeoutMs: config.upstreamTimeouts.connectMs,
  }));
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
  const guard = createEgressGuard(config);
  const byokProviders = new ByokProviders({ settings, shared, clock, guard });
  const byokKeys = new ByokKeys({ ...base, byokProviders });
  changes.invalidate("provider-keys", byokKeys);
  const providerKeys = new ProviderKeys({ ...base, guard, byokProviders, byokKeys });
  const providers = createProviders(settings, shared);
  const definitions = new DefinitionCache(base.read);
  changes.invalidate("definitions", definitions);
  return { httpClient, byokKeys, providerKeys, definitions, providers };
}

export type ProviderParts = ReturnType<typeof composeProviders>;

/** Composes the offered models, their search, and the providers' own lists, which add new models. */
export async function composeModels(base: Base, { httpClient }: ProviderParts) {
  const { config, background: sql, telemetry, clock, onError } = base;
  const listingProviders = config.providers.filter(({ type }) => requestsModelList(type));
  const savedLists =
    config.modelListsSeconds === 0
      ? new Map()
      : await readStoredLists(config.dataDir, listingProviders, clock.nowMs());
  const builtIn = memoised((typeName) => builtInModels(typeName, new Date()));
  const build = (discovered: ModelLists): Promise<Catalogue> => {
    const { providers, models, sandbox } = config;
    return buildCatalogue({ providers, models, sandbox, now: new Date(), discovered, builtIn });
  };
  const lists = new ProvidersModelLists({
    providers: listingProviders,
    clock,
    intervalMs: config.modelListsSeconds * 1_000,
    random: Math.random,
    readList: (provider) => askModelList(httpClient, provider),
    saved: savedLists,
    save: (read) => storeLists(config.dataDir, listingProviders, read),
    async onChanged(discovered) {
      const catalogue = await build(discovered);
      for (const report of catalogue.reports) logReport(telemetry.log, report);
      const next = createModelIndex(catalogue);
      // First, so that a search finds the listed models.
      await publishSearch(sql, next).finally(() => replaceModels(index, next));
    },
    onUnanswered: ({ id }, reason) =>
      telemetry.log.warn({ provider: id }, `provider ${id} does not list its models: ${reason}`),
    onError,
  });
  const catalogue = await build(lists.lists);
  for (const report of catalogue.reports) logReport(telemetry.log, report);
  const index = createModelIndex(catalogue);
  await publishSearch(sql, index);
  return {
    models: index,
    modelLists: {
      /** Reads the list of a provider that answers again. */
      readAgain(providerId: string): void {
        if (config.modelListsSeconds > 0) lists.readAgain(providerId);
      },
      start(): void {
        if (config.modelListsSeconds > 0) lists.start();
      },
      stop: () => lists.stop(),
    },
  };
}

/** Composes the checks of the operator's own servers. */
export function composeHealthChecks(
  base: Base,
  { membership }: ClusterNode,
  { providers }: ProviderParts,
  modelLists: { readAgain(providerId: string): void },
): HealthChecks {
  const { config } = base;
  const localServerIds = config.providers.filter(isLocalServer).map(({ id }) => id);
  return new HealthChecks({
    ...base,
    providers: new Map(localServerIds.map((id) => [id, providers.get(id)!])),
    intervalMs: config.healthCheckSeconds * 1_000,
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
