import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { reportedMsOf } from "../audio/timed-text.ts";
import { TRANSCRIPTION, traitsOf } from "../audio/traits.ts";
import type { ProviderSettings } from "../interface.ts";
import type {
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptSegment,
  TranscriptStream,
  TranscriptWord,
} from "../media.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { FormPart } from "../transport/multipart-upload.ts";
import { isEventStream } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";
import { failureInside, failureOfErrorBody } from "./failure-mapping.ts";

type Fields = Readonly<Record<string, unknown>>;

const PATHS: Readonly<Record<TranscriptionCall["task"], string>> = {
  transcribe: "/audio/transcriptions",
  translate: "/audio/translations",
};

/**
 * Returns a function that creates transcripts with OpenAI's API (https://platform.openai.com/docs/api-reference/audio).
 * The file is sent from disk. The function rejects with ProviderFailure.
 */
export function openAiTranscribe(
  wire: HttpJsonProvider,
  settings: ProviderSettings,
): (call: TranscriptionCall) => Promise<Transcript | TranscriptStream> {
  return async (call) => {
    const requestsTimes = asksForDuration(settings.type, call);
    const url = endpointUrl(settings.baseUrl, PATHS[call.task]);
    const response = await wire.postForm(url, partsOf(call, requestsTimes), call);
    if (call.stream && isEventStream(response.headers.get("content-type"))) {
      const reader = wire.reader(response, new TranscriptDecoder(wire.failureContext));
      return { kind: "transcript-events", reader: () => reader };
    }
    const { failureContext } = wire;
    const transcript = await wire.read(response, openAiTranscript, { failureContext }, call);
    if (!requestsTimes) return transcript;
    const { segments: _, words: __, ...untimed } = transcript;
    return untimed;
  };
}

/**
 * Returns true if the request uses the response format that states the duration, although the client wants no times.
 * Only models with times support that format.
 */
function asksForDuration(type: string, call: TranscriptionCall): boolean {
  const { needs, stream, logprobs, model } = call;
  if (needs.words || needs.segments || needs.speakers || stream || logprobs === true) return false;
  return traitsOf(TRANSCRIPTION, type, [model])?.words === true;
}

function partsOf(call: TranscriptionCall, requestsTimes: boolean): FormPart[] {
  const { model, language, prompt, temperature, needs, stream, fields, file, task } = call;
  const granularities = [needs.segments && "segment", needs.words && "word"].filter(Boolean);
  const isTimed = granularities.length > 0 && !needs.speakers;
  const formFields: Fields = {
    ...fields,
    model,
    // OpenAI's translations accept no language: they are into English.
    ...(task === "transcribe" && { language }),
    prompt,
    temperature,
    response_format: needs.speakers
      ? "diarized_json"
      : isTimed || requestsTimes
        ? "verbose_json"
        : "json",
    ...(isTimed && task === "transcribe" && { timestamp_granularities: granularities }),
    ...(call.logprobs === true && { include: ["logprobs"] }),
    ...(stream && { stream }),
  };
  return [
    ...Object.entries(formFields).flatMap(([name, value]) => fieldParts(name, value)),
    { name: "file", file },
  ];
}

/** Returns the form fields of a value. Lists and objects are written like in OpenAI's clients. */
function fieldParts(name: string, value: unknown): FormPart[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((item) => fieldParts(`${name}[]`, item));
  if (typeof value !== "object") return [{ name, value: String(value) }];
  return Object.entries(value).flatMap(([key, item]) => fieldParts(`${name}[${key}]`, item));
}

interface ReadOptions {
  readonly failureContext: FailureContext;
}

/** Reads a transcript. Throws ProviderFailure if the text is not one. */
export const openAiTranscript = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: ReadOptions): Transcript => {
    const answer = parsedAnswer(text);
    const failure = failureInside(answer, failureContext);
    if (failure !== undefined) throw failure;
    return transcriptOf(answer);
  },
);

