import type { Clock } from "../../lib/clock.ts";
import { messagesForm } from "../anthropic/chat-provider.ts";
import { passedForm } from "../anthropic/pass-through.ts";
import { passedBody } from "../anthropic/passed-body.ts";
import { acceptsBetas } from "../anthropic/platform-betas.ts";
import { messagesBody } from "../anthropic/request-body.ts";
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
import type { MessagesCall, PassedMessage, PassedMessageStream } from "../messages-provider.ts";
import type { AnswerThread } from "../thread-work.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { type ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { HttpClient, ProviderResponse } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { bedrockFields } from "./chat-fields.ts";
import { ClaudeStream } from "./claude-stream.ts";
import { converseAnswer } from "./converse-answer.ts";
import { converseBody } from "./converse-body.ts";
import { ConverseDecoder } from "./converse-event-decoder.ts";
import { bedrockEmbeddings, embeddingsRead, reportedTokens } from "./embeddings.ts";
import { failureOfStatus } from "./failure-mapping.ts";
import { isClaude } from "./model-traits.ts";
import { pathOfModel, RequestSigner } from "./request-signer.ts";

/**
 * API version of Anthropic's models on Bedrock:
 * https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages-request-response.html
 */
const ANTHROPIC_VERSION = "bedrock-2023-05-31";
const EVENT_STREAM = /^\s*application\/vnd\.amazon\.eventstream\s*(?:[;,]|$)/i;
const takesBeta = acceptsBetas("effort-2025-11-24", "fine-grained-tool-streaming-2025-05-14");
const KEY_CHECK_TIMEOUT_MS = 10_000;
/** Model of the key check. Any model will do. */
const KEY_CHECK_MODEL = "amazon.nova-micro-v1:0";
const UNAUTHORIZED = 401;
const SERVER_ERROR = 500;

interface BedrockDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider of Amazon Bedrock. It calls Anthropic's models with Anthropic's API (InvokeModel) and
 * all others with Converse. Throws if the key cannot be sent, or if signatures need a region and none is
 * configured.
 */
export function createBedrockProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: BedrockDependencies,
): Provider {
  const { id: providerId, apiKey, baseUrl, region } = settings;
  const signer = new RequestSigner({ providerId, apiKey, baseUrl, region, clock });
  const wire = new HttpJsonProvider({
    ...{ settings, clock, httpClient, workThread, failureOfStatus },
    secrets: signer.secrets,
    headers: (url, body) => signer.headersFor(url, body),
  });
  const bedrock = new Bedrock(baseUrl, wire);
  return {
    fields: bedrockFields(settings.type),
    // Converse has its own default limit, which not every list of models states.
    needsOutputLimit: isClaude,
    metersCacheLifetimes: true,
    chat: (call) => bedrock.chat(call),
    messages: {
      platform: { serves: ({ model, modelId }) => isClaude(model, modelId), takesBeta },
      answer: (call) => bedrock.passOn(call),
    },
    embed: (call) => bedrock.embed(call),
    checkKey: () => bedrock.checkKey(),
  };
}

class Bedrock {
  readonly #baseUrl: string;
  readonly #wire: HttpJsonProvider;
  readonly #passedForm: ChatForm<PassedMessage | PassedMessageStream>;

  constructor(baseUrl: string, wire: HttpJsonProvider) {
    this.#baseUrl = baseUrl;
    this.#wire = wire;
    this.#passedForm = this.#ofClaude(passedForm(wire));
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    const isOfAnthropic = isClaude(call.model, call.modelId);
    return this.#wire.chat(call, (signal) =>
      isOfAnthropic ? this.#claudeRequest(call, signal) : this.#converseRequest(call, signal),
    );
  }

  /** Sends a request of Anthropic's clients to one of its models. */
  passOn(call: MessagesCall): Promise<PassedMessage | PassedMessageStream> {
    const betas = call.betas.length > 0 ? { anthropic_beta: call.betas } : {};
    const set = { anthropic_version: ANTHROPIC_VERSION, ...betas };
    return this.#wire.chat(call, async (signal) => {
      const { body } = await call.body.render(passedBody, { set, addsBreakpoints: true }, signal);
      return { url: this.#claudeUrl(call), body, form: this.#passedForm };
    });
  }

  async embed(call: EmbedCall): Promise<Embeddings> {
    return bedrockEmbeddings(call, async (body, form) => {
      const response = await this.#post("invoke", body, call);
      const options = { ...form, headerTokens: reportedTokens(response.headers) };
      return this.#wire.read(response, embeddingsRead, options, call);
    });
  }

  /**
   * Checks the key with a request without messages. Once Bedrock accepts the key, it rejects the request as
   * invalid, at no cost. A valid key can have no access to the model of the check.
   */
  async checkKey(): Promise<void> {
    const signal = AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS);
    const body = JSON.stringify({ messages: [] });
    try {
      const response = await this.#post("converse", body, { model: KEY_CHECK_MODEL, signal });
      await response.body?.cancel().catch(() => undefined);
    } catch (error) {
      if (!(error instanceof ProviderFailure)) {
        const message = "the provider could not be reached";
        throw new ProviderFailure("unavailable", message, { cause: error });
      }
      const { status = 0 } = error;
      if (status === UNAUTHORIZED || status >= SERVER_ERROR) throw error;
    }
  }

  async #claudeRequest(call: ChatCall, signal: AbortNotice) {
    const { model, modelId } = call;
    // The URL names the model and states whether the answer is streamed.
    const bedrockOptions = { stream: false, versionInBody: ANTHROPIC_VERSION, namesBetas: true };
    const options = { model, modelId, ...bedrockOptions };
    const { body, answersByTool } = await call.body.render(messagesBody, options, signal);
    const form = this.#ofClaude(messagesForm(this.#wire, answersByTool));
    return { url: this.#claudeUrl(call), body, form };
  }

  #claudeUrl({ model, stream }: Pick<ChatCall, "model" | "stream">): string {
    return this.#urlOf(model, stream ? "invoke-with-response-stream" : "invoke");
  }

  /** Returns a form of Anthropic's answers for the streams of Bedrock, which contain the same events. */
  #ofClaude<Answer>(form: ChatForm<Answer>): ChatForm<Answer> {
    const context = () => this.#wire.failureContext;
    const stream: typeof form.stream = (bytes, call) =>
      form.stream(new ClaudeStream(bytes, context), call);
    return { ...form, isStream, stream };
  }

  async #converseRequest(call: ChatCall, signal: AbortNotice) {
    const { model, modelId, stream } = call;
    const rendered = await call.body.render(converseBody, { model, modelId }, signal);
    const { body, answersByTool, isStreamable } = rendered;
    const url = this.#urlOf(model, stream && isStreamable ? "converse-stream" : "converse");
    const form = this.#wire.typedForm({
      isStream,
      read: converseAnswer,
      options: () => ({ answersByTool }),
      decoder: () => new ConverseDecoder(answersByTool, () => this.#wire.failureContext),
    });
    return { url, body, form };
  }

  /** Posts the body and returns a response with a success status. */
  #post(
    operation: string,
    body: string | Uint8Array<ArrayBuffer>,
    call: Pick<ModelCall, "model" | "signal" | "abortNotice" | "onNewConnection">,
  ): Promise<ProviderResponse> {
    return this.#wire.post(this.#urlOf(call.model, operation), body, call);
  }

  #urlOf(model: string, operation: string): string {
    return endpointUrl(this.#baseUrl, `${pathOfModel(model)}/${operation}`);
  }
}

function isStream(contentType: string | null): boolean {
  return EVENT_STREAM.test(contentType ?? "");
}
