import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import type { Usage } from "../../../lib/usage.ts";
import type {
  AnswerOptions,
  ChatEvent,
  ChatStream,
  ClientCompletion,
  FinishReason,
  PieceReader,
  ReadOptions,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
  TypedCompletion,
  WholeChat,
} from "../../../providers/interface.ts";
import {
  mediaTokens,
  StreamedAnswer,
  TOKENS_OF_IMAGE,
} from "../../../providers/streamed-answer.ts";
import { CompletionRender } from "../../../providers/thread-work.ts";
import type { OpenedStream } from "../../call/endpoint.ts";
import { customCall } from "./custom-tools.ts";
import type { DebugEcho } from "./debug-echo.ts";

/**
 * Renders chat answers (spec 2.4, 6.2). Answers of providers with OpenAI's format already have the client's
 * form and pass through.
 */

/** Returns a whole answer in the client's form. Fails with ProviderFailure if it is invalid. */
export function readAnswer(
  answer: WholeChat,
  options: ReadOptions,
): ClientCompletion | Promise<ClientCompletion> {
  return answer.passThrough?.(options) ?? answer.render(chatCompletionRender, options);
}

/** Opens a streamed answer that writes the client's frames to the output. */
export function openAnswer(
  answer: ChatStream,
  options: AnswerOptions,
  output: ByteBuffer,
): OpenedStream {
  return (
    answer.passThrough?.(options, output) ??
    openTypedAnswer(answer, options, output, (events) => events)
  );
}

/**
 * Opens a streamed answer whose events pass through a function that can add to them. Only text, reasoning and
 * tool calls are rendered.
 */
export function openTypedAnswer(
  answer: ChatStream,
  options: ChunkOptions,
  output: ByteBuffer,
  through: (events: PieceReader<readonly ChatEvent[]>) => PieceReader<readonly ChatEvent[]>,
): OpenedStream {
  return { reader: through(answer.events(options)), answer: new ChunkRenderer(options, output) };
}

interface ChunkOptions extends AnswerOptions {
  /** Names of the functions that replace custom tools. */
  readonly customTools?: readonly string[] | undefined;
}

/** Returns the id of the completion for a request. */
export function completionId(requestId: string): string {
  return `chatcmpl-${requestId.slice(4)}`;
}

/** Usage details that answers share, because most calls have neither cached nor reasoning tokens. */
const NONE_CACHED = Object.freeze({ cached_tokens: 0 });
const NO_REASONING = Object.freeze({ reasoning_tokens: 0 });

/**
 * Returns the usage object of an answer, with `cost` in USD. Tokens written to a cache are listed separately,
 * because they have their own price.
 */
export function usageBody(usage: Usage, cost: number): Record<string, unknown> {
  const { cachedPromptTokens: cached } = usage;
  const prompt = cached === 0 ? NONE_CACHED : { cached_tokens: cached };
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: withAudioTokens(
      usage.cacheWriteTokens === 0 ? prompt : withWritten(prompt, usage),
      usage.audioPromptTokens,
    ),
    completion_tokens_details: withAudioTokens(answerDetails(usage), usage.audioCompletionTokens),
    cost,
  };
}

function answerDetails({
  reasoningTokens: reasoning,
  imageCompletionTokens: images,
}: Usage): Readonly<Record<string, number>> {
  if (images) return { reasoning_tokens: reasoning, image_tokens: images };
  return reasoning === 0 ? NO_REASONING : { reasoning_tokens: reasoning };
}

function withAudioTokens(details: Readonly<Record<string, number>>, tokens: number | undefined) {
  return tokens ? { ...details, audio_tokens: tokens } : details;
}

function withWritten(prompt: { cached_tokens: number }, usage: Usage): Record<string, number> {
  const { cacheWriteTokens: written, cacheWriteHourTokens: forHour = 0 } = usage;
  const details = { ...prompt, cache_write_tokens: written };
  return forHour === 0 ? details : { ...details, cache_write_1h_tokens: forHour };
}

/** Returns a chunk with annotations of the first choice. */
export function annotationsChunk(
  answer: StreamHead,
  annotations: readonly unknown[],
): Record<string, unknown> {
  const choice = { index: 0, delta: { annotations }, finish_reason: null };
  return { ...emptyChunk(answer), choices: [choice] };
}

/** Returns the last chunk of a stream, which contains the usage. */
export function usageChunk(
  answer: StreamHead,
  usage: Usage,
  cost: number,
): Record<string, unknown> {
  return { ...emptyChunk(answer), usage: usageBody(usage, cost) };
}

/** Returns the chunk with the echo, sent before the first chunk of an answer. */
export function echoChunk(answer: StreamHead, debug: DebugEcho): Record<string, unknown> {
  return { ...emptyChunk(answer), debug };
}

interface StreamHead {
  readonly id: string;
  readonly model: string;
  readonly created: number;
}

function emptyChunk({ id, model, created }: StreamHead): Record<string, unknown> {
  return { id, object: "chat.completion.chunk", created, model, choices: [] };
}

