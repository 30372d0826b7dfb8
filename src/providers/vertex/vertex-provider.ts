import { MessagesChat, type MessagesPlatform } from "../anthropic/chat-provider.ts";
import { failureOfStatus } from "../anthropic/failure-mapping.ts";
import { MessagesPassThrough } from "../anthropic/pass-through.ts";
import { acceptsBetas } from "../anthropic/platform-betas.ts";
import { ByToken, withKey } from "../credentials/by-token.ts";
import { GeminiClient } from "../gemini/gemini-provider.ts";
import { geminiImages } from "../gemini/images.ts";
import { imageFieldsOf } from "../image-fields.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type EmbedCall,
  type Embeddings,
  type ModelCall,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../interface.ts";
import type { GeneratedImages, ImageCall } from "../media.ts";
import type { MessagesCall } from "../messages-provider.ts";
import { createOpenAiProvider } from "../openai/chat/chat-provider.ts";
import type { AnswerThread } from "../thread-work.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { vertexFields } from "./chat-fields.ts";
import { vertexEmbeddings } from "./embeddings.ts";
import { type GoogleAccess, type GoogleDependencies, googleAccess } from "./google-credentials.ts";
import { googleResource, publisherOf } from "./publisher.ts";
import { vertexBody } from "./request-body.ts";

/**
 * Anthropic's API version on this platform
 * (https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai).
 */
const CLAUDE_VERSION = "vertex-2023-10-16";
/** Model of the key check, which counts tokens. Counting is free and needs the same permission as calls. */
const CHECKED_MODEL = "gemini-2.5-flash";
const KEY_CHECK_TIMEOUT_MS = 10_000;
const NOT_FOUND = 404;

interface VertexDependencies extends GoogleDependencies {
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider of Google Cloud's Vertex AI. It calls Gemini's models by generateContent, Claude's by
 * rawPredict, and others with the OpenAI-compatible API. The base URL ends with the project and location, or,
 * for API keys of express mode, with the version. Throws an Error of one line if the credentials cannot be
 * used.
 */
export function createVertexProvider(
  settings: ProviderSettings,
  dependencies: VertexDependencies,
): Provider {
  const access = googleAccess(settings, dependencies);
  const baseUrl = baseUrlFor(settings, access);
  const clientsOf = (secret: string, headers: Readonly<Record<string, string>>) =>
    new VertexClients({ ...settings, baseUrl, apiKey: secret }, headers, dependencies);
  const clients =
    "tokens" in access
      ? new ByToken(access.tokens, (token) =>
          clientsOf(token, { authorization: `Bearer ${token}` }),
        )
      : withKey(clientsOf(access.apiKey, { "x-goog-api-key": access.apiKey }));
  return {
    fields: vertexFields(settings.type),
    needsOutputLimit: (model) => publisherOf(model) === "anthropic",
    metersCacheLifetimes: true,
    metersMedia: true,
    chat: (call) => clients.call(signalOf(call), (client) => client.chat(call)),
    messages: {
      platform: {
        serves: ({ model }) => publisherOf(model) === "anthropic",
        takesBeta: acceptsBetas(),
      },
      answer: (call) => clients.call(signalOf(call), (client) => client.passOn(call)),
    },
    embed: (call) => clients.call(signalOf(call), (client) => client.embed(call)),
    image: (call) => clients.call(signalOf(call), (client) => client.image(call)),
    imageFields: imageFieldsOf(settings.type),
    checkKey: () => {
      const signal = AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS);
      return clients.call(signal, (client) => client.check(signal));
    },
  };
}

/**
 * Returns the base URL for the credentials. An organization's key belongs to the organization's project. If
 * the organization has no base URL, the operator's is used: with the organization's project, or without a
 * project for an API key. Throws if the credentials have no project.
 */
function baseUrlFor({ id, baseUrl, byokKey }: ProviderSettings, access: GoogleAccess): string {
  if (byokKey?.atOperatorsAddress !== true) return baseUrl;
  if ("apiKey" in access) return baseUrl.replace(/\/projects\/.*$/, "");
  const { projectId } = access;
  if (projectId === undefined) {
    throw new Error(`the credentials of provider "${id}" contain no Google Cloud project`);
  }
  return baseUrl.replace(/\/projects\/[^/]+/, `/projects/${encodeURIComponent(projectId)}`);
}

function signalOf(call: ModelCall) {
  return call.abortNotice ?? call.signal;
}

/** Clients of Vertex AI's models for one token or key. */
class VertexClients {
  readonly #gemini: GeminiClient;
  readonly #claude: MessagesChat;
  readonly #claudePassed: MessagesPassThrough;
  readonly #others: Provider;

  /** @param settings failure messages must not quote its `apiKey` */
  constructor(
    settings: ProviderSettings & { readonly apiKey: string },
    authorization: Readonly<Record<string, string>>,
    dependencies: VertexDependencies,
  ) {
    assertKeyIsCarried(settings.id, settings.apiKey);
    const headers = {
      ...JSON_HEADERS,
      ...authorization,
    };
    this.#gemini = new GeminiClient(settings, dependencies, {
      headers,
      body: vertexBody,
      resourceOf: googleResource,
    });
    const models = endpointUrl(settings.baseUrl, "/publishers/anthropic/models/");
    const platform: MessagesPlatform = {
      url: ({ model, stream }) =>
        `${models}${pathSegment(model)}:${stream ? "streamRawPredict" : "rawPredict"}`,
      headers: { ...headers },
      versionInBody: CLAUDE_VERSION,
    };
    const wire = new HttpJsonProvider({
      ...{ ...dependencies, settings, failureOfStatus },
      headers: platform.headers,
    });
    this.#claude = new MessagesChat(wire, platform);
    this.#claudePassed = new MessagesPassThrough(wire, platform);
    const baseUrl = endpointUrl(settings.baseUrl, "/endpoints/openapi");
    this.#others = createOpenAiProvider({ ...settings, baseUrl }, dependencies);
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    switch (publisherOf(call.model)) {
      case "google":
        return this.#gemini.chat(call);
      case "anthropic":
        return this.#claude.answer(call);
      case "openapi":
        return this.#others.chat!(call);
    }
  }

  /** Sends a request of Anthropic's clients to one of its models. */
  passOn(call: MessagesCall) {
    return this.#claudePassed.answer(call);
  }

  embed(call: EmbedCall): Promise<Embeddings> {
    return this.#gemini.withModel(call, (ask) => vertexEmbeddings(call, ask));
  }

  image(call: ImageCall): Promise<GeneratedImages> {
    return this.#gemini.withModel(call, (ask) => geminiImages(call, ask));
  }

  /** Checks the credentials. Rejects with ProviderFailure if Google rejects them. */
  async check(signal: AbortSignal): Promise<void> {
    const contents = [{ role: "user", parts: [{ text: "a" }] }];
    const call = { model: CHECKED_MODEL, requestId: "", signal };
    try {
      await this.#gemini.accepts("countTokens", JSON.stringify({ contents }), call);
    } catch (error) {
      // A location without that model says nothing about the credentials.
      if (!(error instanceof ProviderFailure) || error.status !== NOT_FOUND) throw error;
    }
  }
}

/** Returns a model's name for a URL. Keeps the `@` in front of a version, as Google writes it. */
function pathSegment(model: string): string {
  return encodeURIComponent(model).replaceAll("%40", "@");
}
