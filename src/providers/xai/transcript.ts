import { isFields } from "../../lib/json.ts";
import { numberedWords, timedTranscript } from "../audio/timed-text.ts";
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
    const hasLanguage = typeof body.language === "string" && body.language !== "";
    const timedText = {
      text: body.text,
      language: hasLanguage ? (body.language as string) : language,
      words: numberedWords(body.words, wordIn),
      seconds: body.duration,
    };
    return timedTranscript(timedText, needs);
  },
);

function wordIn({ text, word }: Readonly<Record<string, unknown>>): unknown {
  const stated = text ?? word;
  return typeof stated === "string" ? stated.trim() : undefined;
}
