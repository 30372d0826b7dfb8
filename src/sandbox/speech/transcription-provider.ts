import type {
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptSegment,
  TranscriptStream,
} from "../../providers/media.ts";
import { unknownModel } from "../drills.ts";
import { GeneratedPieces } from "../generated-pieces.ts";
import { aborted } from "../wait.ts";
import { SAMPLE_RATE } from "./speech-encoder.ts";
import { findSpokenText } from "./spoken-text.ts";
import { utter } from "./utterance.ts";

const MODEL = "stt";
const SPEAKER = "A";
const ENGLISH = "en";
const NORMAL_SPEED = 1;

/**
 * Transcribes a file. For the sandbox's own speech it returns the text in the file's tag, for other audio a
 * description of the file. Word times are those of the sandbox's speech, stretched to the measured duration.
 * Throws ProviderFailure if the model is unknown or the call is aborted.
 */
export async function sandboxTranscribe(
  call: TranscriptionCall,
): Promise<Transcript | TranscriptStream> {
  if (call.signal.aborted) throw aborted(call.signal);
  const model = call.model.replace(/^sandbox\//, "");
  if (model !== MODEL) throw unknownModel(model, "transcription");
  const original = (await findSpokenText(call.file.stream())) ?? descriptionOf(call);
  const isTranslation = call.task === "translate";
  const text = isTranslation ? `Translated into English: ${original}` : original;
  const transcript = transcriptOf(text, call, isTranslation ? ENGLISH : (call.language ?? ENGLISH));
  if (!call.stream) return transcript;
  return {
    kind: "transcript-events",
    reader: () => new GeneratedPieces(() => eventsOf(transcript, call), call.signal),
  };
}

function descriptionOf({ file, durationMs }: TranscriptionCall): string {
  const format = file.contentType.replace(/^(audio|video)\//, "");
  const seconds = (durationMs / 1000).toFixed(1);
  return `This is audio of ${seconds} seconds in the format ${format}.`;
}

function transcriptOf(text: string, call: TranscriptionCall, language: string): Transcript {
  const { words, totalSamples } = utter(text, NORMAL_SPEED);
  const secondsOf = (samples: number) => {
    const share = samples / Math.max(totalSamples, SAMPLE_RATE / 1000);
    return Math.round(share * call.durationMs) / 1000;
  };
  const segments: TranscriptSegment[] = [];
  const speaker = call.needs.speakers ? { speaker: SPEAKER } : {};
  let sentenceWords: string[] = [];
  let start = 0;
  for (const { word, start: from, end, endsSentence } of words) {
    if (sentenceWords.length === 0) start = from;
    sentenceWords.push(word);
    if (!endsSentence) continue;
    const times = { start: secondsOf(start), end: secondsOf(end) };
    segments.push({ id: segments.length, text: sentenceWords.join(" "), ...times, ...speaker });
    sentenceWords = [];
  }
  const timedWords = words.map(({ word, start: from, end }) => {
    return { word, start: secondsOf(from), end: secondsOf(end), ...speaker };
  });
  const { needs } = call;
  return {
    kind: "transcript",
    text,
    language: languageName(language),
    ...((needs.segments || needs.speakers) && { segments }),
    ...(needs.words && { words: timedWords }),
    usage: undefined,
  };
}

/** Returns a language name in English and lower case, as OpenAI's first model reports it. */
function languageName(code: string): string {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code)?.toLowerCase() ?? code;
  } catch {
    return code;
  }
}

/** Yields a piece for each word. The concatenated pieces are the text. */
async function* eventsOf(
  transcript: Transcript,
  { needs }: TranscriptionCall,
): AsyncGenerator<readonly TranscriptEvent[], void> {
  for (const text of transcript.text.match(/^\s*\S+\s*|\S+\s*/gu) ?? [transcript.text]) {
    yield [{ type: "text", text }];
  }
  if (needs.speakers) {
    yield (transcript.segments ?? []).map((segment) => ({ type: "segment", segment }));
  }
  yield [{ type: "done", transcript }];
}
