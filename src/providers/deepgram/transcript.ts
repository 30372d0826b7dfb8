import { isFields } from "../../lib/json.ts";
import { isTime, numberedSpeaker, numberedWords, timedTranscript } from "../audio/timed-text.ts";
import type { Transcript, TranscriptionCall, TranscriptSegment } from "../media.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";

interface TranscriptOptions extends Pick<TranscriptionCall, "needs" | "language"> {
  readonly failureContext: FailureContext;
}

/**
 * Reads the `results` of a recording. The first of several channels counts, because the gateway does not
 * request a transcript per channel. Throws ProviderFailure if the text is not a transcript.
 */
export const deepgramTranscript = new AnswerRead(
  import.meta.url,
  (text, { needs, language, failureContext }: TranscriptOptions): Transcript => {
    const body = parsedAnswer(text);
    const failure = failureInside(body, failureContext);
    if (failure !== undefined) throw failure;
    const results = isFields(body) && isFields(body.results) ? body.results : {};
    const channel: unknown = Array.isArray(results.channels) ? results.channels[0] : undefined;
    if (!isFields(channel)) throw brokenAnswer("no transcript");
    // A silent recording has no alternative.
    const [alternative = {}] = Array.isArray(channel.alternatives) ? channel.alternatives : [];
    const { transcript = "" } = alternative;
    if (typeof transcript !== "string") throw brokenAnswer("no transcript");
    const { detected_language: detected } = channel;
    const timedText = {
      text: transcript,
      language: typeof detected === "string" ? detected : language,
      words: numberedWords(alternative.words, (entry) => entry.punctuated_word ?? entry.word),
      segments: utterancesOf(results.utterances),
      seconds: isFields(body) && isFields(body.metadata) && body.metadata.duration,
    };
    return timedTranscript(timedText, needs);
  },
);

function utterancesOf(raw: unknown): TranscriptSegment[] | undefined {
  if (!Array.isArray(raw) || raw.length === 0) return undefined;
  return raw.filter(isFields).flatMap(({ start, end, transcript, speaker }, id) => {
    if (!isTime(start) || !isTime(end) || typeof transcript !== "string") return [];
    return { id, start, end, text: transcript, ...numberedSpeaker(speaker) };
  });
}
