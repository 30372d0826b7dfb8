import { type ByteSource, ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { flacSound } from "./flac.ts";
import { assertNoForeignFrames } from "./foreign-frames.ts";
import { matroskaSound } from "./matroska.ts";
import type { MeasuredSound } from "./measured-sound.ts";
import { mp4Sound } from "./mp4.ts";
import { id3End, mpegSound } from "./mpeg.ts";
import { oggSound } from "./ogg.ts";
import { programStreamSound } from "./program-stream.ts";
import { wavSound } from "./wav.ts";

const MS_PER_SECOND = 1_000;
/** Longer than any file of 25 MB plays. A file that states more is not audio. */
const MAX_SECONDS = 1_000_000;

/** The duration of audio in milliseconds. */
export interface SoundLength {
  /** Duration of its packets. The charge is at least for this. */
  readonly durationMs: number;
  /** Longest duration that a provider can report. The hold is for this. */
  readonly longestMs: number;
}

/**
 * Measures audio by the packets of its codec. A longer duration in a header makes the hold larger; a shorter one
 * never makes the charge smaller. Returns undefined if there is no audio, if the codec is unknown, or if the file
 * contradicts itself, so that decoders would play different parts.
 */
export function measureSound(source: ByteSource): SoundLength | undefined {
  let sound: MeasuredSound;
  try {
    sound = soundOf(new ByteWindow(source));
  } catch (error) {
    if (error instanceof UnmeasurableSound) return undefined;
    throw error;
  }
  const { seconds, longestSeconds } = sound;
  if (!Number.isFinite(seconds) || seconds <= 0 || seconds > MAX_SECONDS) return undefined;
  const durationMs = Math.ceil(seconds * MS_PER_SECOND);
  const longest = Math.min(Math.max(seconds, longestSeconds), MAX_SECONDS);
  return { durationMs, longestMs: Math.ceil(longest * MS_PER_SECOND) };
}

const PACK_START = "\0\0\x01\xba";

function soundOf(bytes: ByteWindow): MeasuredSound {
  const magic = bytes.text(0, 4);
  if (magic === "OggS") return oggSound(bytes);
  if (magic === "\x1aE\xdf\xa3") return matroskaSound(bytes);
  if (bytes.text(4, 4) === "ftyp") return mp4Sound(bytes);
  if (magic === PACK_START) return programStreamSound(bytes);
  const start = id3End(bytes);
  if (bytes.text(start, 4) === "fLaC") return flacSound(bytes, start);
  assertNoForeignFrames(bytes);
  if (magic === "RIFF" || magic === "RF64") return wavSound(bytes);
  return mpegSound(bytes, start);
}
