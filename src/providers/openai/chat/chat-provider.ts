import type { Clock } from "../../../lib/clock.ts";
import { chatFieldsOf } from "../../chat-fields.ts";
import type { ChatProvider, Provider, ProviderSettings, ReadOptions } from "../../interface.ts";
import type { AnswerThread } from "../../thread-work.ts";
import { brokenAnswer, failureOfThrown } from "../../transport/call-failures.ts";
import { createHttpClient } from "../../transport/http-client.ts";
import { type ChatForm, HttpJsonProvider } from "../../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../../transport/json-headers.ts";
import type { HttpClient } from "../../transport/provider-response.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import { openAiEmbed } from "../embeddings.ts";
import { failureOfErrorBody, failureOfStatus } from "../failure-mapping.ts";
import { openAiImages } from "../images.ts";
import { openAiModerate } from "../moderations.ts";
import {
  type OpenAiVariant,
  openAiKeyHeader,
  openAiVariant,
  speaksResponses,
} from "../openai-variants.ts";
import { openAiRerank } from "../rerank.ts";
import { ResponsesClient } from "../responses/responses-wire.ts";
import { openAiSpeak } from "../speech.ts";
import { openAiTranscribe } from "../transcription.ts";
import { OpenAiCompletion, OpenAiStream } from "./chat-answers.ts";
import type { FailureReader } from "./chunk-reader.ts";
import { completionToStream, longCompletion, parseCompletion } from "./raw-answers.ts";
import { openAiBody } from "./shape-body.ts";
import { wholeCompletion } from "./whole-answer.ts";

export interface OpenAiDependencies {
  readonly clock: Clock;
  /** The HTTP client that providers share. Absent: the provider creates its own. */
  readonly httpClient?: HttpClient;
  /** Reads long answers. Absent: the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/** The capabilities that OpenAI's API has. */
export type OpenAiProvider = ChatProvider &
  Required<Pick<Provider, "embed" | "image" | "moderate" | "rerank" | "speak" | "transcribe">>;

/**
 * Creates a provider that speaks OpenAI's chat completions API. Throws if the base URL or the key cannot be used at
 * all.
 */
export function createOpenAiProvider(
  settings: ProviderSettings,
  { clock, httpClient = createHttpClient({ clock }), workThread }: OpenAiDependencies,
): OpenAiProvider {
  const { type, baseUrl } = settings;
  const fields = chatFieldsOf(type);
  const headers = requestHeaders(settings, openAiVariant(type));
  const parts = { settings, clock, httpClient, workThread, failureOfStatus };
  // The HTTP client caches one URL for each headers object, so chats have their own.
  const wire = new HttpJsonProvider({ ...parts, headers: { ...headers } });
  const url = endpointUrl(baseUrl, "/chat/completions");
  const form = openAiForm(wire, clock);
  const plainDeltas = isOpenAiItself(type, new URL(url).hostname);
  const responses = new ResponsesClient(baseUrl, wire);
  return {
    fields,
    chat(call) {
      if (speaksResponses(fields.type, call)) return responses.chat(call);
      const { model, modelId } = call;
      const options = { type: fields.type, plainDeltas, model, modelId };
      return wire.chat(call, async (signal) => {
        const { body } = await call.body.render(openAiBody, options, signal);
        return { url, body, headers, form };
      });
    },
    embed: openAiEmbed(wire, settings),
    image: openAiImages({ wire, type, baseUrl, headers }),
    moderate: openAiModerate(wire, settings),
    rerank: openAiRerank(wire, settings),
    speak: openAiSpeak(wire, settings),
    transcribe: openAiTranscribe(wire, settings),
  };
}

/** Returns the form of answers in OpenAI's format. */
function openAiForm(wire: HttpJsonProvider, clock: Clock): ChatForm {
  const failureReader: FailureReader = (event) => failureOfErrorBody(event, wire.failureContext);
  return {
    whole(text, call) {
      const { failureContext } = wire;
      const { requestId } = call;
      if (typeof text === "string") {
        return new OpenAiCompletion(parseCompletion(text, failureContext), requestId);
      }
      return {
        ...wire.typedAnswer(text, wholeCompletion, { requestId, failureContext }, call),
        async passThrough(options: ReadOptions) {
          try {
            return await wire.readText(text, longCompletion, { ...options, failureContext }, call);
          } catch (error) {
            throw failureOfThrown(error, call.abortNotice ?? call.signal);
          }
        },
      };
    },
    stream: (bytes) => new OpenAiStream(bytes, clock, failureReader),
    wholeAsStream(text) {
      const body = completionToStream(parseCompletion(text, wire.failureContext));
      if (body === undefined) throw brokenAnswer("a body that is not a completion");
      return new OpenAiStream(body.getReader(), clock, failureReader);
    },
  };
}

export function requestHeaders(
  settings: ProviderSettings,
  variant: OpenAiVariant,
): Record<string, string> {
  const headers: Record<string, string> = { ...JSON_HEADERS };
  if (settings.apiKey === undefined) return headers;
  assertKeyIsCarried(settings.id, settings.apiKey);
  return { ...headers, ...openAiKeyHeader(variant, settings.apiKey, settings.keyIsToken) };
}

function isOpenAiItself(type: string, host: string): boolean {
  return type === "openai" && (host === "openai.com" || host.endsWith(".openai.com"));
}
