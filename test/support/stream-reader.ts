import { expect } from "bun:test";

type Fields = Record<string, unknown>;

export interface StreamChunk extends Fields {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly StreamChoice[];
  readonly usage?: Fields;
}

interface StreamChoice extends Fields {
  readonly index: number;
  readonly delta: Fields;
  readonly finish_reason: string | null;
}

/** A chat completion stream as a client reads it. */
export interface ReadStream {
  readonly text: string;
  readonly chunks: readonly StreamChunk[];
  /** The envelope of an error frame. */
  readonly error: { readonly error: Fields; readonly request_id: string } | undefined;
  readonly comments: number;
  readonly isDone: boolean;
  /** Of the choice 0. */
  readonly content: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ReadToolCall[];
  readonly finishReason: string | null;
  readonly usage: Fields | undefined;
}

export interface ReadToolCall {
  readonly index: number;
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** Reads a stream to its end. Fails where a frame is neither a comment nor a data line nor JSON. */
export async function readStream(response: Response): Promise<ReadStream> {
  return parseStream(await response.text());
}

export function parseStream(text: string): ReadStream {
  expect(text === "" || text.endsWith("\n\n")).toBeTrue();
  const frames = text.split("\n\n").slice(0, -1);
  const payloads: string[] = [];
  let comments = 0;
  for (const frame of frames) {
    if (frame === ": keepalive") comments++;
    else if (frame.startsWith("data: ") && !frame.includes("\n")) payloads.push(frame.slice(6));
    else throw new Error(`a frame that is neither comment nor data: ${frame.slice(0, 200)}`);
  }
  const isDone = payloads.at(-1) === "[DONE]";
  const parsed = payloads.slice(0, isDone ? -1 : undefined).map((one) => JSON.parse(one) as Fields);
  const chunks = parsed.filter((one) => one.error === undefined) as StreamChunk[];
  const errors = parsed.filter((one) => one.error !== undefined);
  if (errors.length > 1) throw new Error("more than one error frame");
  if (errors.length === 1) expect(parsed.at(-1)).toBe(errors[0]!);
  return {
    text,
    chunks,
    error: errors[0] as ReadStream["error"],
    comments,
    isDone,
    ...gathered(chunks),
  };
}

function gathered(chunks: readonly StreamChunk[]) {
  let content = "";
  let reasoning = "";
  let finishReason: string | null = null;
  let usage: Fields | undefined;
  const toolCalls: { index: number; id: string; name: string; arguments: string }[] = [];
  for (const chunk of chunks) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason } of chunk.choices) {
      if (index !== 0) continue;
      content += (delta.content as string | null | undefined) ?? "";
      reasoning += (delta.reasoning as string | undefined) ?? "";
      finishReason = finish_reason ?? finishReason;
      for (const call of (delta.tool_calls as Fields[] | undefined) ?? []) addCall(toolCalls, call);
    }
  }
  return { content, reasoning, finishReason, usage, toolCalls };
}

function addCall(
  calls: { index: number; id: string; name: string; arguments: string }[],
  delta: Fields,
): void {
  const called = (delta.function as Fields | undefined) ?? {};
  let known = calls.find((one) => one.index === delta.index);
  if (known === undefined) {
    known = { index: delta.index as number, id: "", name: "", arguments: "" };
    calls.push(known);
  }
  known.id ||= (delta.id as string | undefined) ?? "";
  known.name ||= (called.name as string | undefined) ?? "";
  known.arguments += (called.arguments as string | undefined) ?? "";
}

const FINISH_REASONS = ["stop", "length", "tool_calls", "content_filter"];

/** What spec 6.2 says of every stream that ended whole. */
export function expectStreamShape(
  stream: ReadStream,
  wanted: { model: string; includesUsage: boolean },
): void {
  expect(stream.isDone).toBeTrue();
  expect(stream.error).toBeUndefined();
  expect(new Set(stream.chunks.map(({ id }) => id)).size).toBe(1);
  expect(stream.chunks[0]!.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
  for (const chunk of stream.chunks) {
    expect(chunk.object).toBe("chat.completion.chunk");
    expect(chunk.model).toBe(wanted.model);
    expect(chunk.created).toBeInteger();
  }
  expect(new Set(stream.chunks.map(({ created }) => created)).size).toBe(1);
  const { contentChunks, usageChunks } = split(stream.chunks);
  expectChoices(contentChunks);
  expect(usageChunks).toHaveLength(wanted.includesUsage ? 1 : 0);
  if (!wanted.includesUsage) return;
  const last = stream.chunks.at(-1)!;
  expect(last).toBe(usageChunks[0]!);
  expect(last.choices).toEqual([]);
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens, cost } = last.usage!;
  expect(prompt).toBeInteger();
  expect(completion).toBeInteger();
  expect(total_tokens).toBe((prompt as number) + (completion as number));
  expect(cost).toBeNumber();
}

function split(chunks: readonly StreamChunk[]) {
  return {
    contentChunks: chunks.filter(({ usage }) => usage === undefined),
    usageChunks: chunks.filter(({ usage }) => usage !== undefined),
  };
}

function expectChoices(chunks: readonly StreamChunk[]): void {
  const byIndex = new Map<number, StreamChoice[]>();
  for (const chunk of chunks) {
    expect(chunk.choices.length).toBePositive();
    for (const choice of chunk.choices) {
      byIndex.set(choice.index, [...(byIndex.get(choice.index) ?? []), choice]);
    }
  }
  expect(byIndex.size).toBePositive();
  for (const choices of byIndex.values()) {
    expect(choices[0]!.delta.role).toBe("assistant");
    expect(choices.slice(1).filter(({ delta }) => "role" in delta)).toEqual([]);
    expect(choices.slice(0, -1).filter((choice) => choice.finish_reason !== null)).toEqual([]);
    expect(choices.at(-1)!.finish_reason).toBeOneOf(FINISH_REASONS);
  }
}
