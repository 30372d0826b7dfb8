import type { Clock } from "../../lib/clock.ts";
import { soundOf } from "../audio/sound-answer.ts";
import { type Provider, ProviderFailure, type ProviderSettings } from "../interface.ts";
import type { Speech, SpeechCall, SpeechFormat, Transcript, TranscriptionCall } from "../media.ts";
import type { AnswerThread } from "../thread-work.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { failureInside, failureOfStatus } from "./failure-mapping.ts";
import { deepgramTranscript } from "./transcript.ts";

interface DeepgramDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider of Deepgram's API. Aura creates speech
 * (https://developers.deepgram.com/reference/text-to-speech), and Nova transcribes
 * (https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded). Throws if its key cannot be
 * sent.
 */
export function createDeepgramProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: DeepgramDependencies,
): Provider {
  const { id, apiKey, baseUrl } = settings;
  if (apiKey !== undefined) assertKeyIsCarried(id, apiKey);
  const headers = {
    ...JSON_HEADERS,
    ...(apiKey !== undefined && { authorization: `Token ${apiKey}` }),
  };
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  const api = new DeepgramApi(baseUrl, headers, wire);
  return {
    speak: (call) => api.speak(call),
    transcribe: (call) => api.transcribe(call),
    // Deepgram's list of models needs no key.
    checkKey: () => checkKeyByModelList(httpClient, endpointUrl(baseUrl, "/projects"), headers),
  };
}

class DeepgramApi {
  readonly #baseUrl: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #wire: HttpJsonProvider;

  constructor(baseUrl: string, headers: Readonly<Record<string, string>>, wire: HttpJsonProvider) {
    this.#baseUrl = baseUrl;
    this.#headers = headers;
    this.#wire = wire;
  }

  async speak(call: SpeechCall): Promise<Speech> {
    const query = new URLSearchParams({ model: voiceModel(call), ...ENCODINGS[call.format] });
    if (call.speed !== undefined) query.set("speed", String(call.speed));
    const body = JSON.stringify({ text: call.input });
    const response = await this.#wire.post(this.#url("/speak", query), body, call);
    return soundOf(response, call, (answer) => failureInside(answer, this.#wire.failureContext));
  }

  /** Transcribes the file. It is the request body and is streamed from disk. */
  async transcribe(call: TranscriptionCall): Promise<Transcript> {
    const { file } = call;
    const response = await this.#wire.send(
      {
        method: "POST",
        url: this.#url("/listen", listenQuery(call)),
        headers: { ...this.#headers, "content-type": file.contentType },
        body: file.stream(),
        bodyBytes: file.sizeBytes,
      },
      call,
    );
    const { needs, language } = call;
    const { failureContext } = this.#wire;
    const options = { needs, language, failureContext };
    return this.#wire.read(response, deepgramTranscript, options, call);
  }

  #url(path: string, query: URLSearchParams): string {
    const url = endpointUrl(this.#baseUrl, path);
    return `${url}${url.includes("?") ? "&" : "?"}${query}`;
  }
}

/**
 * Query parameters by audio format:
 * https://developers.deepgram.com/docs/tts-media-output-settings#audio-format-combinations
 */
const ENCODINGS: Readonly<Record<SpeechFormat, Readonly<Record<string, string>>>> = {
  mp3: { encoding: "mp3" },
  opus: { encoding: "opus", container: "ogg" },
  aac: { encoding: "aac" },
  flac: { encoding: "flac" },
  wav: { encoding: "linear16", container: "wav", sample_rate: "24000" },
  pcm: { encoding: "linear16", container: "none", sample_rate: "24000" },
};

/** Matches the family of a model: `aura-2` of `aura-2-thalia-en`, `aura` of `aura-asteria-en`. */
const FAMILY = /^aura(?:-\d+)?(?=-[a-z])/;
const VOICE = /^[a-z][a-z0-9-]{0,63}$/;

/**
 * Returns the model of a voice, because Deepgram's speech models are voices. `thalia`, `thalia-en` and
 * `aura-2-thalia-en` name the same voice of `aura-2`. Throws for a voice of another family, which has a
 * different price.
 */
function voiceModel({ model, voice }: SpeechCall): string {
  const name = voice.toLowerCase();
  if (FAMILY.test(model)) {
    if (name === model || model.includes(`-${name}-`)) return model;
    throw noVoice(model);
  }
  if (!VOICE.test(name)) throw noVoice(model);
  const full = name.startsWith("aura") ? name : `${model}-${name}`;
  const voiced = /-[a-z]{2}$/.test(full.slice(model.length + 1)) ? full : `${full}-en`;
  if (FAMILY.exec(voiced)?.[0] !== model) throw noVoice(model);
  return voiced;
}

function noVoice(model: string): ProviderFailure {
  const message = `voice: ${model} has no such voice; its voices have names such as thalia or thalia-en.`;
  return new ProviderFailure("rejected", message, { param: "voice" });
}

function listenQuery({ model, language, needs, fields }: TranscriptionCall): URLSearchParams {
  // Without `smart_format` the text has neither punctuation nor capital letters.
  const query = new URLSearchParams({ model, smart_format: "true" });
  if (language === undefined) query.set("detect_language", "true");
  else query.set("language", language);
  if (needs.segments || needs.speakers) query.set("utterances", "true");
  if (needs.speakers) query.set("diarize", "true");
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value !== "object") query.set(name, String(value));
  }
  return query;
}
