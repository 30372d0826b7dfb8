import clips from "./clips.json" with { type: "json" };
import type { SpeechEncoder, SpeechFacts } from "./speech-encoder.ts";
import { id3Comment } from "./spoken-text.ts";

/** Bytes of an MP3 frame of MPEG-2, layer III, at 64 kbit/s and 24 kHz. */
const MP3_FRAME_BYTES = 192;

/** Returns a recording in MP3 that lasts as long as the speech: see `clipEncoder`. */
export function mp3Clip(facts: SpeechFacts): SpeechEncoder {
  return clipEncoder(facts, clips.mp3, 576, () => MP3_FRAME_BYTES);
}

/** Returns a recording in AAC-LC with ADTS that lasts as long as the speech: see `clipEncoder`. */
export function aacClip(facts: SpeechFacts): SpeechEncoder {
  return clipEncoder(facts, clips.aac, 1_024, adtsFrameBytes);
}

/**
 * Returns an encoder that sends the frames of a recorded clip, again and again. The clip says
 * "Sandbox recording". Its frames can be decoded in any order.
 */
function clipEncoder(
  { comment }: SpeechFacts,
  clip: string,
  frameSamples: number,
  frameBytes: (bytes: Uint8Array) => number,
): SpeechEncoder {
  const bytes = Buffer.from(clip, "base64");
  let offset = 0;
  return {
    isRecording: true,
    frameSamples,
    // Decoders drop up to two frames at the beginning.
    trailingSamples: 2 * frameSamples,
    head: () => id3Comment(comment),
    encode() {
      const frame = bytes.subarray(offset, offset + frameBytes(bytes.subarray(offset)));
      offset = (offset + frame.length) % bytes.length;
      return frame;
    },
  };
}

/** Returns the length that an ADTS header states (ISO 13818-7). */
function adtsFrameBytes(bytes: Uint8Array): number {
  return ((bytes[3]! & 3) << 11) | (bytes[4]! << 3) | (bytes[5]! >> 5);
}
