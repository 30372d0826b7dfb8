import type { MessagesCall, PassedMessage, PassedMessageStream } from "../messages-provider.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import type { ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { MessagesPlatform } from "./chat-provider.ts";
import { failureOfErrorBody } from "./failure-mapping.ts";
import { MessageRewriter } from "./message-rewriter.ts";
import { passedBody } from "./passed-body.ts";
import { assertAnswer, passedMessage } from "./passed-message.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Sends requests of Anthropic's own clients to a provider with the same API. */
export class MessagesPassThrough {
  readonly #wire: HttpJsonProvider;
  readonly #platform: MessagesPlatform;
  readonly #form: ChatForm<PassedMessage | PassedMessageStream>;

  constructor(wire: HttpJsonProvider, platform: MessagesPlatform) {
    this.#wire = wire;
    this.#platform = platform;
    this.#form = passedForm(wire);
  }

  /** Sends the call and returns its answer. Rejects with ProviderFailure if there is none. */
  answer(call: MessagesCall): Promise<PassedMessage | PassedMessageStream> {
    const { versionInBody: version } = this.#platform;
    const model = version === undefined ? { model: call.model } : { anthropic_version: version };
    const set = call.stream ? { ...model, stream: true } : model;
    return this.#wire.chat(call, async () => {
      const body = await this.#bodyOf(call, set);
      const headers = this.#headersFor(call);
      return { url: this.#platform.url(call), body, headers, form: this.#form };
    });
  }

  /**
   * Returns the number of input tokens that the provider counts. Rejects with ProviderFailure.
   *
   * @param url address of the provider's token counting
   */
  async countTokens(call: MessagesCall, url: string): Promise<number> {
    try {
      const body = await this.#bodyOf(call, { model: call.model });
      const headers = this.#headersFor(call);
      const answer = await this.#wire.object({ method: "POST", url, headers, body }, call);
      const { input_tokens: tokens } = assertAnswer(answer, this.#wire.failureContext);
      if (typeof tokens === "number" && Number.isSafeInteger(tokens) && tokens >= 0) return tokens;
      throw brokenAnswer("a count without tokens");
    } catch (error) {
      throw failureOfThrown(error, call.abortNotice ?? call.signal);
    }
  }

  async #bodyOf(call: MessagesCall, set: Fields) {
    const options = { set, addsBreakpoints: this.#platform.versionInBody !== undefined };
    const signal = call.abortNotice ?? call.signal;
    return (await call.body.render(passedBody, options, signal)).body;
  }

  #headersFor({ version, betas }: MessagesCall): Readonly<Record<string, string>> {
    const { headers, versionInBody } = this.#platform;
    const isVersioned = version !== undefined && versionInBody === undefined;
    return {
      ...headers,
      ...(isVersioned && { "anthropic-version": version }),
      ...(betas.length > 0 && { "anthropic-beta": betas.join(",") }),
    };
  }
}

/** Returns the form of answers that are passed on unchanged. */
export function passedForm(wire: HttpJsonProvider): ChatForm<PassedMessage | PassedMessageStream> {
  const failureOf = (event: Fields) => failureOfErrorBody(event, wire.failureContext);
  return {
    async whole(text, call) {
      const completion = await wire.readText(text, passedMessage, wire.failureContext, call);
      return { kind: "whole", passThrough: () => completion };
    },
    stream: (bytes) => ({
      kind: "stream",
      passThrough: (options, output) => ({
        reader: bytes,
        answer: new MessageRewriter(options, output, failureOf),
      }),
    }),
    // A proxy can answer a request for a stream with an error under a success status.
    wholeAsStream(text) {
      assertAnswer(parsedAnswer(text), wire.failureContext);
      throw brokenAnswer("a content type other than an event stream");
    },
  };
}
