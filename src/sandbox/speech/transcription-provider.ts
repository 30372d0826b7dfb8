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
 * The text of what the sandbox itself spoke, as its file tells; of other sounds, what they are. Times are those
 * at which the sandbox would speak the words, stretched to the measured duration. Throws ProviderFailure.
 */
export async function sandboxTranscribe(
  call: TranscriptionCall,
): Promise<Transcript | TranscriptStream> {
  if (call.signal.aborted) throw aborted(call.signal);
  const model = call.model.replace(/^sandbox\//, "");
  if (model !== MODEL) throw unknownModel(model, "transcription");
  const heard = (await findSpokenText(call.file.stream())) ?? descriptionOf(call);
  const isTranslation = call.task === "translate";
  const text = isTranslation ? `Translated into English: ${heard}` : heard;
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
  return `This is a sound of ${seconds} seconds in the format ${format}.`;
}

function transcriptOf(text: string, call: TranscriptionCall, language: string): Transcript {
  const { words, totalSamples } = utter(text, NORMAL_SPEED);
  const secondsOf = (samples: number) => {
    const share = samples / Math.max(totalSamples, SAMPLE_RATE / 1000);
    return Math.round(share * call.durationMs) / 1000;
  };
  const segments: TranscriptSegment[] = [];
  const speaker = call.needs.speakers ? { speaker: SPEAKER } : {};
  let said: string[] = [];
  let start = 0;
  for (const { word, start: from, end, endsSentence } of words) {
    if (said.length === 0) start = from;
    said.push(word);
    if (!endsSentence) continue;
    const times = { start: secondsOf(start), end: secondsOf(end) };
    segments.push({ id: segments.length, text: said.join(" "), ...times, ...speaker });
    said = [];
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

/** As OpenAI's first model names them: in English, in small letters. */
function languageName(code: string): string {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code)?.toLowerCase() ?? code;
  } catch {
    return code;
  }
}

/** A piece for each word; the pieces of text make up the whole. */
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
