import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { EventSplitter, latin1OfText } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { AnswerOptions } from "../../interface.ts";
import { StreamedAnswer } from "../../streamed-answer.ts";
import { PRIVATE_MEMBERS } from "../openai-variants.ts";
import { ChunkReader, type FailureReader, MAX_EVENT_BYTES } from "./chunk-reader.ts";
import { type DeltaTemplate, learnTemplate } from "./delta-template.ts";
import { createdTime, hideReasoning, normaliseHead } from "./provider-content.ts";
import { calledBytes } from "./tool-calls.ts";

/**
 * Members of a chunk that are removed: the client gets them elsewhere, or they are empty or specific to the provider.
 */
const REMOVED_FIELDS = ["usage", "error", ...PRIVATE_MEMBERS] as const;

/**
 * Converts the stream of a provider with OpenAI's API to the gateway's stream (spec 6.2) and meters it. Chunks get one
 * id and model, the role appears once, usage is kept for the end, and members that break OpenAI's clients are removed.
 * Chunks that look like the previous one are rewritten without being parsed. In texts, each character is one byte.
 *
 * Throws ProviderFailure for an error object, invalid JSON, or an event that is too large.
 */
export class StreamRewriter extends StreamedAnswer<Uint8Array> {
  readonly #options: AnswerOptions;
  readonly #chunks: ChunkReader;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  #template: DeltaTemplate | undefined;

  /** Appends whole events for the client to `output`. */
  constructor(options: AnswerOptions, output: ByteBuffer, failureReader?: FailureReader) {
    super(output, options.nowSeconds);
    this.#options = options;
    this.#chunks = new ChunkReader(options.id, failureReader, this.#meterDelta);
  }

  protected override take(bytes: Uint8Array): void {
    this.#splitter.push(bytes, this.#takeEvent, this.#takeRun);
  }

  protected override takeEnd(): void {
    this.#splitter.end(this.#takeEvent);
  }

  /** Rewrites consecutive events that match the template. Returns the position after them. */
  readonly #takeRun = (text: string, start: number): number => {
    const template = this.#template;
    if (template === undefined || this.isDone || this.failure !== undefined) return start;
    let end = start;
    let events = 0;
    for (;;) {
      const next = template.endOfEvent(text, end);
      if (next < 0) break;
      const textBytes = next - end - template.framingLength;
      if (textBytes > 0) this.noteBegun();
      this.meter(textBytes);
      end = next;
      events++;
    }
    this.noteEvents(events);
    if (events === 1) this.output.add(template.rewrite(text, start, end));
    else if (events > 1) template.rewriteRun(text, start, end, events, this.output);
    return end;
  };

  readonly #takeEvent = (data: string): void => {
    if (this.isDone) return;
    this.noteEvents(1);
    const isFirst = this.startedChoices === 0;
    const read = this.#chunks.read(data);
    if (this.#chunks.isDone) this.noteDone();
    if (read === undefined) return;
    const { chunk, choices, hasContent, usage, failure } = read;
    this.startedChoices = this.#chunks.startedChoices;
    this.finishedChoices = this.#chunks.finishedChoices;
    // All chunks of a completion have the same time (OpenAI, "The chat completion chunk object").
    if (isFirst) this.createdSeconds = createdTime(chunk.created) ?? this.createdSeconds;
    if (hasContent) this.noteBegun();
    if (usage !== undefined) this.noteUsage(usage);
    if (choices.length > 0) this.#addChunk(chunk, choices, data);
    if (failure !== undefined) this.noteReportedError(failure);
  };

  #addChunk(
    chunk: Record<string, unknown>,
    choices: readonly Record<string, unknown>[],
    data: string,
  ): void {
    const { id, model, hidesReasoning } = this.#options;
    if (hidesReasoning) for (const { delta } of choices) hideReasoning(delta as typeof chunk);
    for (const name of REMOVED_FIELDS) if (chunk[name] !== undefined) chunk[name] = undefined;
    normaliseHead(chunk);
    chunk.id = id;
    chunk.object = "chat.completion.chunk";
    chunk.created = this.createdSeconds;
    chunk.model = model;
    chunk.choices = choices;
    const text = latin1OfText(JSON.stringify(chunk));
    this.#template = learnTemplate(data, text, choices);
    this.output.add(`data: ${text}\n\n`);
  }

  readonly #meterDelta = (delta: Readonly<Record<string, unknown>>): void => {
    this.#meterText(delta.content);
    this.#meterText(delta.reasoning);
    this.#meterText(delta.refusal);
    this.meter(calledBytes(delta));
    if (Array.isArray(delta.images)) for (const _ of delta.images) this.meterImage();
    if (isFields(delta.audio)) this.#meterSpoken(delta.audio);
  };

  /** Meters audio `{id, data, transcript, expires_at}`. `data` is base64, four characters for three bytes. */
  #meterSpoken({ data, transcript }: Record<string, unknown>): void {
    this.#meterText(transcript);
    if (typeof data === "string") this.meterSound(Math.floor((data.length * 3) / 4));
  }

  #meterText(text: unknown): void {
    if (typeof text === "string") this.meter(Buffer.byteLength(text));
  }
}
