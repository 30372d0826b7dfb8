import { isFields } from "../../lib/json.ts";
import {
  isTime,
  plainWord,
  reportedMsOf,
  segmentsOfWords,
  type TimedWord,
} from "../audio/timed-text.ts";
import type { Transcript, TranscriptionCall } from "../media.ts";
import { failureInside } from "../openai/failure-mapping.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";

interface TranscriptOptions extends Pick<TranscriptionCall, "needs" | "language"> {
  readonly failureContext: FailureContext;
}

/**
 * Reads `{text, language, words: [{text, start, end, speaker}]}`. Throws ProviderFailure if the text has
 * another form.
 */
export const xaiTranscript = new AnswerRead(
  import.meta.url,
  (text, { needs, language, failureContext }: TranscriptOptions): Transcript => {
    const body = parsedAnswer(text);
    const failure = failureInside(body, failureContext);
    if (failure !== undefined) throw failure;
    if (!isFields(body) || typeof body.text !== "string") throw brokenAnswer("no transcript");
    const words = wordsOf(body.words);
    const hasLanguage = typeof body.language === "string" && body.language !== "";
    return {
      kind: "transcript",
      text: body.text,
      language: hasLanguage ? (body.language as string) : language,
      ...(needs.words && { words: words.map(plainWord) }),
      ...((needs.segments || needs.speakers) && { segments: segmentsOfWords(words) }),
      usage: undefined,
      ...reportedMsOf(body.duration),
    };
  },
);

function wordsOf(raw: unknown): TimedWord[] {
  return (Array.isArray(raw) ? raw : []).flatMap((entry: unknown) => {
    if (!isFields(entry) || !isTime(entry.start) || !isTime(entry.end)) return [];
    const word = entry.text ?? entry.word;
    if (typeof word !== "string") return [];
    const { start, end, speaker } = entry;
    const speakerMember = Number.isInteger(speaker) && { speaker: `speaker_${speaker}` };
    return { word: word.trim(), start, end, space: " ", ...speakerMember };
  });
}