/** Renders a complete typed answer as a completion. The caller sets id, model and usage. */
function renderCompletion(
  { choices, usage, created }: TypedCompletion,
  { hidesReasoning, nowSeconds }: ReadOptions,
): ClientCompletion {
  let bytes = 0;
  let images = 0;
  if (usage === undefined) {
    for (const choice of choices) {
      bytes += bytesOf(choice);
      images += choice.images?.length ?? 0;
    }
  }
  return {
    body: {
      // The caller sets id and model. They are here to fix the order of the members.
      id: undefined,
      object: "chat.completion",
      created: created ?? nowSeconds,
      model: undefined,
      choices: choices.map((choice, index) => ({
        index,
        message: messageOf(choice, hidesReasoning),
        logprobs: choice.logprobs ?? null,
        finish_reason: choice.finish,
      })),
      system_fingerprint: null,
    },
    usage,
    estimatedTokens: tokensOfBytes(bytes) + images * TOKENS_OF_IMAGE,
    estimatedMedia: mediaTokens(images * TOKENS_OF_IMAGE, 0),
  };
}

/** Renders a whole typed answer. */
export const chatCompletionRender = new CompletionRender(import.meta.url, renderCompletion);

function messageOf(choice: TypedChoice, hidesReasoning: boolean): Record<string, unknown> {
  const { text, reasoning, reasoningDetails = [], refusal, toolCalls = [], annotations } = choice;
  const { images = [] } = choice;
  return {
    role: "assistant",
    content: text ?? null,
    refusal: refusal ?? null,
    ...(reasoning !== undefined && !hidesReasoning && { reasoning }),
    ...(reasoningDetails.length > 0 && !hidesReasoning && { reasoning_details: reasoningDetails }),
    ...(annotations !== undefined && { annotations }),
    ...(images.length > 0 && { images: images.map(imageBody) }),
    ...(toolCalls.length > 0 && { tool_calls: toolCalls.map(toolCallBody) }),
  };
}

function toolCallBody(call: ToolCall): Record<string, unknown> {
  const { id, name, arguments: text, extraContent } = call;
  const body = { id, type: "function", function: { name, arguments: text } };
  return extraContent === undefined ? body : { ...body, extra_content: extraContent };
}

/** Returns an image in OpenRouter's form. */
function imageBody(url: string): Record<string, unknown> {
  return { type: "image_url", image_url: { url } };
}

function bytesOf(choice: TypedChoice): number {
  const { text, reasoning, reasoningDetails, refusal, toolCalls = [] } = choice;
  let bytes = encryptedBytes(reasoningDetails);
  for (const part of [text, reasoning, refusal]) bytes += Buffer.byteLength(part ?? "");
  for (const call of toolCalls) bytes += Buffer.byteLength(call.name + call.arguments);
  return bytes;
}

/**
 * Returns the bytes of encrypted reasoning, which is billed like any other reasoning. Signatures are not
 * billed.
 */
function encryptedBytes(details: readonly ReasoningDetail[] | undefined): number {
  let bytes = 0;
  for (const detail of details ?? []) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}

/** The end of a chunk, after its text. */
const AFTER_CONTENT = '},"finish_reason":null}]}\n\n';

/** The state of one choice of a stream. */
interface RenderedChoice {
  /** The beginning of a chunk, before its text. */
  readonly beforeContent: string;
  hasRole: boolean;
  isFinished: boolean;
  /** Tool calls by index. The value is true if a part of the arguments has arrived. */
  readonly calls: Map<number, boolean>;
  /** Calls of custom tools by index. Their input is complete when the choice ends. */
  customCalls?: Map<number, { readonly id: string; readonly name: string; json: string }>;
}

/** Renders typed events as chunks. */
class ChunkRenderer extends StreamedAnswer<readonly ChatEvent[]> {
  readonly #hidesReasoning: boolean;
  readonly #choices = new Map<number, RenderedChoice>();
  readonly #customTools: readonly string[];
  /** The beginning of all chunks, up to the index of the choice. */
  readonly #head: string;

  constructor(options: ChunkOptions, output: ByteBuffer) {
    const { id, model, hidesReasoning, nowSeconds, customTools = [] } = options;
    super(output, nowSeconds);
    this.#hidesReasoning = hidesReasoning;
    this.#customTools = customTools;
    const head = { id, object: "chat.completion.chunk", created: nowSeconds, model };
    this.#head = `data: ${latin1OfText(JSON.stringify(head).slice(0, -1))},"choices":[{"index":`;
  }

  protected override take(events: readonly ChatEvent[]): void {
    this.noteEvents(events.length);
    for (const event of events) this.#takeEvent(event);
  }

  protected override takeEnd(): void {
    // Each event is complete, so no state remains at the end.
  }

