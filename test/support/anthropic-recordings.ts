import { readFileSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";

// biome-ignore lint/suspicious/noExplicitAny: recordings have the shapes that Anthropic gives them
type Fields = Record<string, any>;

const FIXTURES = join(import.meta.dir, "..", "fixtures");

/** All recordings of Anthropic's Messages API, by path below test/fixtures. */
export const STREAMS = [
  "vercel-ai/anthropic/anthropic-clear-thinking.1.chunks.txt",
  "vercel-ai/anthropic/anthropic-json-tool.1.chunks.txt",
  "vercel-ai/anthropic/anthropic-refusal.chunks.txt",
  "vercel-ai/anthropic/anthropic-text.chunks.txt",
  "vercel-ai/anthropic/anthropic-tool-no-args.chunks.txt",
  "pydantic-ai/anthropic/test_anthropic_model_thinking_part_redacted_stream.yaml",
  "pydantic-ai/anthropic/test_request_stream_fallback_for_high_max_tokens.yaml",
];
export const WHOLE = [
  "vercel-ai/anthropic/anthropic-claude-opus-5-reasoning-high.1.json",
  "vercel-ai/anthropic/anthropic-text.json",
];

function read(name: string): string {
  return readFileSync(join(FIXTURES, name), "utf8");
}

/** The bytes of a recorded stream; frames of payloads alone get their names back. */
export function streamText(name: string): string {
  if (name.endsWith(".yaml")) {
    const cassette = YAML.parse(read(name)) as Fields;
    return cassette.interactions[0].response.body.string;
  }
  return framed(
    read(name)
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => JSON.parse(line)),
  );
}

export function framed(events: readonly object[]): string {
  return events
    .map((one) => `event: ${(one as Fields).type}\ndata: ${JSON.stringify(one)}\n\n`)
    .join("");
}

export function wholeMessage(name: string): Fields {
  return JSON.parse(read(name)) as Fields;
}

/** The status and body of a recorded error. */
export function recordedError(name: string): { status: number; body: unknown } {
  const { response } = (YAML.parse(read(name)) as Fields).interactions[0];
  return { status: response.status.code, body: response.parsed_body };
}

/** The message that a stream amounts to, put together as Anthropic's documentation says. */
export function messageOfStream(text: string): Fields {
  let message: Fields = {};
  for (const frame of text.split("\n\n")) {
    const data = frame.split("\n").find((line) => line.startsWith("data:"));
    if (data === undefined) continue;
    const event = JSON.parse(data.slice(5)) as Fields;
    const block = message.content?.[event.index];
    if (event.type === "message_start") message = structuredClone(event.message);
    else if (event.type === "content_block_start") {
      message.content[event.index] = { ...event.content_block };
    } else if (event.type === "content_block_delta") addDelta(block, event.delta);
    else if (event.type === "content_block_stop" && block.json !== undefined) {
      block.input = block.json === "" ? {} : JSON.parse(block.json);
      delete block.json;
    } else if (event.type === "message_delta") {
      Object.assign(message, event.delta);
      Object.assign(message.usage, event.usage);
    }
  }
  return message;
}

function addDelta(block: Fields, delta: Fields): void {
  if (delta.type === "text_delta") block.text += delta.text;
  else if (delta.type === "thinking_delta") block.thinking += delta.thinking;
  else if (delta.type === "signature_delta") block.signature += delta.signature;
  else if (delta.type === "input_json_delta") block.json = (block.json ?? "") + delta.partial_json;
}

/** What a client of the gateway is to get of a message. */
export function expectedOf(message: Fields) {
  const blocks = message.content as Fields[];
  const joined = (type: string, member: string) =>
    blocks.map((one) => (one.type === type ? one[member] : "")).join("");
  const finishes: Record<string, string> = {
    end_turn: "stop",
    tool_use: "tool_calls",
    refusal: "content_filter",
  };
  const { usage } = message;
  return {
    content: joined("text", "text"),
    reasoning: joined("thinking", "thinking"),
    details: blocks.flatMap((block, index): Fields[] => {
      const format = "anthropic-claude-v1";
      if (block.type === "redacted_thinking") {
        return [{ type: "reasoning.encrypted", data: block.data, format, index }];
      }
      if (block.type !== "thinking") return [];
      const { thinking: text, signature } = block;
      return [{ type: "reasoning.text", text, signature, format, index }];
    }),
    calls: blocks
      .filter(({ type }) => type === "tool_use")
      .map(({ id, name, input }) => ({ id, name, input })),
    finish: finishes[message.stop_reason]!,
    refusal: (message.stop_details?.explanation as string | undefined) ?? null,
    tokens: {
      input: usage.input_tokens as number,
      cached: (usage.cache_read_input_tokens ?? 0) as number,
      written: (usage.cache_creation_input_tokens ?? 0) as number,
      output: usage.output_tokens as number,
      thinking: (usage.output_tokens_details?.thinking_tokens ?? 0) as number,
    },
  };
}
