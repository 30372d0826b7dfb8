import type { Clock } from "../../lib/clock.ts";
import { headingOf, speechOf } from "../audio/made-sound.ts";
import { soundOfEvents, wholeSound } from "../audio/sound-events.ts";
import type { Provider, ProviderSettings } from "../interface.ts";
import type {
  Speech,
  SpeechCall,
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptStream,
} from "../media.ts";
import { requestHeaders } from "../openai/chat/chat-provider.ts";
import { failureOfStatus } from "../openai/failure-mapping.ts";
import { openAiVariant } from "../openai/openai-variants.ts";
import type { AnswerThread } from "../thread-work.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { FormPart } from "../transport/multipart-upload.ts";
import { type HttpClient, isEventStream, isJson } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { MistralSpeechDecoder, mistralSpeech } from "./speech.ts";
import { MistralTranscriptDecoder, mistralTranscript } from "./transcript.ts";

interface MistralAudioDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/** Returns Voxtral's speech and transcription. Unlike Mistral's chats, they do not have OpenAI's form. */
export function mistralAudio(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: MistralAudioDependencies,
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
    speak: (call) => speech(wire, endpointUrl(baseUrl, "/audio/speech"), call),
    transcribe: (call) => transcript(wire, endpointUrl(baseUrl, "/audio/transcriptions"), call),
  };
}

/**
 * Formats that are streamed: samples. Mistral does not state that pieces of other formats can be
 * concatenated.
 */
const STREAMED: ReadonlySet<string> = new Set(["pcm", "wav"]);

async function speech(wire: HttpJsonProvider, url: string, call: SpeechCall): Promise<Speech> {
  const { model, input, voice, format, fields } = call;
  const isStreamed = STREAMED.has(format);
  const body = JSON.stringify({
    ...fields,
    model,
    input,
    voice_id: voice,
    response_format: isStreamed ? "pcm" : format,
    stream: isStreamed,
  });
  const response = await wire.post(url, body, call);
  const { failureContext } = wire;
  if (isStreamed && !isJson(response.headers.get("content-type"))) {
    const audio = soundOfEvents(response, new MistralSpeechDecoder(failureContext));
    return speechOf(audio, call, undefined, headingOf(format));
  }
  const whole = await wire.read(response, mistralSpeech, { failureContext }, call);
  return speechOf(wholeSound(whole.body), call);
}

async function transcript(
  wire: HttpJsonProvider,
  url: string,
  call: TranscriptionCall,
): Promise<Transcript | TranscriptStream> {
  const response = await wire.postForm(url, formOf(call), call);
  const { needs } = call;
  const { failureContext } = wire;
  if (call.stream && isEventStream(response.headers.get("content-type"))) {
    const decoder = new MistralTranscriptDecoder(needs, failureContext);
    const reader = wire.reader<TranscriptEvent>(response, decoder);
    return { kind: "transcript-events", reader: () => reader };
  }
  return wire.read(response, mistralTranscript, { needs, failureContext }, call);
}

/** Returns the form of a transcription. Timestamps and a language exclude each other: see traits.ts. */
function formOf({ model, needs, language, temperature, stream, fields, file }: TranscriptionCall) {
  const parts: FormPart[] = [{ name: "model", value: model }];
  const add = (name: string, value: unknown) => parts.push({ name, value: String(value) });
  for (const [name, value] of Object.entries(fields)) {
    for (const item of Array.isArray(value) ? value : [value]) add(name, item);
  }
  const granularity = needs.words ? "word" : "segment";
  const isTimed = needs.words || needs.segments || needs.speakers;
  if (isTimed) add("timestamp_granularities", granularity);
  else if (language !== undefined) add("language", language);
  if (needs.speakers) add("diarize", true);
  if (temperature !== undefined) add("temperature", temperature);
  if (stream) add("stream", true);
  parts.push({ name: "file", file });
  return parts;
}
