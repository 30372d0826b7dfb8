import { type AacForm, aacForm, aacSound } from "./aac.ts";
import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";
import { type FlacStream, flacFrameSeconds, flacLength, flacStream } from "./flac.ts";
import type { MeasuredSound } from "./measured-sound.ts";
import { mpegSoundIn } from "./mpeg.ts";
import { opusSamples, opusSeconds } from "./opus.ts";

/** The MP4 audio codecs whose samples have a known length. */
export type SampleCodec =
  | { readonly name: "aac"; readonly form: AacForm }
  | { readonly name: "mpeg" }
  | { readonly name: "opus"; readonly channels: number }
  | { readonly name: "flac"; readonly stream: FlacStream }
  | { readonly name: "alac"; readonly rate: number; readonly frameSamples: number };

export interface PacketReader {
  take(bytes: ByteWindow, start: number, end: number): void;
  sound(): MeasuredSound;
}

const MAX_DESCRIPTION_BYTES = 65_536;
const AAC_TYPES: ReadonlySet<number> = new Set([0x40, 0x66, 0x67, 0x68]);
const MPEG_TYPES: ReadonlySet<number> = new Set([0x69, 0x6b]);
const CODEC_BOX_HEADING = 8;

/**
 * Parses a sample description. Returns undefined if it does not describe audio. Throws UnmeasurableSound if there
 * are several, if the codec's description occurs twice, or if the codec is not supported here.
 */
export function sampleCodec(
  bytes: ByteWindow,
  start: number,
  end: number,
): SampleCodec | undefined {
  const name = bytes.text(start + 12, 4);
  const isSound = /^(?:mp4a|\.mp3|Opus|fLaC|alac)$/.test(name);
  if (!isSound) return undefined;
  if (bytes.number(start + 4, 4) !== 1 || end - start > MAX_DESCRIPTION_BYTES) {
    throw new UnmeasurableSound();
  }
  const text = bytes.text(start, end - start);
  const channels = Math.max(1, bytes.number(start + 32, 2));
  if (name === ".mp3") return { name: "mpeg" };
  if (name === "Opus") return { name: "opus", channels };
  const boxName = { mp4a: "esds", fLaC: "dfLa", alac: "alac" }[name] ?? "";
  const from = text.indexOf(boxName, 16);
  if (from < 0 || text.indexOf(boxName, from + 4) >= 0) throw new UnmeasurableSound();
  const box = start + from + CODEC_BOX_HEADING;
  if (name === "fLaC") return { name: "flac", stream: flacStream(bytes, box + 4) };
  if (name === "alac") return alacCodec(bytes, box, bytes.number(start + 40, 2));
  return elementaryCodec(bytes, box, start + from - 4 + bytes.number(start + from - 4, 4));
}

/** Parses Apple's codec description (the "magic cookie"). */
function alacCodec(bytes: ByteWindow, box: number, statedRate: number): SampleCodec {
  const frameSamples = bytes.number(box, 4);
  const rates = [bytes.number(box + 20, 4), statedRate].filter((rate) => rate > 0);
  if (rates.length === 0 || frameSamples === 0) throw new UnmeasurableSound();
  return { name: "alac", rate: Math.min(...rates), frameSamples };
}

const STREAM_DESCRIPTION = 3;
const DECODER_DESCRIPTION = 4;
const DECODER_SETTINGS = 5;
const MAX_SETTINGS_BYTES = 64;

/** Parses the descriptors of an elementary stream (ISO/IEC 14496-1, section 7.2.6). */
function elementaryCodec(bytes: ByteWindow, start: number, end: number): SampleCodec {
  let position = start;
  const descriptor = (tag: number): number => {
    if (bytes.byte(position++) !== tag) throw new UnmeasurableSound();
    let length = 0;
    for (let at = 0; at < 4; at++) {
      const byte = bytes.byte(position++);
      length = length * 128 + (byte & 0x7f);
      if (byte < 0x80) break;
    }
    if (position + length > end) throw new UnmeasurableSound();
    return length;
  };
  descriptor(STREAM_DESCRIPTION);
  const flags = bytes.byte(position + 2);
  position += 3 + (flags & 0x80 ? 2 : 0);
  if (flags & 0x40) position += 1 + bytes.byte(position);
  if (flags & 0x20) position += 2;
  descriptor(DECODER_DESCRIPTION);
  const type = bytes.byte(position);
  if (MPEG_TYPES.has(type)) return { name: "mpeg" };
  if (!AAC_TYPES.has(type)) throw new UnmeasurableSound();
  position += 13;
  const length = Math.min(descriptor(DECODER_SETTINGS), MAX_SETTINGS_BYTES);
  const settings = Uint8Array.from({ length }, (_, at) => bytes.byte(position + at));
  return { name: "aac", form: aacForm(settings) };
}

/** Returns a reader that adds up the samples of a track. */
export function packetReader(codec: SampleCodec): PacketReader {
  let count = 0;
  let size = 0;
  let total = 0;
  const counting = (sound: () => MeasuredSound): PacketReader => ({
    take(_bytes, start, end) {
      count++;
      size += end - start;
    },
    sound,
  });
  const reading = (
    read: (bytes: ByteWindow, start: number, end: number) => number,
    sound: () => MeasuredSound,
  ): PacketReader => ({
    take(bytes, start, end) {
      total += read(bytes, start, end);
      size += end - start;
    },
    sound,
  });
  const plain = (seconds: number) => ({ seconds, longestSeconds: seconds });
  switch (codec.name) {
    case "aac":
      return counting(() => aacSound(count, size, codec.form));
    case "alac":
      return counting(() => plain((count * codec.frameSamples) / codec.rate));
    case "opus":
      return reading(
        (bytes, start) => opusSamples(bytes.byte(start), bytes.byte(start + 1)),
        () => plain(opusSeconds(total, size, codec.channels)),
      );
    case "flac":
      return reading(
        (bytes, start, end) => flacFrameSeconds(bytes, start, end, codec.stream.rate),
        () => flacLength(total, size, codec.stream),
      );
    case "mpeg":
      return reading(
        (bytes, start, end) => mpegSoundIn(bytes, start, end).seconds,
        () => plain(total),
      );
  }
}
