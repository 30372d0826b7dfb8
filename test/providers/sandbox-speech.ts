import type { Clock } from "../../src/lib/clock.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import type { MediaFile, SpeechCall, SpeechFormat } from "../../src/providers/media.ts";
import { sandboxSpeak } from "../../src/sandbox/speech/speech-provider.ts";

export const SPEECH_FORMATS: readonly SpeechFormat[] = ["mp3", "opus", "aac", "flac", "wav", "pcm"];

export function speechCall(fields: Partial<SpeechCall> = {}): SpeechCall {
  return {
    model: "tts",
    requestId: "request",
    signal: new AbortController().signal,
    input: "Hello there! Is this speech?",
    voice: "alloy",
    format: "wav",
    fields: {},
    ...fields,
  };
}

/** The pieces in which a speech comes, at least so many bytes of it. */
export async function spokenPieces(
  fields: Partial<SpeechCall> = {},
  clock: Clock = new VirtualClock(),
  bytes = Number.POSITIVE_INFINITY,
): Promise<Uint8Array[]> {
  const speech = await sandboxSpeak(speechCall(fields), clock);
  const reader = speech.reader();
  const pieces: Uint8Array[] = [];
  let length = 0;
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    pieces.push(read.value!);
    length += read.value!.length;
    if (length >= bytes) await reader.cancel();
  }
  return pieces;
}

export async function spoken(fields: Partial<SpeechCall> = {}): Promise<Buffer> {
  return Buffer.concat(await spokenPieces(fields));
}

/** The samples of a speech, without a container. */
export async function samplesOf(fields: Partial<SpeechCall> = {}): Promise<Int16Array> {
  const bytes = await spoken({ ...fields, format: "pcm" });
  return Int16Array.from({ length: bytes.length / 2 }, (_, at) => bytes.readInt16LE(at * 2));
}

export function soundFile(bytes: Uint8Array, contentType = "audio/mpeg"): MediaFile {
  return {
    name: "speech.mp3",
    contentType,
    sizeBytes: bytes.length,
    stream: () => new Blob([bytes as Uint8Array<ArrayBuffer>]).stream(),
    bytes: async () => bytes,
  };
}
