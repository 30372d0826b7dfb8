import { errorEnvelope } from "../../../http/error-response.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import type { Usage } from "../../../lib/usage.ts";
import { SOUND_TYPES } from "../../../providers/audio/sound-answer.ts";
import { nextPiece } from "../../../providers/interface.ts";
import type { Speech, SpeechFormat } from "../../../providers/media.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import { type AdmittedCall, type ProviderCall, providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  type AnswerFacts,
  assertRecordable,
  type OpenedStream,
  type PaidEndpoint,
  type StreamForm,
} from "../../call/endpoint.ts";
import { planSpeech } from "../../call/routing/plan-audio.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { paidRoute } from "../paid-route.ts";
import {
  growsWithSound,
  isByToken,
  type SpeechSize,
  speechBound,
  speechSize,
  speechUsage,
} from "./cost.ts";
import { type SpeechRequest, speechBody, speechEvent } from "./schema.ts";
import { SoundLength } from "./sound-length.ts";
import { assertSound, SpeechAnswer } from "./speech-answer.ts";

/** Maximum bytes of a complete answer, which is held in memory. A stream has no such limit. */
const MAX_WHOLE_BYTES = 32 * 1024 * 1024;
/** Maximum bytes per second of audio: 48 kHz, 16 bits and two channels. */
const MAX_BYTES_A_SECOND = 192_000;

interface AcceptedSpeech extends AcceptedRequest {
  readonly fields: SpeechRequest;
  readonly format: SpeechFormat;
  readonly size: SpeechSize;
}

interface WholeSpeech {
  readonly bytes: Uint8Array;
  readonly contentType: string;
  readonly usage: Usage | undefined;
  readonly length: SoundLength;
}

/** Returns the route POST /v1/audio/speech (spec 4.3). */
export function speechRoute(dependencies: PaidCallDependencies): RouteDefinition {
  return paidRoute(new PaidCall(dependencies, endpoint), {
    path: "/v1/audio/speech",
    tag: "Audio",
    operationId: "audio.speech.create",
    summary: "Create speech",
    access: { kind: "model", scope: "audio" },
    body: speechBody,
    allowsUnknownFields: true,
    responses: {
      200: {
        description: "The audio, or a stream of events with the audio if `stream_format` is sse.",
        contentType: "audio/*",
        eventSchema: speechEvent,
      },
    },
  });
}

const endpoint: PaidEndpoint<AcceptedSpeech, WholeSpeech> = {
  route: "POST /v1/audio/speech",
  categories: ["audio"],
  capability: "speak",
  title: "Speech",

  accept(body) {
    const stated = body as SpeechRequest;
    assertRecordable(stated);
    const { input, instructions, speed, stream, stream_format: streamFormat } = stated;
    if (stream === false && streamFormat === "sse") throw notWhole();
    return {
      fields: { ...stated, stream: stream !== false },
      format: stated.response_format ?? "mp3",
      size: speechSize(input, instructions ?? undefined, speed ?? 1),
    };
  },

  plan({ fields, format, size }, plan): RoutePlan {
    const requested = {
      format,
      characters: size.characters,
      speed: fields.speed ?? undefined,
      instructions: fields.instructions ?? undefined,
      fields: Object.keys(providerFields(fields)),
    };
    const requiresAll = fields.provider?.require_parameters === true;
    return planSpeech({ parts: requested, requiresAll }, plan);
  },

  bound: ({ size }, terms) => speechBound(size, terms),

  /** Returns 0. Providers accept no limit of the audio, so the hold cannot be lowered. */
  statedLimit: () => 0,

  async call(call, candidate, { request }) {
    const speech = await speak(call, candidate, request);
    return wholeSpeech(speech, request.format);
  },

  usage: ({ usage, length }, { size }, terms) => speechUsage(usage, length, size, terms),

  answerType: (_request, { contentType }) => contentType,

  answer: ({ bytes }) => bytes,

  stream: ({ fields }) => (fields.stream_format === "sse" ? EVENT_STREAM : AUDIO_STREAM),
};

/** Members of both kinds of stream. */
const STREAM = {
  choices: () => 1,
  maxOutputBytes: ({ size }: AcceptedSpeech) => Math.ceil(size.maxSeconds) * MAX_BYTES_A_SECOND,
  usage: ({ usage, length }: SpeechAnswer, { size }: AcceptedSpeech, terms: ModelTerms) =>
    speechUsage(usage, length, size, terms),
};

