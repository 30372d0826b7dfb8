import { OwnKeys } from "../calls/routing/own-keys.ts";
import { OwnProviders } from "../calls/routing/own-providers.ts";
import { isLocalServer } from "../config/local-server.ts";
import { EgressGuard } from "../egress/guard.ts";
import { systemResolve } from "../egress/resolve.ts";
import type { FairWorkThread } from "../lib/work-thread.ts";
import { ProviderKeys } from "../provider-keys/provider-keys.ts";
import { createProviders } from "../providers/registry.ts";
import { SandboxTunedModels } from "../providers/sandbox/tuning/tuned-models.ts";
import { createHttpClient } from "../providers/transport/http-client.ts";
import type { Base } from "./base.ts";

/** The configured providers, the HTTP client that they share, and the keys that organizations bring for them. */
export function composeProviders(base: Base, workThread: FairWorkThread) {
  const { config, sql, background, clock, wires } = base;
  const httpClient = createHttpClient({ clock, proxies: config.proxies });
  const settings = config.providers.map((provider) => ({
    ...provider,
    apiKey: provider.apiKey,
    collectsNoData:
      provider.collectsNoData ?? (provider.type === "sandbox" || isLocalServer(provider)),
    connectTimeoutMs: config.upstreamTimeouts.connectMs,
  }));
  const tunedModels = new SandboxTunedModels(sql);
  const shared = { sql: background, workThread, clock, httpClient, tunedModels, wires };
  const guard = new EgressGuard({
    resolve: systemResolve,
    allowedCidrs: config.egressAllow,
    allowsHttp: config.webhookAllowHttp,
  });
  const ownProviders = new OwnProviders({ settings, shared, clock, guard });
  const ownKeys = new OwnKeys({ ...base, ownProviders });
  const providerKeys = new ProviderKeys({ ...base, guard, ownProviders, ownKeys });
  return { httpClient, ownKeys, providerKeys, providers: createProviders(settings, shared) };
}
