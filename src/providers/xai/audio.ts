import type { Clock } from "../../lib/clock.ts";
import { PCM_RATE } from "../audio/made-sound.ts";
import { soundOf } from "../audio/sound-answer.ts";
import type { Provider, ProviderSettings } from "../interface.ts";
import type { SpeechCall, TranscriptionCall } from "../media.ts";
import { requestHeaders } from "../openai/chat/chat-provider.ts";
import { failureInside, failureOfStatus } from "../openai/failure-mapping.ts";
import { openAiVariant } from "../openai/wire-dialects.ts";
import type { AnswerThread } from "../thread-work.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import { type FormPart, multipartForm } from "../transport/multipart-upload.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { HttpJsonProvider } from "../transport/typed-wire.ts";
import { xaiTranscript } from "./transcript.ts";

interface XaiAudioDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Reads long answers; the event loop does where it is left out. */
  readonly workThread?: AnswerThread;
}

/**
 * xAI's speech and transcripts (https://docs.x.ai/developers/rest-api-reference/inference/voice), at addresses
 * of their own that take no name of a model.
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
      try {
        const response = await wire.post(endpointUrl(baseUrl, "/tts"), speechBody(call), call);
        const { failureContext } = wire;
        const told = (answer: unknown) => failureInside(answer, failureContext);
        return await soundOf(response, call.format, call.abortNotice ?? call.signal, told);
      } catch (error) {
        throw failureOfThrown(error, call.abortNotice ?? call.signal);
      }
    },
    async transcribe(call) {
      try {
        const { contentType, body, bodyBytes } = multipartForm(formOf(call));
        const response = await wire.send(
          {
            method: "POST",
            url: endpointUrl(baseUrl, "/stt"),
            headers: { ...headers, "content-type": contentType },
            body,
            bodyBytes,
          },
          call,
        );
        const { needs, language } = call;
        const { failureContext } = wire;
        return await wire.read(response, xaiTranscript, { needs, language, failureContext }, call);
      } catch (error) {
        throw failureOfThrown(error, call.abortNotice ?? call.signal);
      }
    },
  };
}

function speechBody({ input, voice, format, speed, fields }: SpeechCall): string {
  return JSON.stringify({
    // It is demanded; `auto` finds it out.
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

/** The file comes last, as the interface wants it. Numbers and the like are written out where a language is named. */
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