/** A stream of only the audio bytes. It has no keepalive, and ends early if the call fails. */
const AUDIO_STREAM: StreamForm<AcceptedSpeech, SpeechAnswer> = {
  ...STREAM,
  contentType: SOUND_TYPES.mp3,
  keepalive: "",
  open: (call, candidate, admitted, output) =>
    openSpeech(call, candidate, admitted, output, addBytes),
  isCostKnown: (_request, terms) => !isByToken(terms) && !growsWithSound(terms),
  ending: () => "",
  failure: () => undefined,
};

/** A stream of OpenAI's events `speech.audio.delta` and `speech.audio.done`. The last one contains the usage. */
const EVENT_STREAM: StreamForm<AcceptedSpeech, SpeechAnswer> = {
  ...STREAM,
  contentType: "text/event-stream; charset=utf-8",
  keepalive: ": keepalive\n\n",
  async open(call, candidate, admitted, output) {
    const opened = await openSpeech(call, candidate, admitted, output, addEvent);
    return { ...opened, contentType: undefined };
  },
  ending: (_answer, _request, facts) => frameOf(doneEvent(facts)),
  failure: (error, requestId) => frameOf(errorEnvelope(error, requestId)),
};

async function openSpeech(
  call: ProviderCall,
  candidate: Candidate,
  { request: { format }, request }: AdmittedCall<AcceptedSpeech>,
  output: ByteBuffer,
  write: (piece: Uint8Array, output: ByteBuffer) => void,
): Promise<OpenedStream<SpeechAnswer>> {
  const speech = await speak(call, candidate, request);
  const options = { speech, format, growsWithSound: growsWithSound(candidate.terms), write };
  const answer = new SpeechAnswer(output, options);
  return { reader: speech.reader(), answer, contentType: speech.contentType };
}

function speak(
  call: ProviderCall,
  candidate: Candidate,
  { fields, format }: AcceptedSpeech,
): Promise<Speech> {
  const { voice, instructions, speed } = fields;
  return candidate.provider.speak!(
    providerRequest(call, {
      input: fields.input,
      voice: typeof voice === "string" ? voice : voice.id,
      isCustomVoice: typeof voice !== "string",
      format,
      speed: speed ?? undefined,
      instructions: instructions ?? undefined,
      needsUsage: isByToken(candidate.terms),
      fields: providerFields(fields),
    }),
  );
}

/** Reads a complete answer. Throws ProviderFailure if it has no audio, or more than memory may hold. */
async function wholeSpeech(speech: Speech, format: SpeechFormat): Promise<WholeSpeech> {
  const reader = speech.reader();
  const length = new SoundLength(format);
  const pieces: Uint8Array[] = [];
  let sizeBytes = 0;
  try {
    for (;;) {
      const piece = await nextPiece(reader);
      if (piece === undefined) break;
      if (piece.length === 0) continue;
      if (sizeBytes === 0) assertSound(piece, format);
      pieces.push(piece);
      length.push(piece);
      sizeBytes += piece.length;
      if (sizeBytes > MAX_WHOLE_BYTES)
        throw brokenAnswer("more audio than a complete answer can have");
    }
  } catch (error) {
    reader.cancel().catch(() => undefined);
    throw error;
  }
  if (sizeBytes === 0) throw brokenAnswer("no audio");
  const bytes = Buffer.concat(pieces, sizeBytes);
  return { bytes, contentType: speech.contentType, usage: speech.usage(), length };
}

function addBytes(piece: Uint8Array, output: ByteBuffer): void {
  output.writeDirectly(piece.length, (into, at) => {
    into.set(piece, at);
    return at + piece.length;
  });
}

function addEvent(piece: Uint8Array, output: ByteBuffer): void {
  const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
  output.add(`data: {"type":"speech.audio.delta","audio":"${bytes.toString("base64")}"}\n\n`);
}

function doneEvent({ usage, costUsd }: AnswerFacts): object {
  const { promptTokens, completionTokens, characters } = usage;
  return {
    type: "speech.audio.done",
    usage: {
      input_tokens: promptTokens,
      output_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
      characters,
      cost: costUsd,
    },
  };
}

function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}

/** Fields that only the gateway uses, or sends in the provider's form. */
const GATEWAY_FIELDS = new Set([...Object.keys(speechBody.properties), "__proto__"]);

function providerFields(request: SpeechRequest): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(request).filter(
      ([field, value]) => value !== null && !GATEWAY_FIELDS.has(field),
    ),
  );
}

function notWhole(): GatewayError {
  return new GatewayError(
    "invalid_body",
    'Request body field "stream": must not be false with stream_format "sse".',
    { param: "stream" },
  );
}
