import type { Clock } from "../../lib/clock.ts";
import { EventReader } from "../anthropic/event-reader.ts";
import { failureOfErrorBody } from "../anthropic/failure-mapping.ts";
import { MessageRewriter } from "../anthropic/message-rewriter.ts";
import { passedBody } from "../anthropic/passed-body.ts";
import { passedMessage } from "../anthropic/passed-message.ts";
import { acceptsBetas } from "../anthropic/platform-betas.ts";
import { messagesBody } from "../anthropic/request-body.ts";
import { wholeMessage } from "../anthropic/whole-answer.ts";
import type { RenderedBody } from "../chat-body.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type EmbedCall,
  type Embeddings,
  type ModelCall,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
  type RawCompletion,
} from "../interface.ts";
import type { MessagesCall, RawMessageStream } from "../messages-provider.ts";
import type { AnswerThread } from "../thread-work.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
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
  const bedrock = new Bedrock(baseUrl, wire, clock);
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
  readonly #clock: Clock;

  constructor(baseUrl: string, wire: HttpJsonProvider, clock: Clock) {
    this.#baseUrl = baseUrl;
    this.#wire = wire;
    this.#clock = clock;
  }

  /**
   * Sends the call and returns its answer. Rejects with ProviderFailure, or with GatewayError if the gateway
   * cannot render the request.
   */
  async chat(call: ChatCall): Promise<ChatAnswer> {
    try {
      return isClaude(call.model, call.modelId)
        ? await this.#invokeClaude(call)
        : await this.#converse(call);
    } catch (error) {
      throw failureOfThrown(error, call.abortNotice ?? call.signal);
    }
  }

  /** Sends a request of Anthropic's clients to one of its models. Rejects like `chat`. */
  async passOn(call: MessagesCall): Promise<RawCompletion | RawMessageStream> {
    const signal = call.abortNotice ?? call.signal;
    const betas = call.betas.length > 0 ? { anthropic_beta: call.betas } : {};
    const set = { anthropic_version: ANTHROPIC_VERSION, ...betas };
    try {
      const { body } = await call.body.render(passedBody, { set, addsBreakpoints: true }, signal);
      if (!call.stream) {
        const response = await this.#post("invoke", body, call);
        const { failureContext } = this.#wire;
        const completion = await this.#wire.read(response, passedMessage, failureContext, call);
        return { kind: "completion", read: () => completion };
      }
      const reader = await this.#streamOfClaude(body, call);
      const failureOf = (event: unknown) => failureOfErrorBody(event, this.#wire.failureContext);
      return {
        kind: "message-stream",
        reader: () => reader,
        rewriter: (options, output) => new MessageRewriter(options, output, failureOf),
      };
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
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

  async #invokeClaude(call: ChatCall): Promise<ChatAnswer> {
    const { model, modelId, stream } = call;
    const signal = call.abortNotice ?? call.signal;
    // The URL names the model and states whether the answer is streamed.
    const bedrockOptions = { stream: false, versionInBody: ANTHROPIC_VERSION, namesBetas: true };
    const options = { model, modelId, ...bedrockOptions };
    const { body, answersByTool } = await call.body.render(messagesBody, options, signal);
    if (!stream) {
      const response = await this.#post("invoke", body, call);
      const { failureContext } = this.#wire;
      const form = { read: wholeMessage, options: { answersByTool, failureContext } };
      return this.#wire.whole(response, form, call);
    }
    const reader = new EventReader(await this.#streamOfClaude(body, call), {
      answersByTool,
      clock: this.#clock,
      failureOf: (event) => failureOfErrorBody(event, this.#wire.failureContext),
    });
    return { kind: "events", reader: () => reader };
  }

  async #streamOfClaude(body: RenderedBody["body"], call: ModelCall): Promise<ClaudeStream> {
    const response = await this.#post("invoke-with-response-stream", body, call);
    assertStream(response);
    const bytes = response.reader?.() ?? response.body?.getReader();
    if (bytes === undefined) throw brokenAnswer("an empty body");
    return new ClaudeStream(bytes, () => this.#wire.failureContext);
  }

  async #converse(call: ChatCall): Promise<ChatAnswer> {
    const { model, modelId, stream } = call;
    const signal = call.abortNotice ?? call.signal;
    const rendered = await call.body.render(converseBody, { model, modelId }, signal);
    const { body, answersByTool, isStreamable } = rendered;
    const form = { read: converseAnswer, options: { answersByTool } };
    if (!stream) return this.#wire.whole(await this.#post("converse", body, call), form, call);
    if (!isStreamable) {
      return this.#wire.wholeAsStream(await this.#post("converse", body, call), form);
    }
    const response = await this.#post("converse-stream", body, call);
    assertStream(response);
    const decoder = new ConverseDecoder(answersByTool, () => this.#wire.failureContext);
    return this.#wire.events(response, decoder);
  }

  /** Posts the body and returns a response with a success status. */
  #post(
    operation: string,
    body: string | Uint8Array<ArrayBuffer>,
    call: Pick<ModelCall, "model" | "signal" | "abortNotice" | "onNewConnection">,
  ): Promise<ProviderResponse> {
    const url = endpointUrl(this.#baseUrl, `${pathOfModel(call.model)}/${operation}`);
    return this.#wire.post(url, body, call);
  }
}

function assertStream(response: ProviderResponse): void {
  if (EVENT_STREAM.test(response.headers.get("content-type") ?? "")) return;
  response.body?.cancel().catch(() => undefined);
  throw brokenAnswer("a content type other than an event stream");
}
