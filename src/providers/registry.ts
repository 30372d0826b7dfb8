import type { Clock } from "../lib/clock.ts";
import type { FairWorkThread } from "../lib/work-thread.ts";
import { type ProviderType, providerType } from "../platform/config/provider-types.ts";
import { MessageBatches } from "./anthropic/batches/message-batches.ts";
import { createAnthropicProvider } from "./anthropic/chat-provider.ts";
import { withAudioFields } from "./audio/fields.ts";
import { createAzureProvider } from "./azure/azure-provider.ts";
import type { BatchInterface, ProviderBatches } from "./batches.ts";
import { createBedrockProvider } from "./bedrock/bedrock-provider.ts";
import { createBflProvider } from "./bfl/bfl-provider.ts";
import { createCohereProvider } from "./cohere/cohere-provider.ts";
import { createDeepgramProvider } from "./deepgram/deepgram-provider.ts";
import { createElevenLabsProvider } from "./elevenlabs/elevenlabs-provider.ts";
import { createFalProvider } from "./fal/fal-provider.ts";
import type { FineTuningProvider } from "./fine-tuning.ts";
import { createGeminiProvider } from "./gemini/gemini-provider.ts";
import { imageFieldsOf, makesImages } from "./image-fields.ts";
import type { ModelCall, Provider, ProviderSettings } from "./interface.ts";
import { mistralAudio } from "./mistral/audio.ts";
import { MistralBatches } from "./mistral/batches.ts";
import { createOllamaProvider } from "./ollama/ollama-provider.ts";
import { OpenAiBatches } from "./openai/batches/openai-batches.ts";
import { createOpenAiProvider, requestHeaders } from "./openai/chat/chat-provider.ts";
import { OpenAiFineTuning } from "./openai/fine-tuning-provider.ts";
import { openAiVariant, takesItems } from "./openai/openai-variants.ts";
import { answeringClient, recordedRequest } from "./recorded-calls.ts";
import { createStabilityProvider } from "./stability/stability-provider.ts";
import { failureOfThrown } from "./transport/call-failures.ts";
import { configuredClient } from "./transport/configured-client.ts";
import { checkKeyByModelList } from "./transport/key-check.ts";
import type { HttpClient } from "./transport/provider-response.ts";
import { endpointUrl } from "./transport/request-head.ts";
import { createVertexProvider } from "./vertex/vertex-provider.ts";
import { xaiAudio } from "./xai/audio.ts";

export interface ProviderDependencies {
  readonly clock: Clock;
  /** Runs work that would block the event loop for too long. */
  readonly workThread: Pick<FairWorkThread, "call">;
  /** The HTTP client that all providers share. */
  readonly httpClient: HttpClient;
  /**
   * Factories by provider type. They replace the built-in ones. The sandbox has no built-in factory, because its folder
   * imports this one.
   */
  readonly providerFactories: Readonly<Record<string, ProviderFactory>>;
}

/** Creates the capabilities of a provider that speaks one API. */
export type ProviderFactory = (
  settings: ProviderSettings,
  dependencies: ProviderDependencies,
) => Provider;

/** Audio capabilities of provider types whose chats use OpenAI's API, but whose audio does not. */
const AUDIO_FACTORIES: Readonly<
  Record<
    string,
    (settings: ProviderSettings, dependencies: ProviderDependencies) => Partial<Provider>
  >
> = { mistral: mistralAudio, xai: xaiAudio };

/** Batch APIs, by `batches` of the provider's type. */
const BATCHES: Readonly<
  Record<
    NonNullable<ProviderType["batches"]>,
    (settings: ProviderSettings, dependencies: ProviderDependencies) => BatchInterface
  >
> = {
  anthropic: (settings, dependencies) => new MessageBatches(settings, dependencies),
  mistral: (settings, dependencies) => new MistralBatches(settings, dependencies),
  openai: (settings, dependencies) => new OpenAiBatches(settings, dependencies),
};

const PROVIDER_FACTORIES: Readonly<
  Record<Exclude<ProviderType["wire"], "sandbox">, ProviderFactory>
> = {
  anthropic: createAnthropicProvider,
  azure: createAzureProvider,
  bedrock: createBedrockProvider,
  bfl: createBflProvider,
  cohere: createCohereProvider,
  deepgram: createDeepgramProvider,
  elevenlabs: createElevenLabsProvider,
  fal: createFalProvider,
  gemini: createGeminiProvider,
  ollama: createOllamaProvider,
  openai(settings, dependencies) {
    const provider = createOpenAiProvider(settings, dependencies);
    // Other providers with OpenAI's API are not known to train models.
    const trains = providerType(settings.type)?.trains === true;
    return {
      fields: provider.fields,
      // The usage of other types is not known to count audio tokens.
      ...(settings.type === "openai" && {
        metersMedia: true as const,
        takesItems: (model: string, modelId?: string) => takesItems("openai", model, modelId),
      }),
      chat: (call) => provider.chat(call),
      embed: provider.embed,
      moderate: provider.moderate,
      rerank: provider.rerank,
      speak: provider.speak,
      transcribe: provider.transcribe,
      ...(makesImages(settings.type) && {
        image: provider.image,
        imageFields: imageFieldsOf(settings.type),
      }),
      checkKey: () =>
        checkKeyByModelList(
          dependencies.httpClient,
          endpointUrl(settings.baseUrl, "/models"),
          requestHeaders(settings, openAiVariant(settings.type)),
        ),
      ...AUDIO_FACTORIES[settings.type]?.(settings, dependencies),
      ...(trains && { train: new OpenAiFineTuning(settings, dependencies) }),
    };
  },
  stability: createStabilityProvider,
  vertex: createVertexProvider,
};

