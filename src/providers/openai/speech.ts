import type { Usage } from "../../lib/usage.ts";
import { SOUND_TYPES, soundOf } from "../audio/sound-answer.ts";
import {
  nextPiece,
  type PieceReader,
  type ProviderFailure,
  type ProviderSettings,
} from "../interface.ts";
import type { Speech, SpeechCall } from "../media.ts";
import { SseDecoder } from "../sse-decoder.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import type { HttpJsonProvider } from "../transport/http-json-provider.ts";
import type { ProviderResponse } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";
import { failureInside, failureOfErrorBody } from "./failure-mapping.ts";

/** Models that OpenAI bills by character and that have no event stream. */
const BY_CHARACTER = /(?:^|\/)tts-1/;
const EVENT_STREAM = /^\s*text\/event-stream\s*(?:[;,]|$)/i;

/**
 * Returns a function that creates speech with OpenAI's API
 * (https://platform.openai.com/docs/api-reference/audio/createSpeech). It rejects with ProviderFailure. OpenAI reports
 * the tokens of speech only in its event stream. If tokens have a price, its newer models are asked for that stream,
 * and the audio in it is decoded.
 */
export function openAiSpeak(
  wire: HttpJsonProvider,
  settings: ProviderSettings,
): (call: SpeechCall) => Promise<Speech> {
  const url = endpointUrl(settings.baseUrl, "/audio/speech");
  const hasEvents = speaksInEvents(settings);
  return async (call) => {
    const isEventModel = ![call.model, call.modelId ?? ""].some((name) => BY_CHARACTER.test(name));
    const requestsEvents = hasEvents && isEventModel && call.needsUsage === true;
    const response = await wire.post(url, speechBody(call, requestsEvents), call);
    const isEvents = EVENT_STREAM.test(response.headers.get("content-type") ?? "");
    if (isEvents) return decodedSpeech(response, call, wire);
    return soundOf(response, call, (value) => failureInside(value, wire.failureContext));
  };
}

/**
 * Returns true if the provider can stream speech as events. Of Azure's APIs only the one without versions is known to
 * do so.
 */
function speaksInEvents({ type, baseUrl }: ProviderSettings): boolean {
  return (
    type === "openai" || (type === "azure" && new URL(baseUrl).pathname.endsWith("/openai/v1"))
  );
}

function speechBody(call: SpeechCall, requestsEvents: boolean): string {
  const { fields, model, input, voice, isCustomVoice, format, speed, instructions } = call;
  return JSON.stringify({
    ...fields,
    model,
    input,
    voice: isCustomVoice === true ? { id: voice } : voice,
    response_format: format,
    ...(speed !== undefined && { speed }),
    ...(instructions !== undefined && { instructions }),
    ...(requestsEvents && { stream_format: "sse" }),
  });
}

function decodedSpeech(
  response: ProviderResponse,
  { format, abortNotice, signal }: SpeechCall,
  wire: HttpJsonProvider,
): Speech {
  const events = wire.reader(response, new SpeechDecoder(wire.failureContext));
  const reader = new DecodedSound(events, abortNotice ?? signal);
  return { contentType: SOUND_TYPES[format], reader: () => reader, usage: () => reader.usage };
}

type SpeechEvent =
  | { readonly type: "sound"; readonly bytes: Uint8Array }
  | { readonly type: "usage"; readonly usage: Usage }
  | { readonly type: "error"; readonly failure: ProviderFailure };

/** Largest event. OpenAI sends some kilobytes in each. */
const MAX_EVENT_BYTES = 4 * 1024 * 1024;

/** Decodes `speech.audio.delta` and `speech.audio.done`. Other events contain no audio. */
class SpeechDecoder extends SseDecoder<SpeechEvent> {
  readonly #failureContext: FailureContext;

  constructor(failureContext: FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#failureContext = failureContext;
  }

  override end(events: SpeechEvent[]): void {
    super.end(events);
    if (!this.hasEnded) throw brokenAnswer("speech without its last event");
  }

  protected override take(data: string, events: SpeechEvent[]): void {
    const event = eventOf(data);
    if (event.error || event.type === "error")
      throw failureOfErrorBody(event, this.#failureContext);
    if (event.type === "speech.audio.delta") {
      if (typeof event.audio !== "string") throw brokenAnswer("an audio event without audio");
      events.push({ type: "sound", bytes: Buffer.from(event.audio, "base64") });
    } else if (event.type === "speech.audio.done") {
      this.hasEnded = true;
      const usage = usageOf(event.usage);
      if (usage !== undefined) events.push({ type: "usage", usage });
    }
  }
}

/**
 * Returns the reported usage. Undefined if none is reported, or an impossible one: neither the input nor its speech is
 * empty.
 */
function usageOf(raw: unknown): Usage | undefined {
  const { input_tokens: promptTokens, output_tokens: completionTokens } = (raw ?? {}) as {
    input_tokens?: unknown;
    output_tokens?: unknown;
  };
  if (!isPositive(promptTokens) || !isPositive(completionTokens)) return undefined;
  return {
    promptTokens,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    audioCompletionTokens: completionTokens,
    estimated: false,
  };
}

function isPositive(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0;
}

/** Reads the audio from a stream of events. Events after an error are not read. */
class DecodedSound implements PieceReader {
  readonly #events: PieceReader<readonly SpeechEvent[]>;
  readonly #signal: AbortNotice;
  #usage: Usage | undefined;
  #failure: ProviderFailure | undefined;

  constructor(events: PieceReader<readonly SpeechEvent[]>, signal: AbortNotice) {
    this.#events = events;
    this.#signal = signal;
  }

  get usage(): Usage | undefined {
    return this.#usage;
  }

  async read(): ReturnType<PieceReader["read"]> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure;
      const events = await this.#read();
      if (events === undefined) return { done: true };
      const sound: Uint8Array[] = [];
      for (const event of events) {
        if (event.type === "sound") sound.push(event.bytes);
        else if (event.type === "usage") this.#usage = event.usage;
        else this.#failure = event.failure;
      }
      if (sound.length > 0) return { done: false, value: joined(sound) };
    }
  }

  cancel(): Promise<void> {
    return this.#events.cancel();
  }

  async #read(): Promise<readonly SpeechEvent[] | undefined> {
    try {
      return await nextPiece(this.#events);
    } catch (error) {
      throw failureOfThrown(error, this.#signal);
    }
  }
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
}
