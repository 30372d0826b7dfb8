import { jsonValue } from "../../lib/json.ts";
import type { PieceReader } from "../interface.ts";
import type { Speech, SpeechCall, SpeechFormat } from "../media.ts";
import { MAX_WHOLE_AS_STREAM_BYTES, readWhole } from "../transport/bounded-body.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { isJson, type ProviderResponse } from "../transport/provider-response.ts";

export const SOUND_TYPES: Readonly<Record<SpeechFormat, string>> = {
  mp3: "audio/mpeg",
  opus: "audio/opus",
  aac: "audio/aac",
  flac: "audio/flac",
  wav: "audio/wav",
  pcm: "audio/pcm",
};

/** An audio content type with its parameters. If proxies have duplicated the field, the first value counts. */
const STATED_SOUND =
  /^\s*(audio\/[\w.+-]{1,50}(?:\s*;\s*[\w-]{1,20}=[\w.+-]{1,20}){0,4})\s*(?:,|$)/i;
/** Content types that servers send for bytes of unknown type. */
const ANY_BYTES = /^\s*(?:application\/(?:octet-stream|ogg)|binary\/octet-stream)\s*(?:[;,]|$)/i;

/**
 * Returns the audio in a response with a success status. Rejects with ProviderFailure if the body is not audio: with
 * the error that `errorIn` finds in JSON, if any.
 */
export async function soundOf(
  response: ProviderResponse,
  call: Pick<SpeechCall, "format" | "abortNotice" | "signal">,
  errorIn: (body: unknown) => Error | undefined,
): Promise<Speech> {
  const stated = response.headers.get("content-type");
  const type = stated === null ? null : (STATED_SOUND.exec(stated)?.[1] ?? null);
  if (type === null && stated !== null && !ANY_BYTES.test(stated)) {
    if (isJson(stated))
      throw (await failureIn(response, errorIn)) ?? brokenAnswer("JSON and no sound");
    response.body?.cancel().catch(() => undefined);
    throw brokenAnswer("a content type that is not audio");
  }
  const bytes = response.reader?.() ?? response.body?.getReader();
  if (bytes === undefined) throw brokenAnswer("an empty body");
  const reader = new SoundReader(bytes, call.abortNotice ?? call.signal);
  return {
    contentType: type ?? SOUND_TYPES[call.format],
    reader: () => reader,
    usage: () => undefined,
  };
}

async function failureIn(
  response: ProviderResponse,
  errorIn: (body: unknown) => Error | undefined,
): Promise<Error | undefined> {
  const text = await readWhole(response, MAX_WHOLE_AS_STREAM_BYTES);
  return text === undefined ? undefined : errorIn(jsonValue(text));
}

/** Reads the bytes of a body as they arrive. */
class SoundReader implements PieceReader {
  readonly #bytes: PieceReader;
  readonly #signal: AbortNotice;

  constructor(bytes: PieceReader, signal: AbortNotice) {
    this.#bytes = bytes;
    this.#signal = signal;
  }

  get isOver(): boolean {
    return this.#bytes.isOver === true;
  }

  take(): Uint8Array | undefined {
    return this.#bytes.take?.();
  }

  async read(): ReturnType<PieceReader["read"]> {
    try {
      return await this.#bytes.read();
    } catch (error) {
      throw failureOfThrown(error, this.#signal);
    }
  }

  cancel(): Promise<void> {
    return this.#bytes.cancel();
  }
}
