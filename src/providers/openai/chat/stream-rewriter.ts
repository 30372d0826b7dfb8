import { EventSplitter, latin1OfText } from "../../../lib/event-splitter.ts";
import type { GrowingBytes } from "../../../lib/growing-bytes.ts";
import { isFields } from "../../../lib/json-fields.ts";
import { tokensOfDelta } from "../../../lib/token-estimate.ts";
import type { Usage } from "../../../lib/usage.ts";
import { ProviderFailure } from "../../interface.ts";
import { type DeltaTemplate, learnTemplate } from "./delta-template.ts";
import { failedChoice } from "./finish-reason.ts";
import { createdTime, hideReasoning, normaliseHead } from "./provider-content.ts";
import { reportedUsage, usageBehind } from "./reported-usage.ts";
import { bringsNothing, parseChunk, tellsError } from "./stream-chunk.ts";
import { StreamedChoice } from "./streamed-choice.ts";
import { calledBytes } from "./tool-calls.ts";

export interface RewriterOptions {
  /** The same in all chunks of one request. */
  readonly id: string;
  /** The resolved model. */
  readonly model: string;
  readonly hidesReasoning: boolean;
  readonly nowSeconds: number;
  /** What an event that tells of an error stands for. */
  readonly failureOf?: ((event: Record<string, unknown>) => ProviderFailure) | undefined;
}

/** Members of a chunk that are told at the end of the stream, say nothing, or are nobody's but the provider's. */
const OTHERS_FIELDS = ["usage", "x_groq", "obfuscation", "error"] as const;
/** The largest single event, in bytes: beyond that a provider is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/**
 * Turns the stream of a provider of OpenAI's wire form into ours (spec 6.2) and meters it: one id and
 * model, the role once, usage kept for the end, nothing that OpenAI's clients would stumble over. Chunks
 * that look like the one before are rewritten without being parsed. Works on bytes kept as characters.
 *
 * Throws ProviderFailure at an error object, at what is no JSON, and at an event too large. Behind an error
 * that the provider reports only its usage is still read.
 */
export class StreamRewriter {
  readonly #options: RewriterOptions;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  /** The choices that have begun. */
  readonly #begun = new Map<number, StreamedChoice>();
  #finishedChoices = 0;
  #template: DeltaTemplate | undefined;
  readonly #output: GrowingBytes;
  #created: number;
  #usage: Usage | undefined;
  #outputTokens = 0;
  /** The output tokens that the usage knew of. */
  #toldTokens = 0;
  #outputBytes = 0;
  #events = 0;
  #hasBegun = false;
  #isDone = false;
  #failure: ProviderFailure | undefined;
  /** Behind an error that the provider reported more may come, until its [DONE]. */
  #mayGoOn = false;

  /** What is for the client is added to `output`, as whole events. */
  constructor(options: RewriterOptions, output: GrowingBytes) {
    this.#options = options;
    this.#output = output;
    this.#created = options.nowSeconds;
  }

  /** What the provider reported, where it was possible, and what was counted here of the answer behind that. */
  get usage(): Usage | undefined {
    const usage = this.#usage;
    const newTokens = this.#outputTokens - this.#toldTokens;
    if (usage === undefined || newTokens === 0) return usage;
    return { ...usage, completionTokens: usage.completionTokens + newTokens, estimated: true };
  }

  /** Tokens of the answer so far, counted here. */
  get outputTokens(): number {
    return this.#outputTokens;
  }

  get outputBytes(): number {
    return this.#outputBytes;
  }

  /** Whole events that have come, of whatever kind; a comment is none. */
  get events(): number {
    return this.#events;
  }

  /** True once a choice has brought something beyond its role, or has ended. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** What the provider's stream broke with, if it did. */
  get failure(): ProviderFailure | undefined {
    return this.#failure;
  }

  /** True behind an error that the provider reported, while it may still tell what the answer took. */
  get mayReportUsage(): boolean {
    return this.#mayGoOn && this.usage?.estimated !== false;
  }

  /** True once the provider has sent its [DONE]. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** True once every choice has ended with a finish reason. */
  get hasFinished(): boolean {
    return this.#finishedChoices > 0 && this.#finishedChoices >= this.#begun.size;
  }

  /** True once so many choices have ended, and nothing has broken. */
  hasAnswered(choices: number): boolean {
    return this.hasFinished && this.#finishedChoices >= choices && this.#failure === undefined;
  }

  get created(): number {
    return this.#created;
  }

