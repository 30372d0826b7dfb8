import type { ChatAnswer, ChatCall } from "../../interface.ts";
import { brokenAnswer, failureOfThrown } from "../../transport/call-failures.ts";
import type { HttpJsonProvider } from "../../transport/http-json-provider.ts";
import { isEventStream, isJson, type ProviderResponse } from "../../transport/provider-response.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import { ResponsesDecoder } from "./event-decoder.ts";
import { responsesBody } from "./request-body.ts";
import { wholeResponse } from "./whole-answer.ts";

/** Models that do not stream (https://platform.openai.com/docs/models). */
const WHOLE_ONLY = /^(?:[^/]+\/)?(?:o\d|gpt-[\d.]+)-pro/;

/** Chats over OpenAI's Responses API. Each request contains its whole history. */
export class ResponsesClient {
  readonly #url: string;
  readonly #wire: HttpJsonProvider;

  constructor(baseUrl: string, wire: HttpJsonProvider) {
    this.#url = endpointUrl(baseUrl, "/responses");
    this.#wire = wire;
  }

  /**
   * Sends a chat and returns the answer. Rejects with ProviderFailure, or with GatewayError if the gateway cannot
   * render the request.
   */
  async chat(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    const { model, modelId = "" } = call;
    const stream = call.stream && !WHOLE_ONLY.test(model) && !WHOLE_ONLY.test(modelId);
    try {
      const { body } = await call.body.render(responsesBody, { model, stream }, signal);
      const response = await this.#wire.post(this.#url, body, call);
      return await (call.stream
        ? this.#streamOf(response)
        : this.#wire.whole(response, this.#wholeForm(), call));
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  async #streamOf(response: ProviderResponse): Promise<ChatAnswer> {
    const contentType = response.headers.get("content-type");
    if (isJson(contentType)) return this.#wire.wholeAsStream(response, this.#wholeForm());
    if (isEventStream(contentType)) {
      return this.#wire.events(response, new ResponsesDecoder(() => this.#wire.failureContext));
    }
    response.body?.cancel().catch(() => undefined);
    throw brokenAnswer("a content type that is not an event stream");
  }

  #wholeForm() {
    return { read: wholeResponse, options: { failureContext: this.#wire.failureContext } };
  }
}
