import type { ByteWindow } from "./byte-window.ts";
import { mpegSeconds } from "./mpeg.ts";

/** Codes of formats (mmreg.h). */
const PCM = 0x0001;
const MS_ADPCM = 0x0002;
const FLOAT = 0x0003;
const A_LAW = 0x0006;
const MU_LAW = 0x0007;
const IMA_ADPCM = 0x0011;
const GSM = 0x0031;
const MP3 = 0x0055;
const EXTENSIBLE = 0xfffe;

const MAX_RATE = 768_000;
const MAX_CHANNELS = 64;

interface Format {
  readonly code: number;
  readonly channels: number;
  readonly rate: number;
  readonly blockBytes: number;
  readonly bits: number;
}

/**
 * WAVE: the samples in its data, which may come in several chunks. A length of 0, or one beyond the end of the
 * file, as live recordings have, stands for all that follows. Of two formats readers take one or the other, so
 * that such a file is none.
 */
export function wavSeconds(bytes: ByteWindow): number {
  if (bytes.text(8, 4) !== "WAVE") return 0;
  let format: Format | undefined;
  let seconds = 0;
  for (let position = 12; position + 8 <= bytes.sizeBytes; ) {
    const name = bytes.text(position, 4);
    const stated = bytes.littleEndian(position + 4, 4);
    const start = position + 8;
    let length = stated;
    if (name === "fmt ") {
      if (format !== undefined) return 0;
      format = formatAt(bytes, start);
    }
    if (name === "data") {
      const left = bytes.sizeBytes - start;
      if (format === undefined) return 0;
      length = stated === 0 ? left : Math.min(stated, left);
      seconds += dataSeconds(bytes, start, length, format);
    }
    position = start + length + (length % 2);
  }
  return seconds;
}

function formatAt(bytes: ByteWindow, start: number): Format {
  const code = bytes.littleEndian(start, 2);
  return {
    // The code stands at the beginning of the identifier of the extended form.
    code: code === EXTENSIBLE ? bytes.littleEndian(start + 24, 2) : code,
    channels: bytes.littleEndian(start + 2, 2),
    rate: bytes.littleEndian(start + 4, 4),
    blockBytes: bytes.littleEndian(start + 12, 2),
    bits: bytes.littleEndian(start + 14, 2),
  };
}

function dataSeconds(bytes: ByteWindow, start: number, length: number, format: Format): number {
  const { code, channels, rate } = format;
  if (code === MP3) return mpegSeconds(bytes, start, start + length);
  if (rate < 1 || rate > MAX_RATE || channels < 1 || channels > MAX_CHANNELS) return 0;
  return (length * samplesPerByte(format)) / rate;
}

/** Of all channels at once; 0 where the format is not known. */
function samplesPerByte({ code, channels, blockBytes, bits }: Format): number {
  switch (code) {
    case PCM:
    case FLOAT:
      return bits < 1 || bits > 64 ? 0 : 1 / (channels * Math.ceil(bits / 8));
    case A_LAW:
    case MU_LAW:
      return 1 / channels;
    case IMA_ADPCM:
      return perBlock(((blockBytes - 4 * channels) * 2) / channels + 1, blockBytes);
    case MS_ADPCM:
      return perBlock(((blockBytes - 7 * channels) * 2) / channels + 2, blockBytes);
    case GSM:
      return 320 / 65;
    default:
      return 0;
  }
}

function perBlock(samples: number, blockBytes: number): number {
  return samples <= 0 || blockBytes === 0 ? 0 : samples / blockBytes;
}
