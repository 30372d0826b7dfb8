import { systemClock } from "../../src/lib/clock.ts";
import {
  type PieceReader,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../../src/providers/interface.ts";
import type {
  MediaFile,
  SpeechCall,
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptStream,
} from "../../src/providers/media.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { type AskedOf, type AskedUpstream, startAskedUpstream } from "./asked-upstream.ts";

interface AudioRequest {
  readonly bytes: Uint8Array;
  json(): Record<string, unknown>;
  /** Files as `name text`. */
  form(): Promise<Record<string, string | string[]>>;
}

export type AskedForAudio = AskedOf & AudioRequest;
export type AudioUpstream = AskedUpstream<AskedForAudio>;

export function startAudioUpstream(): AudioUpstream {
  return startAskedUpstream<AudioRequest>(async (request) => {
    const { headers } = request;
    const bytes = await request.bytes();
    return {
      bytes,
      json: () => JSON.parse(new TextDecoder().decode(bytes)),
      form: () => formOf(bytes, headers),
    };
  });
}

async function formOf(bytes: Uint8Array, headers: Headers) {
  const form = await new Response(new Uint8Array(bytes), { headers }).formData();
  const entries: Record<string, string | string[]> = {};
  for (const name of new Set(form.keys())) {
    const values = await Promise.all(form.getAll(name).map(shown));
    entries[name] = values.length === 1 ? values[0]! : values;
  }
  return entries;
}

async function shown(value: string | File): Promise<string> {
  return typeof value === "string" ? value : `${value.name} ${await value.text()}`;
}

export const AUDIO_KEY = "sk-secret-of-audio-0123456789";

/** A provider of that type at the server. */
export function audioProvider(
  type: string,
  baseUrl: string,
  more: Partial<ProviderSettings> = {},
): Provider {
  const settings = { id: "p", type, baseUrl, apiKey: AUDIO_KEY, connectTimeoutMs: 2_000, ...more };
  const httpClient = createHttpClient({ clock: systemClock });
  return createProviders([settings], {
    clock: systemClock,
    httpClient,
    providerFactories: {},
  } as never).get("p")!;
}

export function speechCall(model: string, more: Partial<SpeechCall> = {}): SpeechCall {
  return {
    model,
    requestId: "req_1",
    signal: new AbortController().signal,
    input: "Good morning.",
    voice: "alloy",
    format: "mp3",
    fields: {},
    ...more,
  };
}

export function transcriptionCall(
  model: string,
  more: Partial<TranscriptionCall> = {},
): TranscriptionCall {
  return {
    model,
    requestId: "req_1",
    signal: new AbortController().signal,
    task: "transcribe",
    file: soundFile("RIFF of a wave"),
    durationMs: 2_500,
    needs: { words: false, segments: false, speakers: false },
    stream: false,
    fields: {},
    ...more,
  };
}

/** A file of a request, read in pieces of five bytes. */
function soundFile(text: string): MediaFile {
  const bytes = new TextEncoder().encode(text);
  return {
    name: "talk.wav",
    contentType: "audio/wav",
    sizeBytes: bytes.length,
    stream: () =>
      new ReadableStream({
        start(controller) {
          for (let at = 0; at < bytes.length; at += 5)
            controller.enqueue(bytes.subarray(at, at + 5));
          controller.close();
        },
      }),
    bytes: async () => bytes,
  };
}

/** All pieces of a reader, and what it rejected with, if it did. */
export async function readAll<Piece>(
  reader: PieceReader<Piece>,
): Promise<{ pieces: Piece[]; failure?: unknown }> {
  const pieces: Piece[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { pieces };
      if (value !== undefined) pieces.push(value);
    }
  } catch (failure) {
    return { pieces, failure };
  }
}

export async function transcriptOf(
  answer: Promise<Transcript | TranscriptStream>,
): Promise<Transcript> {
  const transcript = await answer;
  if (transcript.kind !== "transcript") throw new Error("the answer is a stream");
  return transcript;
}

export async function transcriptEventsOf(
  answer: Promise<Transcript | TranscriptStream>,
): Promise<TranscriptEvent[]> {
  const stream = await answer;
  if (stream.kind !== "transcript-events") throw new Error("the answer is no stream");
  const { pieces, failure } = await readAll(stream.reader());
  if (failure !== undefined) throw failure;
  return pieces.flat();
}

/** The failure of a call that must fail; the key is never in it. */
export async function audioFailureOf(answer: Promise<unknown>): Promise<ProviderFailure> {
  try {
    await answer;
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    if (error.message.includes(AUDIO_KEY)) throw new Error("the failure tells the key");
    return error;
  }
  throw new Error("the call did not fail");
}
