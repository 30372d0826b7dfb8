import { type ProviderType, providerType } from "../config/provider-types.ts";
import { createAnthropicProvider } from "./anthropic/chat-provider.ts";
import type { FineTuningProvider } from "./fine-tuning.ts";
import { createGeminiProvider } from "./gemini/gemini-provider.ts";
import type { Provider, ProviderSettings } from "./interface.ts";
import { createOpenAiProvider, requestHeaders } from "./openai/chat/chat-provider.ts";
import { OpenAiFineTuning } from "./openai/fine-tuning-provider.ts";
import { wireDialect } from "./openai/wire-dialects.ts";
import { createSandboxProvider } from "./sandbox/chat-provider.ts";
import {
  SandboxFineTuning,
  type SandboxTuningDependencies,
} from "./sandbox/tuning/fine-tuning-provider.ts";
import { checkKeyByModelList } from "./transport/key-check.ts";
import type { HttpClient } from "./transport/provider-response.ts";
import { endpointUrl } from "./transport/request-head.ts";

export interface ProviderDependencies extends SandboxTuningDependencies {
  /** Shared between providers. */
  readonly httpClient: HttpClient;
  /** By provider type, wire formats that stand in the place of the built-in one. */
  readonly wires?: Readonly<Record<string, Wire>> | undefined;
}

/** A wire format: makes the capabilities of a provider that speaks it. */
export type Wire = (settings: ProviderSettings, dependencies: ProviderDependencies) => Provider;

const WIRES: Readonly<Record<ProviderType["wire"], Wire>> = {
  anthropic: createAnthropicProvider,
  gemini: createGeminiProvider,
  openai(settings, dependencies) {
    const provider = createOpenAiProvider(settings, dependencies);
    // What others of the wire format answer to training is not known.
    const trains = providerType(settings.type)?.trains === true;
    return {
      fields: provider.fields,
      chat: (call) => provider.chat(call),
      embed: provider.embed,
      checkKey: () =>
        checkKeyByModelList(
          dependencies.httpClient,
          endpointUrl(settings.baseUrl, "/models"),
          requestHeaders(settings, wireDialect(settings.type)),
        ),
      ...(trains && { train: new OpenAiFineTuning(settings, dependencies) }),
    };
  },
  sandbox(_settings, dependencies) {
    return { ...createSandboxProvider(dependencies), train: new SandboxFineTuning(dependencies) };
  },
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
  for (const entry of settings) {
    const type = providerType(entry.type);
    if (type === undefined) {
      throw new Error(`provider "${entry.id}" has the unknown type "${entry.type}"`);
    }
    if (providers.has(entry.id)) throw new Error(`two providers have the id "${entry.id}"`);
    const wire = dependencies.wires?.[entry.type] ?? WIRES[type.wire];
    providers.set(entry.id, withKeys(wire, entry, dependencies));
  }
  return providers;
}

function withKeys(
  wire: Wire,
  entry: ProviderSettings,
  dependencies: ProviderDependencies,
): Provider {
  const { apiKeys = [], collectsNoData = false } = entry;
  const ofKey = (apiKey: string | undefined): Provider => ({
    ...wire({ ...entry, apiKey }, dependencies),
    collectsNoData,
  });
  const first = ofKey(entry.apiKey);
  if (apiKeys.length < 2) return first;
  const keys = apiKeys.map(({ key, weight }, at) => ({
    name: String(at + 1),
    weight,
    provider: at === 0 ? first : ofKey(key),
  }));
  return { ...first, keys };
}

/** The providers that train models, by id. */
export function trainersOf(
  providers: ReadonlyMap<string, Provider>,
): Map<string, FineTuningProvider> {
  const trainers = new Map<string, FineTuningProvider>();
  for (const [id, { train }] of providers) if (train !== undefined) trainers.set(id, train);
  return trainers;
}
