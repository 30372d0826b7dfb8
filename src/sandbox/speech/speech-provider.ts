import type { Clock } from "../../lib/clock.ts";
import { SOUND_TYPES } from "../../providers/audio/sound-answer.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Speech, SpeechCall, SpeechFormat } from "../../providers/media.ts";
import { SLOW_TOKEN_DELAY_MS, TOKENS_BEFORE_BREAK, unknownModel } from "../drills.ts";
import { GeneratedPieces } from "../generated-pieces.ts";
import { aborted, waitOn } from "../wait.ts";
import { aacClip, mp3Clip } from "./clips.ts";
import { flacEncoder } from "./flac.ts";
import { opusEncoder } from "./ogg-opus.ts";
import type { SpeechEncoder, SpeechFacts } from "./speech-encoder.ts";
import { spokenTextMark } from "./spoken-text.ts";
import { Synthesiser } from "./synthesiser.ts";
import { type Utterance, utter } from "./utterance.ts";
import { pcmEncoder, waveEncoder } from "./wave.ts";

interface SpeechPace {
  /** Delay before each piece. */
  readonly delayMs: number;
  readonly breaksAfterPieces: number;
}

const STEADY: SpeechPace = { delayMs: 0, breaksAfterPieces: Number.POSITIVE_INFINITY };

const MODELS: ReadonlyMap<string, SpeechPace> = new Map([
  ["tts", STEADY],
  ["tts-slow", { ...STEADY, delayMs: SLOW_TOKEN_DELAY_MS }],
  ["tts-cut", { ...STEADY, breaksAfterPieces: TOKENS_BEFORE_BREAK }],
]);

const ENCODERS: Readonly<
  Record<SpeechFormat, (facts: SpeechFacts) => SpeechEncoder | Promise<SpeechEncoder>>
> = {
  mp3: mp3Clip,
  opus: opusEncoder,
  aac: aacClip,
  flac: flacEncoder,
  wav: waveEncoder,
  pcm: pcmEncoder,
};

const MAX_CHARACTERS = 4096;
const MIN_SPEED = 0.25;
const MAX_SPEED = 4;
/** Minimum samples of a piece: a fifth of a second of audio, which takes some milliseconds to create. */
const PIECE_SAMPLES = 4_800;

/**
 * Returns speech by formant synthesis, or a recording in MP3 and AAC, created while it is read. The same call gets the
 * same bytes. The file contains the text in a tag (see `spoken-text.ts`), except for `pcm`, which has no tags. Throws
 * ProviderFailure.
 */
export async function sandboxSpeak(call: SpeechCall, clock: Clock): Promise<Speech> {
  if (call.signal.aborted) throw aborted(call.signal);
  const model = call.model.replace(/^sandbox\//, "");
  const pace = MODELS.get(model);
  if (pace === undefined) throw unknownModel(model, "speech");
  const { input, speed = 1 } = call;
  if (Array.from(input).length > MAX_CHARACTERS) {
    throw rejected("input", `the input has more than ${MAX_CHARACTERS} characters`);
  }
  if (!(speed >= MIN_SPEED && speed <= MAX_SPEED)) {
    throw rejected("speed", `the speed must be from ${MIN_SPEED} to ${MAX_SPEED}`);
  }
  const utterance = utter(input, speed);
  const facts = { totalSamples: utterance.totalSamples, comment: spokenTextMark(input) };
  return {
    contentType: SOUND_TYPES[call.format],
    reader: () =>
      new GeneratedPieces(async function* (stop) {
        const encoder = await ENCODERS[call.format](facts);
        try {
          yield* paced(piecesOf(utterance, call.voice, encoder), pace, clock, stop);
        } finally {
          encoder.close?.();
        }
      }, call.signal),
    usage: () => undefined,
  };
}

async function* paced(
  pieces: Iterable<Uint8Array>,
  { delayMs, breaksAfterPieces }: SpeechPace,
  clock: Clock,
  stop: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  let sent = 0;
  for (const piece of pieces) {
    if (sent >= breaksAfterPieces) {
      throw new ProviderFailure("unavailable", "the speech was cut off");
    }
    if (delayMs > 0) await waitOn(clock, delayMs, stop);
    yield piece;
    sent++;
  }
}

function* piecesOf(
  utterance: Utterance,
  voice: string,
  encoder: SpeechEncoder,
): Generator<Uint8Array, void> {
  const { frameSamples } = encoder;
  const totalSamples = utterance.totalSamples + encoder.trailingSamples;
  const synthesiser = new Synthesiser(utterance, voice);
  const samples = new Int16Array(frameSamples);
  let parts = [encoder.head()];
  let samplesInPiece = 0;
  for (let offset = 0; offset < totalSamples; offset += frameSamples) {
    const frame = samples.subarray(0, Math.min(frameSamples, totalSamples - offset));
    if (!encoder.isRecording) synthesiser.fill(frame);
    parts.push(encoder.encode(frame, offset + frameSamples >= totalSamples));
    samplesInPiece += frame.length;
    if (samplesInPiece < PIECE_SAMPLES) continue;
    yield Buffer.concat(parts);
    parts = [];
    samplesInPiece = 0;
  }
  if (parts.length > 0) yield Buffer.concat(parts);
}

function rejected(param: string, what: string): ProviderFailure {
  return new ProviderFailure("rejected", what, { status: 400, param });
}
