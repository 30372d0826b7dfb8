import { createFineTuningProviders, createProviders } from "../providers/registry.ts";
import { SandboxTunedModels } from "../providers/sandbox/tuning/tuned-models.ts";
import { createHttpClient } from "../providers/transport/http-client.ts";
import type { Base } from "./base.ts";

/** The configured providers, for calls and for trainings, and the HTTP client that they share. */
export function composeProviders({ config, sql, background, clock }: Base) {
  const httpClient = createHttpClient({ clock, proxies: config.proxies });
  const settings = config.providers.map((provider) => ({
    ...provider,
    apiKey: provider.apiKey,
    connectTimeoutMs: config.upstreamTimeouts.connectMs,
  }));
  const shared = { clock, httpClient, tunedModels: new SandboxTunedModels(sql) };
  return {
    httpClient,
    calls: createProviders(settings, shared),
    fineTuning: createFineTuningProviders(settings, { ...shared, sql: background }),
  };
}
