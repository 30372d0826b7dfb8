import type { ProviderHealth } from "../../inference/call/routing/provider-health.ts";
import type { LiveConfiguration } from "../../inference/models/live-configuration.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import type { StoredKind } from "../../platform/config/stored.ts";
import { describeModelDetail } from "../../providers/catalogue/describe-model.ts";
import { prefixOf } from "../provider-keys/provider-keys.ts";
import { maskedValues } from "./entry-secrets.ts";

/** The origin of an entry. */
export type EntryOrigin = "environment" | "file" | "stored" | "built_in" | "provider_list";

/** A provider, model, alias or price that is in force, without its secrets. */
export interface ConfiguredEntry {
  readonly id: string;
  readonly source: EntryOrigin;
  /** 0 if the entry is not stored. */
  readonly version: number;
  /** Milliseconds since the epoch. Null if the entry is not stored. */
  readonly updatedAtMs: number | null;
}

/** Returns the entries of a kind that are in force, in the order in which they are configured. */
export function effectiveEntries(
  kind: StoredKind,
  live: LiveConfiguration,
  health: ProviderHealth,
): ConfiguredEntry[] {
  const stored = new Map(
    live.entries.filter((entry) => entry.kind === kind).map((entry) => [entry.id, entry]),
  );
  const reports = new Map(health.report().data.map((report) => [report.id, report]));
  const healthOf = (id: string) => {
    const { models = 0, status = "ok", endpoints = [] } = reports.get(id) ?? {};
    return { models, status, endpoints, health: live.isUnreachable(id) ? "unreachable" : status };
  };
  return inForce(kind, live).map(({ id, source, members }) => {
    const entry = stored.get(id);
    return {
      ...(entry === undefined ? members : { id, ...entry.body }),
      ...(entry !== undefined && kind === "model" && { effective: members }),
      id,
      ...(kind === "provider" && healthOf(id)),
      source: entry === undefined ? source : "stored",
      version: entry?.version ?? 0,
      updatedAtMs: entry?.updatedAtMs ?? null,
    };
  });
}

interface EntryInForce {
  readonly id: string;
  readonly source: EntryOrigin;
  readonly members: object;
}

function inForce(kind: StoredKind, live: LiveConfiguration): EntryInForce[] {
  const { config, views } = live;
  if (kind === "provider") {
    return config.providers.map((provider) => ({
      id: provider.id,
      source: live.originOf(provider.id),
      members: providerMembers(provider),
    }));
  }
  if (kind === "model") {
    const configured = new Map(config.models.map((entry) => [entry.id, entry]));
    return views.all.all().map((model) => {
      const entry = configured.get(model.id);
      const { organizations } = entry ?? {};
      return {
        id: model.id,
        source: entry === undefined ? originOfModel(model) : ("file" as const),
        members: { ...describeModelDetail(model), ...(organizations && { organizations }) },
      };
    });
  }
  const entries = kind === "alias" ? config.aliases : config.prices;
  return entries.map(({ source: _, isStored: __, ...members }) => ({
    id: members.id,
    source: "file",
    members,
  }));
}

/** Returns the settings of a provider of the environment or the file that can be shown. */
function providerMembers(provider: ProviderConfig): object {
  const { id, type, baseUrl, apiKey, apiKeys, collectsNoData } = provider;
  return {
    ...{ id, type, base_url: baseUrl },
    ...(apiKey !== undefined && apiKeys === undefined && { key_prefix: prefixOf(apiKey) }),
    ...(apiKeys !== undefined && {
      api_keys: apiKeys.map(({ key, weight }) => ({ key_prefix: prefixOf(key), weight })),
    }),
    ...(collectsNoData !== undefined && { data_collection: collectsNoData ? "deny" : "allow" }),
    ...(provider.maxParallelRequests !== undefined && {
      max_parallel_requests: provider.maxParallelRequests,
    }),
    ...(provider.headers !== undefined && { headers: maskedValues(provider.headers) }),
    ...(provider.proxy !== undefined && {
      proxy: `http://${provider.proxy.hostname}:${provider.proxy.port}`,
    }),
    ...(provider.organizations !== undefined && { organizations: provider.organizations }),
  };
}

function originOfModel({ priceSource }: CatalogueModel): EntryOrigin {
  return priceSource === "provider_list" ? "provider_list" : "built_in";
}
