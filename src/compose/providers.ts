import { isLocalServer } from "../config/local-server.ts";
import type { FairWorkThread } from "../lib/work-thread.ts";
import { createProviders } from "../providers/registry.ts";
import { SandboxTunedModels } from "../providers/sandbox/tuning/tuned-models.ts";
import { createHttpClient } from "../providers/transport/http-client.ts";
import type { Base } from "./base.ts";

/** The configured providers, and the HTTP client that they share. */
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
  return { httpClient, providers: createProviders(settings, shared) };
}
