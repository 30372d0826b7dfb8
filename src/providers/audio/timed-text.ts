import { isFields } from "../../lib/json.ts";
import type { Transcript, TranscriptionCall, TranscriptSegment, TranscriptWord } from "../media.ts";

/** A timed word, with the text between it and the previous word. */
export interface TimedWord extends TranscriptWord {
  readonly space: string;
}

interface TimedText {
  readonly text: string;
  readonly language: string | undefined;
  readonly words: readonly TimedWord[];
  /** The provider's segments. Undefined if it reports none. */
  readonly segments?: readonly TranscriptSegment[] | undefined;
  /** The reported length of the recording. */
  readonly seconds: unknown;
}

/** Returns a transcript with the requested details. Builds segments from the words if `segments` is undefined. */
export function timedTranscript(
  { text, language, words, segments, seconds }: TimedText,
  needs: TranscriptionCall["needs"],
): Transcript {
  return {
    kind: "transcript",
    text,
    language,
    ...(needs.words && { words: words.map(plainWord) }),
    ...((needs.segments || needs.speakers) && { segments: segments ?? segmentsOfWords(words) }),
    usage: undefined,
    ...reportedMsOf(seconds),
  };
}

/** Returns the words of a list whose speakers are numbers. Skips entries without text or times. */
export function numberedWords(
  raw: unknown,
  textOf: (entry: Readonly<Record<string, unknown>>) => unknown,
): TimedWord[] {
  return (Array.isArray(raw) ? raw : []).flatMap((entry: unknown) => {
    if (!isFields(entry) || !isTime(entry.start) || !isTime(entry.end)) return [];
    const word = textOf(entry);
    if (typeof word !== "string") return [];
    const { start, end, speaker } = entry;
    return { word, start, end, space: " ", ...numberedSpeaker(speaker) };
  });
}

export function numberedSpeaker(speaker: unknown): { readonly speaker?: string } {
  return Number.isInteger(speaker) ? { speaker: `speaker_${speaker}` } : {};
}

/** A segment is a sentence. A maximal length, a pause or another speaker ends it too. */
const ENDS_SENTENCE = /[.?!…。?!]["'”’)\]]*$/;
const MAX_SEGMENT_CHARACTERS = 200;
const MAX_SEGMENT_SECONDS = 15;
const PAUSE_SECONDS = 1.5;

function segmentsOfWords(words: readonly TimedWord[]): TranscriptSegment[] {
  const segments: TranscriptSegment[] = [];
  let open: TimedWord[] = [];
  const close = () => {
    if (open.length > 0) segments.push(segmentOf(open, segments.length));
    open = [];
  };
  let characters = 0;
  for (const word of words) {
    const first = open[0];
    const last = open.at(-1);
    if (first !== undefined && last !== undefined) {
      const startsSegment =
        word.speaker !== last.speaker ||
        word.start - last.end > PAUSE_SECONDS ||
        word.end - first.start > MAX_SEGMENT_SECONDS ||
        characters + word.word.length > MAX_SEGMENT_CHARACTERS;
      if (startsSegment || ENDS_SENTENCE.test(last.word)) {
        close();
        characters = 0;
      }
    }
    open.push(word);
    characters += word.space.length + word.word.length;
  }
  close();
  return segments;
}

function segmentOf(words: readonly TimedWord[], id: number): TranscriptSegment {
  const text = words.map(({ space, word }, at) => (at === 0 ? word : space + word)).join("");
  const { start, speaker } = words[0]!;
  return { id, start, end: words.at(-1)!.end, text, ...(speaker !== undefined && { speaker }) };
}

/** Returns a word without the text before it. */
function plainWord({ word, start, end, speaker }: TimedWord): TranscriptWord {
  return { word, start, end, ...(speaker !== undefined && { speaker }) };
}

export function isTime(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** Returns the length that a provider reports in seconds, in milliseconds. Empty if it reports none. */
export function reportedMsOf(...seconds: readonly unknown[]): { readonly reportedMs?: number } {
  const stated = seconds
    .map((value) => (typeof value === "string" ? Number(value) : value))
    .filter(isTime);
  return stated.length === 0 ? {} : { reportedMs: Math.max(...stated) * 1_000 };
}
