import { type ProviderType, providerType } from "../config/provider-types.ts";
import type { FineTuningProvider } from "./fine-tuning.ts";
import type { Provider, ProviderSettings } from "./interface.ts";
import { createOpenAiProvider, type OpenAiDependencies } from "./openai/chat/chat-provider.ts";
import { OpenAiFineTuning } from "./openai/fine-tuning-provider.ts";
import { createSandboxProvider, type SandboxDependencies } from "./sandbox/chat-provider.ts";
import {
  SandboxFineTuning,
  type SandboxTuningDependencies,
} from "./sandbox/tuning/fine-tuning-provider.ts";
import { createHttpClient } from "./transport/http-client.ts";
import type { HttpClient } from "./transport/provider-response.ts";

export type ProviderDependencies = OpenAiDependencies & SandboxDependencies;

type ProviderFactory = (settings: ProviderSettings, dependencies: ProviderDependencies) => Provider;

/** The adapter of each wire format. */
const factories: Readonly<Record<ProviderType["wire"], ProviderFactory>> = {
  openai: createOpenAiProvider,
  sandbox: (_settings, dependencies) => createSandboxProvider(dependencies),
};

/**
 * Builds the providers of a configuration, by id. Throws an Error with one line that names the
 * provider when its type is unknown, its id is taken, or its key cannot be sent.
 */
export function createProviders(
  settings: readonly ProviderSettings[],
  dependencies: ProviderDependencies,
): Map<string, Provider> {
  const providers = new Map<string, Provider>();
  const { clock, httpClient = createHttpClient({ clock }) } = dependencies;
  for (const entry of settings) {
    const type = providerType(entry.type);
    if (type === undefined) {
      throw new Error(`provider "${entry.id}" has the unknown type "${entry.type}"`);
    }
    if (providers.has(entry.id)) throw new Error(`two providers have the id "${entry.id}"`);
    providers.set(entry.id, factories[type.wire](entry, { ...dependencies, httpClient }));
  }
  return providers;
}

/** Those of the providers that train models, by id: what others of the wire format would answer is not known. */
export function createFineTuningProviders(
  settings: readonly ProviderSettings[],
  dependencies: SandboxTuningDependencies & { readonly httpClient: HttpClient },
): Map<string, FineTuningProvider> {
  const providers = new Map<string, FineTuningProvider>();
  for (const entry of settings) {
    const type = providerType(entry.type);
    if (type?.trains !== true) continue;
    const isSandbox = type.wire === "sandbox";
    const provider = isSandbox
      ? new SandboxFineTuning(dependencies)
      : new OpenAiFineTuning(entry, dependencies);
    providers.set(entry.id, provider);
  }
  return providers;
}