/**
 * Builds the providers of a configuration, by id. Throws an Error with one line that names the provider if its type is
 * unknown, its id is used twice, or its key cannot be sent.
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
    const create = dependencies.providerFactories[entry.type] ?? builtInFactory(type);
    providers.set(entry.id, withKeys(create, entry, dependencies));
  }
  return providers;
}

function builtInFactory({ wire }: ProviderType): ProviderFactory {
  if (wire === "sandbox") throw new Error("no factory for the sandbox was passed in");
  return PROVIDER_FACTORIES[wire];
}

function withKeys(
  create: ProviderFactory,
  entry: ProviderSettings,
  dependencies: ProviderDependencies,
): Provider {
  const { apiKeys = [], collectsNoData = false, maxParallelRequests } = entry;
  const client = configuredClient(dependencies.httpClient, entry);
  const ofProvider = { ...dependencies, httpClient: client };
  const ofKey = (apiKey: string | undefined): Provider => {
    const settings = { ...entry, apiKey };
    const make = (httpClient: HttpClient): Provider => ({
      ...reportingFailures(
        withAudioFields(entry.type, create(settings, { ...ofProvider, httpClient })),
      ),
      collectsNoData,
      ...(maxParallelRequests !== undefined && { maxParallelRequests }),
    });
    const batches = batchesOf(settings, ofProvider, make);
    return { ...make(client), ...(batches !== undefined && { batches }) };
  };
  const first = ofKey(entry.apiKey);
  if (apiKeys.length < 2) return first;
  const keys = apiKeys.map(({ key, weight }, at) => ({
    name: String(at + 1),
    weight,
    provider: at === 0 ? first : ofKey(key),
  }));
  return { ...first, keys };
}

type Sending = {
  [Name in keyof Provider]-?: NonNullable<Provider[Name]> extends (call: never) => Promise<unknown>
    ? Name
    : never;
}[keyof Provider];

/** Calls of these capabilities may throw anything. Chats and checks of keys report their failures themselves. */
const REPORTED: Readonly<Record<Exclude<Sending, "chat" | "checkKey">, true>> = {
  embed: true,
  moderate: true,
  rerank: true,
  speak: true,
  transcribe: true,
  image: true,
};

/** Returns the provider with calls that reject with ProviderFailure, or GatewayError, only. */
function reportingFailures(provider: Provider): Provider {
  const reporting: Record<string, unknown> = {};
  for (const name of Object.keys(REPORTED) as (keyof typeof REPORTED)[]) {
    const send = provider[name] as ((call: ModelCall) => Promise<unknown>) | undefined;
    if (send === undefined) continue;
    reporting[name] = async (call: ModelCall) => {
      try {
        return await send(call);
      } catch (error) {
        throw failureOfThrown(error, call.abortNotice ?? call.signal);
      }
    };
  }
  return { ...provider, ...reporting };
}

function batchesOf(
  settings: ProviderSettings,
  dependencies: ProviderDependencies,
  make: (httpClient: HttpClient) => Provider,
): ProviderBatches | undefined {
  const { type, batchPriceShare: priceShare, byokKey } = settings;
  const name = providerType(type)?.batches;
  // It is unknown which APIs a server at an organization's own address has.
  const isKnown = byokKey === undefined || byokKey.atOperatorsAddress;
  if (name === undefined || priceShare === undefined || !isKnown) return undefined;
  const batches = BATCHES[name](settings, dependencies);
  return {
    priceShare,
    limits: batches.limits,
    groupOf: (request) => batches.groupOf(request),
    create: (batch, signal) => batches.create(batch, signal),
    find: (search, signal) => batches.find(search, signal),
    readState: (batchId, signal) => batches.readState(batchId, signal),
    results: (batch, signal) => batches.results(batch, signal),
    cancel: (batchId, signal) => batches.cancel(batchId, signal),
    remove: (batchId, signal) => batches.remove(batchId, signal),
    request: (call) => recordedRequest(make, batches, call),
    answering: (answer) => make(answeringClient(answer)),
  };
}

/** The providers that currently train models, by id. */
export type Trainers = Pick<ReadonlyMap<string, FineTuningProvider>, "get" | "has">;

/** Returns the providers that train models, also those that are added later. */
export function trainersOf(providers: ReadonlyMap<string, Provider>): Trainers {
  return {
    get: (id) => providers.get(id)?.train,
    has: (id) => providers.get(id)?.train !== undefined,
  };
}
