import { isFields } from "../../lib/json.ts";
import { isTime, type TimedWord, timedTranscript } from "../audio/timed-text.ts";
import type { Transcript, TranscriptionCall } from "../media.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

interface TranscriptOptions extends Pick<TranscriptionCall, "needs"> {
  readonly failureContext: FailureContext;
}

/** Reads `{language_code, text, words}`. Throws ProviderFailure if the text is not a transcript. */
export const elevenLabsTranscript = new AnswerRead(
  import.meta.url,
  (text, { needs, failureContext }: TranscriptOptions): Transcript => {
    const body = parsedAnswer(text);
    const failure = failureInside(body, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(body) || typeof body.text !== "string") throw brokenAnswer("no transcript");
    const { words, language_code: language, audio_duration_secs: seconds } = body;
    const timedText = {
      text: body.text,
      language: typeof language === "string" ? language : undefined,
      words: wordsOf(words, needs.speakers),
      seconds,
    };
    return timedTranscript(timedText, needs);
  },
);

/**
 * Returns the words of a transcript. Spaces, and sounds other than words, are separate entries. ElevenLabs
 * always assigns words to a speaker, so `namesSpeakers` says whether to keep the speaker.
 */
function wordsOf(raw: unknown, namesSpeakers: boolean): TimedWord[] {
  const words: TimedWord[] = [];
  let space = "";
  for (const entry of Array.isArray(raw) ? raw : []) {
    if (!isFields(entry) || typeof entry.text !== "string") continue;
    const { text, type, start, end, speaker_id: speaker } = entry;
    if (type === "spacing") {
      space += text;
      continue;
    }
    if (type === "audio_event" || !isTime(start) || !isTime(end)) continue;
    const isNamed = namesSpeakers && typeof speaker === "string";
    words.push({ word: text, start, end, space, ...(isNamed && { speaker }) });
    space = "";
  }
  return words;
}
