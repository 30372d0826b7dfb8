import { textOfLatin1 } from "../../lib/event-splitter.ts";
import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import type { SoundDecoder } from "../audio/sound-events.ts";
import { ProviderFailure } from "../interface.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { failureInside } from "./failure-mapping.ts";
import { finishReasonOf } from "./finish-reason.ts";
import { reportedUsage } from "./reported-usage.ts";

/** Speech that was not streamed. */
interface WholeSpeech {
  readonly body: Uint8Array;
  readonly usage: Usage | undefined;
}

/** Reads a response. Throws ProviderFailure if it has no audio. */
export const wholeSpeech = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: { readonly failureContext: FailureContext }): WholeSpeech => {
    const spoken = readSpeech(parsedAnswer(text), failureContext);
    if (spoken.sound.length === 0) throw brokenAnswer("no audio");
    return { body: spoken.sound, usage: spoken.usage };
  },
);

/** Reads a stream of `streamGenerateContent?alt=sse` of a speech model. */
export class GeminiSpeechDecoder implements SoundDecoder {
  readonly #context: FailureContext;
  #usage: Usage | undefined;
  #isWhole = false;

  constructor(context: FailureContext) {
    this.#context = context;
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Usage of the stream so far. Undefined while only the prompt is counted, with which a stream begins. */
  get usage(): Usage | undefined {
    return this.#usage;
  }

  read(data: string): Uint8Array | undefined {
    const { sound, usage, isWhole } = readSpeech(parsedAnswer(textOfLatin1(data)), this.#context);
    this.#usage = usage ?? this.#usage;
    this.#isWhole ||= isWhole;
    return sound.length === 0 ? undefined : sound;
  }
}

interface SpeechPiece {
  readonly sound: Uint8Array;
  readonly usage: Usage | undefined;
  readonly isWhole: boolean;
}

function readSpeech(response: unknown, context: FailureContext): SpeechPiece {
  const failure = failureInside(response, context);
  if (failure !== undefined) throw failure;
  if (!isFields(response)) throw brokenAnswer("JSON that is not an object");
  const { candidates, promptFeedback, usageMetadata } = response;
  if (isFields(promptFeedback) && typeof promptFeedback.blockReason === "string") throw blocked();
  const candidate: unknown = Array.isArray(candidates) ? candidates[0] : undefined;
  const { content, finishReason } = isFields(candidate) ? candidate : {};
  const isWhole = typeof finishReason === "string" && finishReason !== "";
  if (isWhole && finishReasonOf(finishReason, false) === "content_filter") throw blocked();
  const parts = isFields(content) && Array.isArray(content.parts) ? content.parts : [];
  const reported = reportedUsage(usageMetadata);
  return {
    sound: new Uint8Array(Buffer.concat(parts.map(audioOf))),
    usage: reported?.countsAnswer === true ? reported.usage : undefined,
    isWhole,
  };
}

/** Matches `audio/L16;codec=pcm;rate=24000`, the samples of the format `pcm`. */
const SAMPLES = /^audio\/(?:l16|pcm)\b/i;

function audioOf(part: unknown): Uint8Array {
  const inline = isFields(part) ? part.inlineData : undefined;
  if (!isFields(inline) || typeof inline.data !== "string") return new Uint8Array();
  const { mimeType = "audio/L16" } = inline;
  if (typeof mimeType !== "string" || !SAMPLES.test(mimeType)) {
    throw brokenAnswer("audio in a different format");
  }
  return Buffer.from(inline.data, "base64");
}

function blocked(): ProviderFailure {
  return new ProviderFailure("content_policy", "The provider's safety filter blocked the text.");
}
