import { errorEnvelope } from "../../../http/error-response.ts";
import type { FileRule, ReceivedForm } from "../../../http/model-form.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { SpooledMedia } from "../../../http/spooled-uploads.ts";
import { GatewayError } from "../../../lib/errors.ts";
import type { SoundLength } from "../../../lib/sound/measure-sound.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FairWorkThread } from "../../../lib/work-thread.ts";
import type { Transcript, TranscriptionCall, TranscriptStream } from "../../../providers/media.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import { type AdmittedCall, type ProviderCall, providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  assertRecordable,
  type PaidEndpoint,
  type StreamForm,
} from "../../call/endpoint.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import { planTranscript } from "../../call/routing/plan-audio.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { paidRoute } from "../paid-route.ts";
import { type SoundSize, transcriptBound, transcriptUsage } from "./cost.ts";
import { measureFile } from "./measure-file.ts";
import { plainBody, renderTranscript, TRANSCRIPT_TYPES } from "./render-transcript.ts";
import {
  type TranscriptFormat,
  type TranscriptionRequest,
  transcriptEvent,
  transcriptionFields,
  transcriptObject,
} from "./schema.ts";
import { eventsOfTranscript, frameOf, TranscriptAnswer } from "./transcript-answer.ts";

const MEBIBYTE = 1024 * 1024;
/** Maximum bytes of text per second of audio. More than people speak, and more than models write for silence. */
const MAX_TEXT_BYTES_A_SECOND = 4_096;
const SPARE_TEXT_BYTES = 1_048_576;

/** Audio types by content (spec 4.3, and OpenAI's description). More than 25 MB is a 400 (spec 7). */
const AUDIO_FILE: FileRule = {
  isRequired: true,
  maxFiles: 1,
  maxBytes: 25 * MEBIBYTE,
  excess: "invalid_body",
  types: new Set([
    "audio/mpeg",
    "audio/wav",
    "audio/flac",
    "audio/ogg",
    "audio/aac",
    "audio/x-m4a",
    "audio/mp4",
    "video/mp4",
    "audio/webm",
    "video/webm",
    "audio/matroska",
    "video/matroska",
    // Program streams: MPEG-1 and MPEG-2.
    "video/MP1S",
    "video/MP2P",
  ]),
  typeNames: "audio: mp3, mp4, mpeg, mpga, m4a, wav, webm, ogg, flac or aac",
};

type Task = TranscriptionCall["task"];

interface MeasuredForm extends ReceivedForm<TranscriptionRequest> {
  readonly length: SoundLength;
}

interface AcceptedSound extends AcceptedRequest {
  readonly fields: TranscriptionRequest;
  readonly format: TranscriptFormat;
  readonly file: SpooledMedia;
  readonly size: SoundSize;
  readonly needs: TranscriptionCall["needs"];
}

/** Returns the routes POST /v1/audio/transcriptions and /v1/audio/translations (spec 4.3). */
export function transcriptionRoutes(
  dependencies: PaidCallDependencies,
  workThread: FairWorkThread,
): RouteDefinition[] {
  const describe = {
    tag: "Audio",
    access: { kind: "model", scope: "audio" },
    allowsUnknownFields: true,
    modelForm: {
      fields: transcriptionFields,
      files: { file: AUDIO_FILE },
      examine: async (form: ReceivedForm, owner: string, signal: AbortSignal) => ({
        ...form,
        length: await measureFile(form.files.file![0]!, workThread, owner, signal),
      }),
    },
    responses: {
      200: {
        description:
          "The transcript as JSON, plain text, SubRip or WebVTT. If `stream` is true, a stream of events.",
        schema: transcriptObject,
        eventSchema: transcriptEvent,
      },
    },
  } as const;
  const transcriptions = new TranscriptEndpoint("transcribe", "/v1/audio/transcriptions");
  const translations = new TranscriptEndpoint("translate", "/v1/audio/translations");
  return [
    paidRoute(new PaidCall(dependencies, transcriptions), {
      ...describe,
      path: "/v1/audio/transcriptions",
      operationId: "audio.transcriptions.create",
      summary: "Transcribe audio",
    }),
    paidRoute(new PaidCall(dependencies, translations), {
      ...describe,
      path: "/v1/audio/translations",
      operationId: "audio.translations.create",
      summary: "Translate audio to English",
    }),
  ];
}

