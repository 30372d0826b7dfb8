import { isFields } from "../../lib/json.ts";
import { isTime, type TimedWord, timedTranscript } from "../audio/timed-text.ts";
import { ProviderFailure } from "../interface.ts";
import type {
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptSegment,
} from "../media.ts";
import { failureInside, failureOfErrorBody } from "../openai/failure-mapping.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";

interface TranscriptOptions extends Pick<TranscriptionCall, "needs"> {
  readonly failureContext: FailureContext;
}

/** Reads `{text, language, segments}`. Throws ProviderFailure if the text is not a transcript. */
export const mistralTranscript = new AnswerRead(
  import.meta.url,
  (text, { needs, failureContext }: TranscriptOptions): Transcript => {
    const body = parsedAnswer(text);
    const failure = failureInside(body, failureContext);
    if (failure !== undefined) throw failure;
    return transcriptOf(body, needs);
  },
);

type Needs = TranscriptionCall["needs"];

/** Returns the transcript in a body. With the granularity "word" Mistral's segments are words. */
function transcriptOf(body: unknown, needs: Needs): Transcript {
  if (!isFields(body) || typeof body.text !== "string") throw brokenAnswer("no transcript");
  const { text, language } = body;
  const timedText = {
    text,
    language: typeof language === "string" ? language : undefined,
    words: needs.words ? listed(body.segments, wordOf) : [],
    segments: needs.words ? undefined : listed(body.segments, segmentOf),
    seconds: isFields(body.usage) && body.usage.prompt_audio_seconds,
  };
  return timedTranscript(timedText, needs);
}

function listed<Timed>(
  raw: unknown,
  read: (entry: Record<string, unknown>, index: number) => Timed | undefined,
): Timed[] {
  const entries: unknown[] = Array.isArray(raw) ? raw : [];
  return entries.filter(isFields).flatMap((entry, index) => read(entry, index) ?? []);
}

function segmentOf(
  { text, start, end, speaker_id: speaker }: Record<string, unknown>,
  id: number,
): TranscriptSegment | undefined {
  if (typeof text !== "string" || !isTime(start) || !isTime(end)) return undefined;
  const speakerMember = typeof speaker === "string" && { speaker };
  return { id, start, end, text: text.trim(), ...speakerMember };
}

function wordOf(entry: Record<string, unknown>): TimedWord | undefined {
  const segment = segmentOf(entry, 0);
  if (segment === undefined || segment.text === "") return undefined;
  const { id: _, text: word, ...times } = segment;
  return { ...times, word, space: " " };
}

const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Reads `transcription.text.delta`, `transcription.segment`, `transcription.language` and `transcription.done`. */
export class MistralTranscriptDecoder extends SseDecoder<TranscriptEvent> {
  readonly #needs: Needs;
  readonly #context: FailureContext;
  #segments = 0;

  constructor(needs: Needs, context: FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#needs = needs;
    this.#context = context;
  }

  override end(events: TranscriptEvent[]): void {
    super.end(events);
    if (this.hasEnded) return;
    throw new ProviderFailure("unavailable", "the provider's transcript was cut off");
  }

  protected override take(data: string, events: TranscriptEvent[]): void {
    const event = eventOf(data);
    const failure = failureInside(event, this.#context);
    if (failure !== undefined) throw failure;
    const { type, text } = event;
    if (type === "error") throw failureOfErrorBody(event, this.#context);
    if (type === "transcription.text.delta" && typeof text === "string") {
      events.push({ type: "text", text });
    } else if (type === "transcription.segment") this.#takeSegment(event, events);
    else if (type === "transcription.done") {
      this.hasEnded = true;
      events.push({ type: "done", transcript: transcriptOf(event, this.#needs) });
    }
  }

  #takeSegment(event: Record<string, unknown>, events: TranscriptEvent[]): void {
    if (this.#needs.words) return;
    const segment = segmentOf(event, this.#segments);
    if (segment === undefined) return;
    this.#segments++;
    events.push({ type: "segment", segment });
  }
}
