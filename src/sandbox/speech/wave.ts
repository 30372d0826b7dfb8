import { SAMPLE_RATE, type SpeechEncoder, type SpeechFacts } from "./speech-encoder.ts";

const FRAME_SAMPLES = 480;
const SAMPLE_BYTES = 2;
const PCM = 1;

/** Returns an encoder of raw samples: 16 bits, little-endian, without a container. */
export function pcmEncoder(): SpeechEncoder {
  return {
    frameSamples: FRAME_SAMPLES,
    trailingSamples: 0,
    head: () => new Uint8Array(),
    encode: asBytes,
  };
}

/** Returns an encoder of WAV files. The header contains the length and, in its LIST chunk, a comment. */
export function waveEncoder({ totalSamples, comment }: SpeechFacts): SpeechEncoder {
  return { ...pcmEncoder(), head: () => waveHead(totalSamples, comment) };
}

function asBytes(samples: Int16Array): Uint8Array {
  const bytes = Buffer.alloc(samples.length * SAMPLE_BYTES);
  for (const [index, sample] of samples.entries()) bytes.writeInt16LE(sample, index * SAMPLE_BYTES);
  return bytes;
}

function waveHead(totalSamples: number, comment: string): Uint8Array {
  const format = Buffer.alloc(16);
  format.writeUInt16LE(PCM, 0);
  format.writeUInt16LE(1, 2);
  format.writeUInt32LE(SAMPLE_RATE, 4);
  format.writeUInt32LE(SAMPLE_RATE * SAMPLE_BYTES, 8);
  format.writeUInt16LE(SAMPLE_BYTES, 12);
  format.writeUInt16LE(SAMPLE_BYTES * 8, 14);
  const text = Buffer.from(
    `${comment}\0`.padEnd(comment.length + 1 + ((comment.length + 1) % 2), "\0"),
  );
  const list = Buffer.concat([Buffer.from("INFO", "latin1"), chunk("ICMT", text.length), text]);
  const dataBytes = totalSamples * SAMPLE_BYTES;
  const rest = Buffer.concat([
    Buffer.from("WAVE", "latin1"),
    chunk("fmt ", format.length),
    format,
    chunk("LIST", list.length),
    list,
    chunk("data", dataBytes),
  ]);
  return Buffer.concat([chunk("RIFF", rest.length + dataBytes), rest]);
}

/** Returns the head of a chunk. */
function chunk(name: string, length: number): Buffer {
  const head = Buffer.alloc(8);
  head.write(name, "latin1");
  head.writeUInt32LE(length, 4);
  return head;
}