class TranscriptEndpoint implements PaidEndpoint<AcceptedSound, Transcript> {
  readonly route: string;
  readonly categories = ["audio"] as const;
  readonly capability = "transcribe";
  readonly title: string;
  readonly stream: () => StreamForm<AcceptedSound>;
  readonly #task: Task;

  constructor(task: Task, path: string) {
    this.#task = task;
    this.route = `POST ${path}`;
    this.title = task === "transcribe" ? "Transcription" : "Translation";
    const form = streamOf(task);
    this.stream = () => form;
  }

  accept(body: unknown): AcceptedSound {
    const { fields, files, length } = body as MeasuredForm;
    assertRecordable(fields);
    const format = fields.response_format ?? "json";
    assertFits(fields, format, this.#task);
    const granularities = fields.timestamp_granularities ?? ["segment"];
    const isVerbose = format === "verbose_json";
    const textBytes = Buffer.byteLength(JSON.stringify([fields.prompt, providerFields(fields)]));
    return {
      fields,
      format,
      file: files.file![0]!,
      size: { ...length, textBytes, namesSpeakers: format === "diarized_json" },
      needs: {
        words: isVerbose && granularities.includes("word"),
        segments:
          format === "srt" || format === "vtt" || (isVerbose && granularities.includes("segment")),
        speakers: format === "diarized_json",
      },
    };
  }

  plan({ fields, needs }: AcceptedSound, plan: AdmittedCall<AcceptedSound>["plan"]) {
    const requested = {
      task: this.#task,
      needs,
      logprobs: wantsLogprobs(fields),
      prompt: fields.prompt ?? undefined,
      temperature: fields.temperature ?? undefined,
      language: fields.language ?? undefined,
      fields: Object.keys(providerFields(fields)),
    };
    const requiresAll = fields.provider?.require_parameters === true;
    return planTranscript({ parts: requested, params: PARAMS, requiresAll }, plan);
  }

  bound({ size }: AcceptedSound, terms: Candidate["terms"]) {
    return transcriptBound(size, terms);
  }

  /** Returns 0. Providers accept no limit of the text, so the hold cannot be lowered. */
  statedLimit(): number {
    return 0;
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    { request, guard }: AdmittedCall<AcceptedSound>,
  ): Promise<Transcript> {
    const answer = await transcribe(this.#task, call, candidate, request, false);
    if (answer.kind !== "transcript")
      throw brokenAnswer("a stream although the request was not streamed");
    return guard?.screensOutput ? screenedTranscript(answer, guard) : answer;
  }

  assertScreenable({ fields, needs }: AcceptedSound): void {
    const param = fields.stream
      ? "stream"
      : needs.words
        ? "timestamp_granularities"
        : wantsLogprobs(fields) && "include";
    if (!param) return;
    const message = `${param} is not supported with a guardrail on the output, which cannot check it.`;
    throw new GatewayError("unsupported_parameter", message, { param });
  }

  usage(transcript: Transcript, { size }: AcceptedSound, terms: Candidate["terms"]) {
    return transcriptUsage(transcript, Buffer.byteLength(transcript.text), size, terms);
  }

  answerType({ format }: AcceptedSound): string {
    return TRANSCRIPT_TYPES[format];
  }

  answer(
    transcript: Transcript,
    { fields, format, size }: AcceptedSound,
    { usage, costUsd }: Parameters<PaidEndpoint<AcceptedSound, Transcript>["answer"]>[2],
  ): string {
    const charged = chargedUsage(usage, size);
    const { durationMs = size.durationMs } = charged;
    const facts = { task: this.#task, format, fields, durationMs, usage: charged, costUsd };
    return renderTranscript(transcript, facts);
  }
}

function streamOf(task: Task): StreamForm<AcceptedSound, TranscriptAnswer> {
  return {
    contentType: "text/event-stream; charset=utf-8",
    keepalive: ": keepalive\n\n",
    choices: () => 1,
    maxOutputBytes: ({ size: { longestMs } }) =>
      Math.ceil(longestMs / 1_000) * MAX_TEXT_BYTES_A_SECOND + SPARE_TEXT_BYTES,
    async open(call, candidate, { request }, output) {
      const opened = await transcribe(task, call, candidate, request, true);
      const answer = new TranscriptAnswer(output, request.needs.speakers);
      const reader = opened.kind === "transcript" ? eventsOfTranscript(opened) : opened.reader();
      return { reader, answer };
    },
    usage: ({ usage, transcript: { reportedMs }, outputBytes }, { size }, terms) =>
      transcriptUsage({ usage, reportedMs }, outputBytes, size, terms),
    ending: (answer, { size }, { usage, costUsd }) =>
      frameOf({
        type: "transcript.text.done",
        ...plainBody(answer.transcript, {
          usage: chargedUsage(usage, size),
          costUsd,
        }),
      }),
    failure: (error, requestId) => frameOf(errorEnvelope(error, requestId)),
  };
}

/** Returns the usage. A reported duration above the duration that the hold covers is lowered to it. */
function chargedUsage(usage: Usage, { longestMs }: SoundSize): Usage {
  const { durationMs = 0 } = usage;
  return durationMs > longestMs ? { ...usage, durationMs: longestMs } : usage;
}

async function transcribe(
  task: Task,
  call: ProviderCall,
  candidate: Candidate,
  { fields, file, size, needs }: AcceptedSound,
  stream: boolean,
): Promise<Transcript | TranscriptStream> {
  const answer = await candidate.provider.transcribe!(
    providerRequest(call, {
      task,
      file,
      durationMs: size.durationMs,
      language: fields.language ?? undefined,
      prompt: fields.prompt ?? undefined,
      temperature: fields.temperature ?? undefined,
      needs,
      logprobs: wantsLogprobs(fields),
      stream,
      fields: providerFields(fields),
    }),
  );
  if (answer.kind === "transcript") assertComplete(answer, needs);
  return answer;
}

/** Throws ProviderFailure if a transcript with text has no segments or words although the request needs them. */
function assertComplete(
  { text, segments, words }: Transcript,
  needs: AcceptedSound["needs"],
): void {
  if (text.trim() === "") return;
  const needsSegments = needs.segments || needs.speakers;
  if (needsSegments && (segments ?? []).length === 0) throw brokenAnswer("no segments");
  if (needs.words && (words ?? []).length === 0) throw brokenAnswer("no word timestamps");
}

/** The parameter that requests each feature that a candidate might not support. */
const PARAMS = {
  translation: "model",
  words: "timestamp_granularities",
  segments: "response_format",
  speakers: "response_format",
  logprobs: "include",
};

const STREAMED: ReadonlySet<TranscriptFormat> = new Set(["json", "text", "diarized_json"]);

/** Throws 400 for fields that exclude each other. */
function assertFits(fields: TranscriptionRequest, format: TranscriptFormat, task: Task): void {
  if (format === "diarized_json" && task === "translate") {
    throw invalid("response_format", "diarized_json is supported only for transcriptions");
  }
  if (fields.timestamp_granularities && format !== "verbose_json") {
    throw invalid("timestamp_granularities", "needs response_format verbose_json");
  }
  if (wantsLogprobs(fields) && format !== "json") {
    throw invalid("include", "logprobs need response_format json");
  }
  if (fields.stream === true && !STREAMED.has(format)) {
    throw invalid("stream", `${format} cannot be streamed`);
  }
}

function wantsLogprobs({ include }: TranscriptionRequest): boolean {
  return include?.includes("logprobs") === true;
}

/** Fields that the gateway uses itself, or sends in the provider's form. */
const GATEWAY_FIELDS = new Set(
  Object.keys(transcriptionFields.properties).filter(
    (name) => !/^(?:chunking_strategy|known_speaker_.*|languages|keywords)$/.test(name),
  ),
);

function providerFields(fields: TranscriptionRequest): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([name, value]) => value !== null && !GATEWAY_FIELDS.has(name)),
  );
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `Form field "${param}": ${what}.`, { param });
}

/**
 * Applies guardrails to a transcript. The segments are checked as one text, so that matches across segments
 * are found.
 */
async function screenedTranscript(transcript: Transcript, guard: CallGuard): Promise<Transcript> {
  const { text, segments } = transcript;
  const parts = segments?.map(({ text: segmentText }) => ({
    text: /^\s/.test(segmentText) ? segmentText : ` ${segmentText}`,
  }));
  const screened = await guard.output({ text, segments: parts });
  return {
    ...transcript,
    text: screened.text,
    segments: segments?.map((segment, at) => {
      const screenedText = screened.segments![at]!.text;
      if (screenedText === parts![at]!.text) return segment;
      // The details can contain the tokens of the original text.
      const { details: _, ...rest } = segment;
      return { ...rest, text: screenedText.replace(/^ /, "") };
    }),
  };
}
