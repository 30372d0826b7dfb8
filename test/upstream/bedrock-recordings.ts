import { readFileSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import { events } from "../support/aws-event-stream.ts";

// biome-ignore lint/suspicious/noExplicitAny: recordings have the shapes that Bedrock gives them
type Fields = Record<string, any>;

/** What Bedrock's Converse has sent, with what it says, read in the plainest way. */
export interface BedrockRecording {
  readonly name: string;
  readonly stream: boolean;
  /** As they were sent, where the recording has them: of a stream its binary messages. */
  readonly bytes: Buffer;
  /** Whether the bytes are recorded, and not made of recorded events. */
  readonly isBinary: boolean;
  readonly expected: BedrockExpected;
}

export interface BedrockExpected {
  readonly content: string;
  readonly reasoning: string;
  readonly signature: string | undefined;
  readonly calls: readonly { id: string; name: string; input: unknown }[];
  readonly stopReason: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

const FIXTURES = join(import.meta.dir, "..", "fixtures");
const CASSETTES = ["iter_stream", "stream", "thinking_part_stream"].map(
  (name) => `pydantic-ai/bedrock/test_bedrock_model_${name}.yaml`,
);
const NAMES = ["reasoning", "text", "tool-call.1", "tool-no-args"].map(
  (name) => `vercel-ai/bedrock/amazon-bedrock-${name}`,
);

export function bedrockRecordings(): BedrockRecording[] {
  return [
    ...CASSETTES.flatMap((name) =>
      (YAML.parse(readText(name)) as Fields).interactions.map((one: Fields, at: number) => {
        const bytes = Buffer.from(one.response.body.string.replaceAll(/\s/g, ""), "base64");
        return streamed(`${name} ${at + 1}`, bytes, true, plainEvents(bytes));
      }),
    ),
    ...NAMES.map((name) => {
      const lines = readText(`${name}.chunks.txt`).split("\n").filter(Boolean);
      const all = lines.map((line) => JSON.parse(line) as Fields);
      return streamed(`${name}.chunks.txt`, events(...all), false, all);
    }),
    ...NAMES.map((name) => {
      const text = readText(`${name}.json`);
      const expected = ofAnswer(JSON.parse(text) as Fields);
      const bytes = Buffer.from(text);
      return { name: `${name}.json`, stream: false, bytes, isBinary: false, expected };
    }),
  ];
}

function readText(name: string): string {
  return readFileSync(join(FIXTURES, name), "utf8");
}

/** The JSON between the headers and the checksum of each message, found by their lengths alone. */
function plainEvents(bytes: Buffer): Fields[] {
  const all: Fields[] = [];
  for (let at = 0; at < bytes.length; at += bytes.readUInt32BE(at)) {
    const headersEnd = at + 12 + bytes.readUInt32BE(at + 4);
    const type = /:event-type...(\w+?)\s:content-type/s.exec(
      bytes.toString("latin1", at + 12, headersEnd),
    )![1]!;
    const payload = bytes.toString("utf8", headersEnd, at + bytes.readUInt32BE(at) - 4);
    all.push({ [type]: JSON.parse(payload) });
  }
  return all;
}

function streamed(
  name: string,
  bytes: Buffer,
  isBinary: boolean,
  all: readonly Fields[],
): BedrockRecording {
  const blocks: Fields[] = [];
  let stopReason = "";
  let usage: Fields = {};
  for (const { contentBlockStart: start, contentBlockDelta: delta, messageStop, metadata } of all) {
    const { contentBlockIndex: at } = start ?? delta ?? {};
    if (start?.start.toolUse) blocks[at] = { toolUse: { ...start.start.toolUse, input: "" } };
    if (delta) {
      blocks[at] ??= {};
      addDelta(blocks[at], delta.delta);
    }
    if (messageStop) stopReason = messageStop.stopReason;
    if (metadata) usage = metadata.usage;
  }
  for (const { toolUse } of blocks) {
    if (toolUse) toolUse.input = toolUse.input === "" ? {} : JSON.parse(toolUse.input);
  }
  const expected = ofAnswer({ output: { message: { content: blocks } }, stopReason, usage });
  return { name, stream: true, bytes, isBinary, expected };
}

function addDelta(block: Fields, { text, toolUse, reasoningContent }: Fields): void {
  if (text !== undefined) block.text = (block.text ?? "") + text;
  if (toolUse !== undefined) block.toolUse.input += toolUse.input;
  if (reasoningContent === undefined) return;
  block.reasoningContent ??= { reasoningText: { text: "" } };
  const { reasoningText } = block.reasoningContent;
  reasoningText.text += reasoningContent.text ?? "";
  reasoningText.signature ??= reasoningContent.signature;
}

function ofAnswer({ output, stopReason, usage }: Fields): BedrockExpected {
  const blocks: Fields[] = output.message.content;
  const reasoned = blocks.map(({ reasoningContent }) => reasoningContent?.reasoningText ?? {});
  return {
    content: blocks.map(({ text = "" }) => text).join(""),
    reasoning: reasoned.map(({ text = "" }) => text).join(""),
    signature: reasoned.find(({ signature }) => signature !== undefined)?.signature,
    calls: blocks
      .filter(({ toolUse }) => toolUse !== undefined)
      .map(({ toolUse }) => ({ id: toolUse.toolUseId, name: toolUse.name, input: toolUse.input })),
    stopReason,
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
  };
}