function transcriptOf(answer: unknown): Transcript {
  if (!isFields(answer) || typeof answer.text !== "string") throw brokenAnswer("no transcript");
  const { text, language, segments, words, logprobs, usage } = answer;
  return {
    kind: "transcript",
    text,
    language: typeof language === "string" ? language : undefined,
    ...(Array.isArray(segments) && { segments: segments.map(segmentOf) }),
    ...(Array.isArray(words) && { words: words.map(wordOf) }),
    ...(Array.isArray(logprobs) && { logprobs }),
    usage: usageOf(usage),
    ...reportedMsOf(answer.duration, isFields(usage) && usage.seconds),
  };
}

/** Details of Whisper's segments. */
const DETAILS = [
  "seek",
  "tokens",
  "temperature",
  "avg_logprob",
  "compression_ratio",
  "no_speech_prob",
] as const;

function segmentOf(raw: unknown, id: number): TranscriptSegment {
  if (!isFields(raw) || typeof raw.text !== "string" || !isTime(raw.start) || !isTime(raw.end)) {
    throw brokenAnswer("an invalid segment");
  }
  const { text, start, end, speaker } = raw;
  const details = DETAILS.filter((name) => raw[name] !== undefined);
  return {
    id,
    start,
    end: Math.max(start, end),
    text,
    ...(typeof speaker === "string" && { speaker }),
    ...(details.length > 0 && {
      details: Object.fromEntries(details.map((name) => [name, raw[name]])),
    }),
  };
}

function wordOf(raw: unknown): TranscriptWord {
  if (!isFields(raw) || typeof raw.word !== "string" || !isTime(raw.start) || !isTime(raw.end)) {
    throw brokenAnswer("an invalid word");
  }
  return { word: raw.word, start: raw.start, end: Math.max(raw.start, raw.end) };
}

function isTime(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** Returns the reported usage. Undefined if no tokens are reported, or impossible ones: audio always has tokens. */
function usageOf(raw: unknown): Usage | undefined {
  if (!isFields(raw)) return undefined;
  const { input_tokens: promptTokens, output_tokens: completionTokens } = raw;
  if (!isCount(promptTokens) || !isCount(completionTokens) || promptTokens === 0) return undefined;
  const details = isFields(raw.input_token_details) ? raw.input_token_details : {};
  const audio = isCount(details.audio_tokens) ? details.audio_tokens : promptTokens;
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    audioPromptTokens: Math.min(audio, promptTokens),
    estimated: false,
  };
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Largest event of a stream. The last one contains the whole transcript. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;

/** Decodes `transcript.text.delta`, `transcript.text.segment` and `transcript.text.done`. */
class TranscriptDecoder extends SseDecoder<TranscriptEvent> {
  readonly #context: FailureContext;
  #segments = 0;

  constructor(context: FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#context = context;
  }

  override push(bytes: Uint8Array, events: TranscriptEvent[]): void {
    try {
      super.push(bytes, events);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw brokenAnswer("an event that is too large");
    }
  }

  override end(events: TranscriptEvent[]): void {
    super.end(events);
    if (!this.hasEnded) throw brokenAnswer("a transcript without its end");
  }

  protected override take(data: string, events: TranscriptEvent[]): void {
    const event = eventOf(data);
    if (event.error || event.type === "error") throw failureOfErrorBody(event, this.#context);
    const { type, delta, logprobs } = event;
    if (type === "transcript.text.delta" && typeof delta === "string") {
      const extra = Array.isArray(logprobs) ? { logprobs } : {};
      events.push({ type: "text", text: delta, ...extra });
    } else if (type === "transcript.text.segment") {
      events.push({ type: "segment", segment: segmentOf(event, this.#segments++) });
    } else if (type === "transcript.text.done") {
      this.hasEnded = true;
      events.push({ type: "done", transcript: transcriptOf(event) });
    }
  }
}
