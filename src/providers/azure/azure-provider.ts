import { chatFieldsOf } from "../chat-fields.ts";
import { ByToken, withKey } from "../credentials/by-token.ts";
import { imageFieldsOf } from "../image-fields.ts";
import type { ChatCall, ModelCall, Provider, ProviderSettings } from "../interface.ts";
import {
  createOpenAiProvider,
  type OpenAiDependencies,
  type OpenAiProvider,
  requestHeaders,
} from "../openai/chat/chat-provider.ts";
import { openAiVariant, speaksResponses, takesItems } from "../openai/openai-variants.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { type AzureAddress, azureAddress } from "./address.ts";
import { entraTokens } from "./entra-credentials.ts";

/** Maximum number of cached deployments: more than a resource has. Beyond it the oldest entry is removed. */
const MAX_DEPLOYMENTS = 1_000;
const KEY_CHECK_TIMEOUT_MS = 10_000;

type AzureDependencies = OpenAiDependencies & Required<Pick<OpenAiDependencies, "httpClient">>;

/**
 * Returns a provider of Azure OpenAI: OpenAI's API at the URLs of deployments, with an API key or Entra ID
 * tokens. Throws an Error of one line if the credentials cannot be used.
 */
export function createAzureProvider(
  settings: ProviderSettings,
  dependencies: AzureDependencies,
): Provider {
  const address = azureAddress(settings.baseUrl, settings.apiVersion);
  const tokens = entraTokens(settings, dependencies);
  const clientsWith = (key: string | undefined, keyIsToken?: true) =>
    new AzureClients({ ...settings, apiKey: key, keyIsToken }, address, dependencies);
  const clients =
    tokens === undefined
      ? withKey(clientsWith(settings.apiKey))
      : new ByToken(tokens, (token) => clientsWith(token, true));
  return {
    fields: chatFieldsOf(settings.type),
    metersMedia: true,
    takesItems: (model, modelId) => takesItems(settings.type, model, modelId),
    chat: (call) => clients.call(signalOf(call), (client) => client.chatClient(call).chat(call)),
    embed: (call) => clients.call(signalOf(call), (client) => client.of(call.model).embed(call)),
    image: (call) => clients.call(signalOf(call), (client) => client.of(call.model).image(call)),
    imageFields: imageFieldsOf(settings.type),
    speak: (call) => clients.call(signalOf(call), (client) => client.of(call.model).speak(call)),
    transcribe: (call) =>
      clients.call(signalOf(call), (client) => client.of(call.model).transcribe(call)),
    checkKey: () =>
      clients.call(AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS), (client) => client.checkKey()),
  };
}

function signalOf(call: ModelCall) {
  return call.abortNotice ?? call.signal;
}

/** Clients of the resource's deployments for one key or token. */
class AzureClients {
  readonly #settings: ProviderSettings;
  readonly #address: AzureAddress;
  readonly #dependencies: AzureDependencies;
  readonly #byDeployment = new Map<string, OpenAiProvider>();
  readonly #shared: OpenAiProvider | undefined;
  #root: OpenAiProvider | undefined;

  constructor(settings: ProviderSettings, address: AzureAddress, dependencies: AzureDependencies) {
    this.#settings = settings;
    this.#address = address;
    this.#dependencies = dependencies;
    // Throws if the key cannot be sent, so that the gateway fails at its start and not at the first call.
    requestHeaders(settings, openAiVariant(settings.type));
    if (address.ofDeployment === undefined) this.#shared = this.#at(address.root);
  }

  /**
   * Returns the client for a chat. The Responses API has no deployment URLs: it takes the deployment's name
   * in the body.
   */
  chatClient(call: ChatCall): OpenAiProvider {
    if (!speaksResponses(this.#settings.type, call)) return this.of(call.model);
    this.#root ??= this.#shared ?? this.#at(this.#address.root);
    return this.#root;
  }

  of(deployment: string): OpenAiProvider {
    const existing = this.#shared ?? this.#byDeployment.get(deployment);
    if (existing !== undefined) return existing;
    const created = this.#at(this.#address.ofDeployment!(deployment));
    this.#byDeployment.set(deployment, created);
    if (this.#byDeployment.size > MAX_DEPLOYMENTS) {
      const [first] = this.#byDeployment.keys();
      this.#byDeployment.delete(first!);
    }
    return created;
  }

  checkKey(): Promise<void> {
    const { httpClient } = this.#dependencies;
    const headers = requestHeaders(this.#settings, openAiVariant(this.#settings.type));
    return checkKeyByModelList(httpClient, endpointUrl(this.#address.root, "/models"), headers);
  }

  #at(baseUrl: string): OpenAiProvider {
    return createOpenAiProvider({ ...this.#settings, baseUrl }, this.#dependencies);
  }
}