  /** Takes bytes of the provider. */
  push(bytes: Uint8Array): void {
    if (this.#failure) throw this.#failure;
    const before = this.#output.length;
    try {
      this.#splitter.push(bytes, this.#take, this.#takeRun);
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwAtOnce(before);
  }

  /** Takes bytes that follow an error of the provider, for the usage in them. */
  pushBehindError(bytes: Uint8Array): void {
    this.#splitter.push(bytes, this.#take, this.#takeRun);
  }

  /** The provider has closed its stream. */
  end(): void {
    if (this.#failure) throw this.#failure;
    const before = this.#output.length;
    try {
      this.#splitter.end(this.#take);
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwAtOnce(before);
  }

  #noteFailure(error: unknown): void {
    this.#mayGoOn = false;
    this.#failure ??=
      error instanceof ProviderFailure
        ? error
        : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
  }

  /** What came before a failure is still the client's: with such a piece the failure waits in `failure`. */
  #throwAtOnce(lengthBefore: number): void {
    if (this.#failure !== undefined && this.#output.length === lengthBefore) throw this.#failure;
  }

  /** Events that fit the template, many at once. */
  readonly #takeRun = (text: string, start: number): number => {
    const template = this.#template;
    if (template === undefined || this.#isDone || this.#failure !== undefined) return start;
    let end = start;
    let events = 0;
    for (;;) {
      const next = template.endOfEvent(text, end);
      if (next < 0) break;
      const textBytes = next - end - template.framingLength;
      if (textBytes > 0) this.#hasBegun = true;
      this.#meter(textBytes);
      end = next;
      events++;
    }
    this.#events += events;
    if (events === 1) this.#output.add(template.rewrite(text, start, end));
    else if (events > 1) template.rewriteRun(text, start, end, events, this.#output);
    return end;
  };

  readonly #take = (data: string): void => {
    if (this.#isDone) return;
    this.#events++;
    // Some servers keep their connections alive so.
    if (data === "") return;
    if (data.startsWith("[DONE]")) {
      this.#mayGoOn = false;
      this.#isDone = this.#failure === undefined;
      return;
    }
    const chunk = parseChunk(data);
    if (this.#failure !== undefined) {
      this.#noteUsage(reportedUsage(chunk, this.#begun.size <= 1));
      return;
    }
    const error = tellsError(chunk) ? chunk : failedChoice(chunk.choices);
    // Read before the chunk is rewritten in place.
    const failure = error && this.#failureOf(error);
    this.#takeChunk(chunk, data, failure !== undefined);
    this.#failure = failure;
    this.#mayGoOn = failure !== undefined;
  };

  #takeChunk(chunk: Record<string, unknown>, data: string, isFailing: boolean): void {
    // The same in all chunks of a completion (OpenAI, "The chat completion chunk object").
    if (this.#begun.size === 0) this.#created = createdTime(chunk.created) ?? this.#created;
    const usage = reportedUsage(chunk, this.#begun.size <= 1);
    const choices = Array.isArray(chunk.choices) ? this.#choices(chunk.choices, isFailing) : [];
    this.#noteUsage(usage);
    if (choices.length === 0) return;
    for (const name of OTHERS_FIELDS) if (chunk[name] !== undefined) chunk[name] = undefined;
    normaliseHead(chunk);
    chunk.id = this.#options.id;
    chunk.object = "chat.completion.chunk";
    chunk.created = this.#created;
    chunk.model = this.#options.model;
    chunk.choices = choices;
    const text = latin1OfText(JSON.stringify(chunk));
    this.#template = learnTemplate(data, text, choices);
    this.#output.add(`data: ${text}\n\n`);
  }

  #noteUsage(usage: Usage | undefined): void {
    if (usage === undefined) return;
    this.#usage = usageBehind(this.#usage, usage);
    // It knows of what came with it.
    this.#toldTokens = this.#outputTokens;
  }

  #failureOf(chunk: Record<string, unknown>): ProviderFailure {
    return (
      this.#options.failureOf?.(chunk) ??
      new ProviderFailure("unavailable", "the provider sent an error in its stream")
    );
  }

  /** Those that bring something, rewritten in place: they were parsed for this call alone. */
  #choices(raw: readonly unknown[], isFailing: boolean): Record<string, unknown>[] {
    const choices: Record<string, unknown>[] = [];
    for (const choice of raw) {
      if (!isFields(choice) || !this.#rewriteChoice(choice, isFailing)) continue;
      choices.push(choice);
    }
    return choices;
  }

  /** False where the choice brings nothing. One that comes with an error has not ended. */
  #rewriteChoice(choice: Record<string, unknown>, isFailing: boolean): boolean {
    const index = Number.isSafeInteger(choice.index) ? (choice.index as number) : 0;
    const delta: Record<string, unknown> = isFields(choice.delta) ? choice.delta : {};
    const known = this.#begun.get(index);
    const state = known ?? this.#begin(index);
    state.take(delta);
    this.#meterDelta(delta);
    delete delta.role;
    const isEmpty = bringsNothing(delta);
    if (this.#options.hidesReasoning) hideReasoning(delta);
    const reason = isFailing ? null : state.reason(choice.finish_reason);
    // It ends once: some end it twice, send usage in an empty delta, or tell the reason in each chunk.
    const wasFinished = state.isFinished;
    if ((wasFinished || isFailing) && isEmpty) return false;
    const ends = reason !== null && !wasFinished;
    if (ends) {
      state.finish(reason, delta);
      this.#finishedChoices++;
    }
    if (ends || !isEmpty) this.#hasBegun = true;
    delete choice.usage;
    choice.index = index;
    choice.delta = known === undefined ? { role: "assistant", ...delta } : delta;
    choice.finish_reason = ends ? reason : null;
    return true;
  }

  #begin(index: number): StreamedChoice {
    const state = new StreamedChoice(this.#options.id, index);
    this.#begun.set(index, state);
    return state;
  }

  #meterDelta(delta: Record<string, unknown>): void {
    this.#meterText(delta.content);
    this.#meterText(delta.reasoning);
    this.#meterText(delta.refusal);
    this.#meter(calledBytes(delta));
  }

  #meterText(text: unknown): void {
    if (typeof text === "string") this.#meter(Buffer.byteLength(text));
  }

  #meter(bytes: number): void {
    this.#outputBytes += bytes;
    this.#outputTokens += tokensOfDelta(bytes);
  }
}
