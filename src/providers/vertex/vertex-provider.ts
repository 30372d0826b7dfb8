import { MessagesChat, type MessagesPlatform } from "../anthropic/chat-provider.ts";
import { MessagesPassThrough } from "../anthropic/pass-through.ts";
import { betasTaken } from "../anthropic/platform-betas.ts";
import { ByToken, withKey } from "../credentials/by-token.ts";
import { GeminiWire } from "../gemini/gemini-provider.ts";
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
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/fixed-headers.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { vertexFields } from "./chat-fields.ts";
import { vertexEmbeddings } from "./embeddings.ts";
import { type GoogleAccess, type GoogleDependencies, googleAccess } from "./google-credentials.ts";
import { googleResource, publisherOf } from "./publisher.ts";
import { vertexBody } from "./request-body.ts";

/** Anthropic's version on this platform (https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai). */
const CLAUDE_VERSION = "vertex-2023-10-16";
/** Counting tokens is free, and takes the permission that calls take. */
const CHECKED_MODEL = "gemini-2.5-flash";
const KEY_CHECK_TIMEOUT_MS = 10_000;
const NOT_FOUND = 404;

interface VertexDependencies extends GoogleDependencies {
  readonly workThread?: AnswerThread;
}

/**
 * Google Cloud's Vertex AI: Gemini's models by generateContent, Claude's by rawPredict, others' by its interface
 * in OpenAI's form. The base URL ends with the project and location, or, for API keys of express mode, with the
 * version. Throws an Error of one line where the credentials cannot be used.
 */
export function createVertexProvider(
  settings: ProviderSettings,
  dependencies: VertexDependencies,
): Provider {
  const access = googleAccess(settings, dependencies);
  const baseUrl = addressFor(settings, access);
  const wiresOf = (secret: string, headers: Readonly<Record<string, string>>) =>
    new VertexWires({ ...settings, baseUrl, apiKey: secret }, headers, dependencies);
  const wires =
    "tokens" in access
      ? new ByToken(access.tokens, (token) => wiresOf(token, { authorization: `Bearer ${token}` }))
      : withKey(wiresOf(access.apiKey, { "x-goog-api-key": access.apiKey }));
  return {
    fields: vertexFields(settings.type),
    needsOutputLimit: (model) => publisherOf(model) === "anthropic",
    metersCacheLifetimes: true,
    metersMedia: true,
    chat: (call) => wires.call(signalOf(call), (wire) => wire.chat(call)),
    messages: {
      platform: {
        serves: ({ model }) => publisherOf(model) === "anthropic",
        takesBeta: betasTaken(),
      },
      answer: (call) => wires.call(signalOf(call), (wire) => wire.passOn(call)),
    },
    embed: (call) => wires.call(signalOf(call), (wire) => wire.embed(call)),
    image: (call) => wires.call(signalOf(call), (wire) => wire.image(call)),
    imageFields: imageFieldsOf(settings.type),
    checkKey: () => {
      const signal = AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS);
      return wires.call(signal, (wire) => wire.check(signal));
    },
  };
}

/**
 * A key that an organization brings is of its own project. Where it brings no address, the operator's is used
 * with that project in place of the operator's, and for an API key with none. Throws where it has no project.
 */
function addressFor({ id, baseUrl, byokKey }: ProviderSettings, access: GoogleAccess): string {
  if (byokKey?.atOperatorsAddress !== true) return baseUrl;
  if ("apiKey" in access) return baseUrl.replace(/\/projects\/.*$/, "");
  const { projectId } = access;
  if (projectId === undefined) {
    throw new Error(`the credentials of provider "${id}" name no project of Google Cloud`);
  }
  return baseUrl.replace(/\/projects\/[^/]+/, `/projects/${encodeURIComponent(projectId)}`);
}

function signalOf(call: ModelCall) {
  return call.abortNotice ?? call.signal;
}

/** The wires of Vertex AI's models, as they are called with one token or key. */
class VertexWires {
  readonly #gemini: GeminiWire;
  readonly #claude: MessagesChat;
  readonly #claudePassed: MessagesPassThrough;
  readonly #others: Provider;

  /** @param settings whose key is what failures must not quote */
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
    this.#gemini = new GeminiWire(settings, dependencies, {
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
    this.#claude = new MessagesChat(settings, dependencies, platform);
    this.#claudePassed = new MessagesPassThrough(settings, dependencies, platform);
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

  /** Of a model of Anthropic's. */
  passOn(call: MessagesCall) {
    return this.#claudePassed.answer(call);
  }

  embed(call: EmbedCall): Promise<Embeddings> {
    return this.#gemini.withModel(call, (ask) => vertexEmbeddings(call, ask));
  }

  image(call: ImageCall): Promise<GeneratedImages> {
    return this.#gemini.withModel(call, (ask) => geminiImages(call, ask));
  }

  /** Rejects with ProviderFailure where the credentials are refused. */
  async check(signal: AbortSignal): Promise<void> {
    const contents = [{ role: "user", parts: [{ text: "a" }] }];
    const call = { model: CHECKED_MODEL, requestId: "", signal };
    try {
      await this.#gemini.accepts("countTokens", JSON.stringify({ contents }), call);
    } catch (error) {
      // A location without that model tells nothing of the credentials.
      if (!(error instanceof ProviderFailure) || error.status !== NOT_FOUND) throw error;
    }
  }
}

/** With the sign before a version as it is, as Google writes it. */
function pathSegment(model: string): string {
  return encodeURIComponent(model).replaceAll("%40", "@");
}
