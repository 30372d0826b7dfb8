import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import { headingOf, speechOf } from "../audio/made-sound.ts";
import { soundOf } from "../audio/sound-answer.ts";
import { type Provider, ProviderFailure, type ProviderSettings } from "../interface.ts";
import type { Speech, SpeechCall, SpeechFormat, Transcript, TranscriptionCall } from "../media.ts";
import type { AnswerThread } from "../thread-work.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import type { FormPart } from "../transport/multipart-upload.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { failureInside, failureOfStatus } from "./failure-mapping.ts";
import { elevenLabsTranscript } from "./transcript.ts";

interface ElevenLabsDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider of ElevenLabs' API (https://elevenlabs.io/docs/api-reference): streamed speech with
 * voices by id, and transcription by Scribe. Throws if its key cannot be sent.
 */
export function createElevenLabsProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: ElevenLabsDependencies,
): Provider {
  const { id, apiKey, baseUrl } = settings;
  if (apiKey !== undefined) assertKeyIsCarried(id, apiKey);
  const headers = { ...JSON_HEADERS, ...(apiKey !== undefined && { "xi-api-key": apiKey }) };
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  const api = new ElevenLabsApi(baseUrl, wire);
  return {
    speak: (call) => api.speak(call),
    transcribe: (call) => api.transcribe(call),
    checkKey: () => checkKeyByModelList(httpClient, endpointUrl(baseUrl, "/models"), headers),
  };
}

class ElevenLabsApi {
  readonly #baseUrl: string;
  readonly #wire: HttpJsonProvider;

  constructor(baseUrl: string, wire: HttpJsonProvider) {
    this.#baseUrl = baseUrl;
    this.#wire = wire;
  }

  async speak(call: SpeechCall): Promise<Speech> {
    const path = `/text-to-speech/${voiceId(call.voice)}/stream`;
    const url = `${endpointUrl(this.#baseUrl, path)}?output_format=${OUTPUT_FORMATS[call.format]}`;
    const response = await this.#wire.post(url, speechBody(call), call);
    const speech = await soundOf(response, call, (answer) =>
      failureInside(answer, this.#wire.failureContext),
    );
    const heading = headingOf(call.format);
    return heading === undefined ? speech : speechOf(speech.reader(), call, undefined, heading);
  }

  async transcribe(call: TranscriptionCall): Promise<Transcript> {
    const url = endpointUrl(this.#baseUrl, "/speech-to-text");
    const response = await this.#wire.postForm(url, formOf(call), call);
    const { needs } = call;
    const { failureContext } = this.#wire;
    return this.#wire.read(response, elevenLabsTranscript, { needs, failureContext }, call);
  }
}

/** Output formats that every ElevenLabs plan has. 192 kbit/s and 44.1 kHz PCM need more expensive plans. */
const OUTPUT_FORMATS: Readonly<Partial<Record<SpeechFormat, string>>> = {
  mp3: "mp3_44100_128",
  opus: "opus_48000_64",
  wav: "pcm_24000",
  pcm: "pcm_24000",
};

/**
 * Allowed voice ids. The id is part of the path, so other characters are rejected even if they could be
 * escaped.
 */
const VOICE_ID = /^[A-Za-z0-9_-]{1,128}$/;

function voiceId(voice: string): string {
  if (VOICE_ID.test(voice)) return voice;
  const message = "voice: ElevenLabs expects the id of a voice, such as JBFqnCBsd6RMkjVDRZzb.";
  throw new ProviderFailure("rejected", message, { param: "voice" });
}

function speechBody({ model, input, speed, fields }: SpeechCall): string {
  const { voice_settings: stated, ...others } = fields;
  const settings = {
    ...(isFields(stated) && stated),
    ...(speed !== undefined && { speed }),
  };
  return JSON.stringify({
    ...others,
    text: input,
    model_id: model,
    ...(Object.keys(settings).length > 0 && { voice_settings: settings }),
  });
}

function formOf({ model, language, temperature, needs, fields, file }: TranscriptionCall) {
  const values: Readonly<Record<string, unknown>> = {
    // If true, the text contains sounds such as (laughter).
    tag_audio_events: false,
    ...fields,
    model_id: model,
    timestamps_granularity: "word",
    diarize: needs.speakers,
    ...(language !== undefined && { language_code: language }),
    ...(temperature !== undefined && { temperature }),
  };
  const parts: FormPart[] = Object.entries(values).map(([name, value]) => ({
    name,
    value: String(value),
  }));
  parts.push({ name: "file", file });
  return parts;
}
