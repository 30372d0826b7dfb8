import { type ByteSource, ByteWindow } from "./byte-window.ts";
import { flacSeconds } from "./flac.ts";
import { matroskaSeconds } from "./matroska.ts";
import { mp4Seconds } from "./mp4.ts";
import { id3End, mpegSeconds } from "./mpeg.ts";
import { oggSeconds } from "./ogg.ts";
import { wavSeconds } from "./wav.ts";

const MS_PER_SECOND = 1_000;
/** Longer than any file of 25 MB plays; what claims more is no sound. */
const MAX_SECONDS = 1_000_000;

/**
 * How long a sound plays, in milliseconds, by the frames and samples that are there: what a heading claims of
 * its length counts for nothing. Undefined where there is no sound, or in no form that is known here.
 */
export function measureSound(source: ByteSource): number | undefined {
  const bytes = new ByteWindow(source);
  const seconds = secondsOf(bytes);
  if (!Number.isFinite(seconds) || seconds <= 0 || seconds > MAX_SECONDS) return undefined;
  return Math.ceil(seconds * MS_PER_SECOND);
}

function secondsOf(bytes: ByteWindow): number {
  const magic = bytes.text(0, 4);
  if (magic === "RIFF" || magic === "RF64") return wavSeconds(bytes);
  if (magic === "OggS") return oggSeconds(bytes);
  if (magic === "\x1aE\xdf\xa3") return matroskaSeconds(bytes);
  if (bytes.text(4, 4) === "ftyp") return mp4Seconds(bytes);
  const start = id3End(bytes);
  if (bytes.text(start, 4) === "fLaC") return flacSeconds(bytes, start);
  return mpegSeconds(bytes, start, bytes.sizeBytes);
}
