import type { Clock } from "../../lib/clock.ts";
import { PCM_RATE } from "../audio/made-sound.ts";
import { soundOf } from "../audio/sound-answer.ts";
import type { Provider, ProviderSettings } from "../interface.ts";
import type { SpeechCall, TranscriptionCall } from "../media.ts";
import { requestHeaders } from "../openai/chat/chat-provider.ts";
import { failureInside, failureOfStatus } from "../openai/failure-mapping.ts";
import { openAiVariant } from "../openai/openai-variants.ts";
import type { AnswerThread } from "../thread-work.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { FormPart } from "../transport/multipart-upload.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { xaiTranscript } from "./transcript.ts";

interface XaiAudioDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns xAI's speech and transcription (https://docs.x.ai/developers/rest-api-reference/inference/voice).
 * They have their own URLs, without a model name.
 */
export function xaiAudio(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: XaiAudioDependencies,
): Required<Pick<Provider, "speak" | "transcribe">> {
  const headers = requestHeaders(settings, openAiVariant(settings.type));
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  const { baseUrl } = settings;
  return {
    async speak(call) {
      const response = await wire.post(endpointUrl(baseUrl, "/tts"), speechBody(call), call);
      return soundOf(response, call, (answer) => failureInside(answer, wire.failureContext));
    },
    async transcribe(call) {
      const response = await wire.postForm(endpointUrl(baseUrl, "/stt"), formOf(call), call);
      const { needs, language } = call;
      const { failureContext } = wire;
      return wire.read(response, xaiTranscript, { needs, language, failureContext }, call);
    },
  };
}

function speechBody({ input, voice, format, speed, fields }: SpeechCall): string {
  return JSON.stringify({
    // xAI requires a language; `auto` detects it.
    language: "auto",
    ...fields,
    text: input,
    voice_id: voice,
    output_format: {
      codec: format,
      sample_rate: PCM_RATE,
      ...(format === "mp3" && { bit_rate: 128_000 }),
    },
    ...(speed !== undefined && { speed }),
  });
}

/**
 * Returns the form of a transcription. The file is the last part, as the API demands. If the call states a
 * language, xAI formats numbers and similar texts (`format`).
 */
function formOf({ language, needs, fields, file }: TranscriptionCall): FormPart[] {
  const values: Readonly<Record<string, unknown>> = {
    ...fields,
    ...(language !== undefined && { language, format: true }),
    ...(needs.speakers && { diarize: true }),
  };
  const parts: FormPart[] = Object.entries(values).map(([name, value]) => ({
    name,
    value: String(value),
  }));
  parts.push({ name: "file", file });
  return parts;
}
