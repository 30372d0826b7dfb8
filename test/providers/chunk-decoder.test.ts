import { expect, test } from "bun:test";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import type { ChatEvent } from "../../src/providers/interface.ts";
import { ChunkDecoder } from "../../src/providers/openai/chat/chunk-decoder.ts";
import { StreamRewriter } from "../../src/providers/openai/chat/stream-rewriter.ts";
import { listRecordings, loadRecording } from "../upstream/recordings.ts";

const id = "req_0123456789abcdef";

/** Pieces of a stream that can end anywhere. */
function pieces(bytes: Uint8Array, length: number): Uint8Array[] {
  const all: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += length) all.push(bytes.subarray(at, at + length));
  return all;
}

/** Content of an answer by choice, its parts joined. */
class Content {
  readonly choices = new Map<number, Record<string, string>>();

  add(choice: number, name: string, text: unknown): void {
    if (typeof text !== "string" || text === "") return;
    const parts = this.choices.get(choice) ?? {};
    parts[name] = (parts[name] ?? "") + text;
    this.choices.set(choice, parts);
  }
}

function contentOfEvents(events: readonly ChatEvent[]): Content {
  const content = new Content();
  for (const event of events) {
    if (event.type === "text" || event.type === "reasoning" || event.type === "refusal") {
      content.add(event.choice, event.type, event.text);
    } else if (event.type === "finish") content.add(event.choice, "finish", event.reason);
    else if (event.type === "tool_call") {
      const { choice, index } = event;
      content.add(choice, `id ${index}`, event.id);
      content.add(choice, `name ${index}`, event.name);
      content.add(choice, `arguments ${index}`, event.arguments);
    }
  }
  return content;
}

function contentOfChunks(text: string): Content {
  const content = new Content();
  for (const frame of text.split("\n\n").slice(0, -1)) {
    for (const { index, delta, finish_reason } of JSON.parse(frame.slice(6)).choices) {
      content.add(index, "text", delta.content);
      content.add(index, "reasoning", delta.reasoning);
      content.add(index, "refusal", delta.refusal);
      content.add(index, "finish", finish_reason);
      for (const call of delta.tool_calls ?? []) {
        content.add(index, `id ${call.index}`, call.id);
        content.add(index, `name ${call.index}`, call.function?.name);
        content.add(index, `arguments ${call.index}`, call.function?.arguments);
      }
    }
  }
  return content;
}

test.each(listRecordings().filter((name) => loadRecording(name).stream))(
  "the events of %s have the content and the usage of the chunks that pass",
  (name) => {
    const bytes = loadRecording(name).sse;
    for (const length of [97, bytes.length]) {
      const output = new ByteBuffer();
      const options = { id, model: "m", hidesReasoning: false, nowSeconds: 1 };
      const rewriter = new StreamRewriter(options, output);
      const decoder = new ChunkDecoder(id, undefined);
      const events: ChatEvent[] = [];
      for (const piece of pieces(bytes, length)) {
        rewriter.push(piece);
        if (!decoder.isOver) decoder.push(piece, events);
      }
      const content = contentOfEvents(events);
      expect(content).toEqual(contentOfChunks(Buffer.from(output.take()).toString()));
      expect(content.choices.size).toBeGreaterThan(0);
      const usage = events.findLast(({ type }) => type === "usage");
      expect(usage).toEqual(rewriter.usage && { type: "usage", usage: rewriter.usage });
      expect(decoder.isOver).toBe(rewriter.isDone);
    }
  },
);
