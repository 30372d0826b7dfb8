import { type ByteWindow, UnmeasurableSound } from "./byte-window.ts";

/** Consecutive frames, or sync words, that do not occur by chance in other data. */
const SURE_COUNT = 4;
const AC3_KILOBITS = [
  32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640,
];
const AC3_RATES = [48, 44.1, 32];

/**
 * Throws UnmeasurableSound if bytes contain frames of AC-3, DTS or TrueHD, which the gateway cannot measure.
 * Decoders find them in files that claim to be WAV or MP3.
 */
export function assertNoForeignFrames(bytes: ByteWindow): void {
  let word = 0;
  let marks = 0;
  let run = 0;
  let next = -1;
  for (let position = 0; position < bytes.sizeBytes; position++) {
    word = ((word << 8) | bytes.byte(position)) >>> 0;
    if (isMark(word) && ++marks >= SURE_COUNT) throw new UnmeasurableSound();
    if ((word & 0xffff) !== 0x0b77) continue;
    const start = position - 1;
    run = start === next ? run + 1 : 1;
    if (run >= SURE_COUNT) throw new UnmeasurableSound();
    const length = ac3FrameBytes(bytes, start);
    if (length > 0 && start >= next) next = start + length;
  }
}

/** Returns true if the word begins a frame of DTS, in one of its four forms, or of TrueHD. */
function isMark(word: number): boolean {
  return (
    word === 0x7ffe8001 ||
    word === 0xfe7f0180 ||
    word === 0x1fffe800 ||
    word === 0xff1f00e8 ||
    word === 0xf8726fba
  );
}

/** Returns the frame size from an AC-3 or E-AC-3 header (ETSI TS 102 366), or 0 if the header is neither. */
function ac3FrameBytes(bytes: ByteWindow, start: number): number {
  const version = bytes.byte(start + 5) >> 3;
  if (version > 10) return ((bytes.number(start + 2, 2) & 0x7ff) + 1) * 2;
  const code = bytes.byte(start + 4);
  const kilobits = AC3_KILOBITS[(code & 63) >> 1];
  const rate = AC3_RATES[code >> 6];
  if (kilobits === undefined || rate === undefined) return 0;
  const isPadded = rate === 44.1 && (code & 1) === 1;
  return Math.floor((kilobits * 96) / rate) * 2 + (isPadded ? 2 : 0);
}
