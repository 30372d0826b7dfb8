import type { ChatAnswer, ChatCall } from "../../interface.ts";
import type { ChatForm, HttpJsonProvider } from "../../transport/http-json-provider.ts";
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
  readonly #form: ChatForm;

  constructor(baseUrl: string, wire: HttpJsonProvider) {
    this.#url = endpointUrl(baseUrl, "/responses");
    this.#wire = wire;
    this.#form = wire.typedForm({
      read: wholeResponse,
      options: () => ({ failureContext: wire.failureContext }),
      decoder: () => new ResponsesDecoder(() => wire.failureContext),
    });
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    const { model, modelId = "" } = call;
    const stream = call.stream && !WHOLE_ONLY.test(model) && !WHOLE_ONLY.test(modelId);
    return this.#wire.chat(call, async (signal) => {
      const { body } = await call.body.render(responsesBody, { model, stream }, signal);
      return { url: this.#url, body, form: this.#form };
    });
  }
}
