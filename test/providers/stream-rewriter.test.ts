import { expect, test } from "bun:test";
import fc from "fast-check";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import { StreamRewriter } from "../../src/providers/openai/chat/stream-rewriter.ts";

/** What means something to a pattern, to JSON, or to a stream of events. */
const word = fc.oneof(
  fc.constantFrom(
    "$&",
    "$1",
    "$$",
    '"',
    "\\",
    "\n\n",
    "data: ",
    "}",
    '"content":"',
    "äöü",
    "😀",
    "",
  ),
  fc.string(),
);
const text = fc.array(word, { maxLength: 4 }).map((words) => words.join(""));

function rewriter(model: string) {
  const output = new ByteBuffer();
  const options = { id: "chatcmpl-$&", model, hidesReasoning: false, nowSeconds: 5 };
  const its = new StreamRewriter(options, output);
  return {
    its,
    push(text: string): string {
      its.push(Buffer.from(text));
      return Buffer.from(output.take()).toString();
    },
  };
}

function chunkOf(content: string, system: string) {
  const choice = { index: 0, delta: { content }, logprobs: null, finish_reason: null };
  return {
    id: "x",
    created: 1,
    model: "m",
    system_fingerprint: system,
    choices: [choice],
    usage: null,
  };
}

const frame = (chunk: unknown) => `data: ${JSON.stringify(chunk)}\n\n`;

test("texts pass as they are, whatever they say, in a run of events and one by one", () => {
  fc.assert(
    fc.property(fc.array(text, { minLength: 3, maxLength: 12 }), text, text, (texts, id, model) => {
      const frames = texts.map((content) => frame(chunkOf(content, id)));
      const atOnce = rewriter(model);
      const oneByOne = rewriter(model);
      const output = atOnce.push(frames.join(""));
      expect(frames.map((one) => oneByOne.push(one)).join("")).toBe(output);
      expect(atOnce.its.outputTokens).toBe(oneByOne.its.outputTokens);
      expect(atOnce.its.outputBytes).toBe(Buffer.byteLength(texts.join("")));
      const events = output.split("\n\n").slice(0, -1);
      const chunks = events.map((event) => JSON.parse(event.slice("data: ".length)));
      const told = chunks.map((chunk) => chunk.choices[0].delta.content);
      expect(told).toEqual(texts);
      for (const chunk of chunks) {
        expect(chunk).toMatchObject({ id: "chatcmpl-$&", model, system_fingerprint: id });
        expect(chunk).not.toContainKey("usage");
      }
    }),
  );
});

test("an answer has begun with its first text, though chunks of the same form without text came before", () => {
  const { its, push } = rewriter("m");
  for (const empty of ["", "", ""]) push(frame(chunkOf(empty, "s")));
  expect(its.hasBegun).toBeFalse();
  push(frame(chunkOf("w", "s")));
  expect(its.hasBegun).toBeTrue();
});