  #takeEvent(event: ChatEvent): void {
    if (event.type === "usage") this.noteUsage(event.usage);
    else if (this.failure !== undefined) return;
    else if (event.type === "error") this.noteReportedError(event.failure);
    else if (event.type === "withheld") this.noteWithheld(event.bytes);
    else if (event.type === "finish") this.#finish(event.choice, event.reason);
    else if (event.type === "tool_call") this.#addToolCall(event);
    else if (event.type === "image") this.#addImage(event);
    // Chat completions have no form for these events. Their result is in the text.
    else if (event.type !== "tool_run" && event.type !== "foreign_item") this.#addText(event);
  }

  #addText(event: Extract<ChatEvent, { readonly text: string }>): void {
    const { choice, text } = event;
    const state = this.#stateOf(choice);
    this.meter(Buffer.byteLength(text));
    if (event.type === "reasoning") this.#addReasoning(event);
    else if (event.type === "refusal") this.#addDelta(choice, { refusal: text });
    else {
      const { annotations, logprobs } = event;
      const isPlain = annotations === undefined && logprobs === undefined;
      if (isPlain && state.hasRole) {
        this.#addContent(state, text);
        return;
      }
      const delta = annotations === undefined ? { content: text } : { content: text, annotations };
      this.#addDelta(choice, delta, null, logprobs);
    }
  }

  /** Adds a text chunk, the most frequent event, without creating an object. */
  #addContent({ beforeContent }: RenderedChoice, text: string): void {
    this.noteBegun();
    const json = latin1OfText(JSON.stringify(text));
    this.output.add(beforeContent + json + AFTER_CONTENT);
  }

  #addReasoning({ choice, text, details }: Extract<ChatEvent, { type: "reasoning" }>): void {
    this.meter(encryptedBytes(details));
    if (this.#hidesReasoning) this.noteBegun();
    else if (details === undefined) this.#addDelta(choice, { reasoning: text });
    else if (text === "") this.#addDelta(choice, { reasoning_details: details });
    else this.#addDelta(choice, { reasoning: text, reasoning_details: details });
  }

  #addImage({ choice, url }: Extract<ChatEvent, { readonly type: "image" }>): void {
    this.meterImage();
    this.#addDelta(choice, { images: [imageBody(url)] });
  }

  #addToolCall(event: Extract<ChatEvent, { readonly type: "tool_call" }>): void {
    const { choice, index, id, name, arguments: text = "", extraContent } = event;
    const state = this.#stateOf(choice);
    const { calls } = state;
    if (this.#addCustomCall(state, event)) return;
    const isFirst = !calls.has(index);
    calls.set(index, text !== "" || calls.get(index) === true);
    this.meter(Buffer.byteLength((name ?? "") + text));
    const called = isFirst
      ? { index, ...toolCallBody({ id: id!, name: name!, arguments: text, extraContent }) }
      : { index, function: { arguments: text } };
    this.#addDelta(choice, { tool_calls: [called] });
  }

  /** Adds to the call of a custom tool. Returns false if the call is of a function. */
  #addCustomCall(
    state: RenderedChoice,
    { index, id, name, arguments: text = "" }: Extract<ChatEvent, { readonly type: "tool_call" }>,
  ): boolean {
    if (this.#customTools.length === 0) return false;
    const call = state.customCalls?.get(index);
    if (call === undefined) {
      if (name === undefined || !this.#customTools.includes(name)) return false;
      state.customCalls ??= new Map();
      state.customCalls.set(index, { id: id!, name, json: text });
    } else call.json += text;
    this.meter(Buffer.byteLength((name ?? "") + text));
    this.noteBegun();
    return true;
  }

  /** Finishes a choice. Calls without arguments receive an empty object, because an empty text is not JSON. */
  #finish(choice: number, reason: FinishReason): void {
    const state = this.#stateOf(choice);
    if (state.isFinished) return;
    const bare = [...state.calls].filter(([, hasArguments]) => !hasArguments);
    const calls: object[] = bare.map(([index]) => ({ index, function: { arguments: "{}" } }));
    for (const [index, { id, name, json }] of state.customCalls ?? []) {
      calls.push({ index, ...customCall(id, name, json) });
    }
    this.#addDelta(choice, calls.length === 0 ? {} : { tool_calls: calls }, reason);
    state.isFinished = true;
    this.finishedChoices++;
  }

  #addDelta(
    choice: number,
    delta: Readonly<Record<string, unknown>>,
    reason: FinishReason | null = null,
    logprobs?: unknown,
  ): void {
    this.noteBegun();
    const state = this.#stateOf(choice);
    const json = JSON.stringify(state.hasRole ? delta : { role: "assistant", ...delta });
    state.hasRole = true;
    const rest = logprobs === undefined ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
    const end = `${rest},"finish_reason":${JSON.stringify(reason)}}]}\n\n`;
    this.output.add(`${this.#head}${choice},"delta":${latin1OfText(json + end)}`);
  }

  #stateOf(choice: number): RenderedChoice {
    let state = this.#choices.get(choice);
    if (state === undefined) {
      const beforeContent = `${this.#head}${choice},"delta":{"content":`;
      state = { beforeContent, hasRole: false, isFinished: false, calls: new Map() };
      this.#choices.set(choice, state);
      this.startedChoices++;
    }
    return state;
  }
}
