import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  CarriedThinking,
  carriedThinking,
} from "../../src/providers/anthropic/carried-thinking.ts";
import { geminiRequest } from "../../src/providers/gemini/request-body.ts";

/** Thinking that goes to clients, and comes back, with the calls of tools. */

function carried(...blocks: (readonly [index: number, text: string, signature: string])[]) {
  const thinking = new CarriedThinking();
  for (const block of blocks) thinking.add(...block);
  return thinking.take();
}

const called = (extra_content: unknown, id = "a") => ({
  id,
  type: "function",
  function: { name: "look", arguments: "{}" },
  extra_content,
});

test("pieces of thinking come back as the blocks that they were, each before its call", () => {
  const thinking = new CarriedThinking();
  thinking.add(0, "first ", "");
  thinking.add(0, "thought", "");
  thinking.add(0, "", "sig1");
  thinking.addRedacted(1, "secret");
  const first = called(thinking.take());
  expect(thinking.take()).toBeUndefined();
  thinking.add(3, "second", "sig2");
  const second = called(thinking.take(), "b");
  const message = { reasoning_content: "first thoughtsecond", tool_calls: [first, second] };
  const wanted = [
    { index: 0, block: { type: "thinking", thinking: "first thought", signature: "sig1" } },
    { index: 1, block: { type: "redacted_thinking", data: "secret" } },
    { index: 3, block: { type: "thinking", thinking: "second", signature: "sig2" } },
  ];
  expect(carriedThinking(message)).toEqual(wanted);
  const { reasoning_content: reasoning, ...rest } = message;
  expect(carriedThinking({ ...rest, reasoning })).toEqual(wanted);
});

test("thinking without a signature is not carried, and its text is passed over", () => {
  expect(carried([0, "unsigned", ""])).toBeUndefined();
  const extra = carried([0, "unsigned", ""], [1, "signed", "sig"]);
  const message = { reasoning_content: "unsignedsigned", tool_calls: [called(extra)] };
  expect(carriedThinking(message)).toEqual([
    { index: 1, block: { type: "thinking", thinking: "signed", signature: "sig" } },
  ]);
});

test("thinking whose text has not come back is left out", () => {
  const tool_calls = [called(carried([0, "a thought", "sig"]))];
  expect(carriedThinking({ tool_calls })).toEqual([]);
  expect(carriedThinking({ tool_calls, reasoning_content: "a thou" })).toEqual([]);
});

test("what another wire, or nobody, has made is left out, whatever it is", () => {
  const signed = (thought_signature: unknown) => called({ google: { thought_signature } });
  for (const value of ["c2lnbmF0dXJl", "anthropic-claude-v1.", "anthropic-claude-v1.{}", 5, null]) {
    expect(carriedThinking({ reasoning_content: "x", tool_calls: [signed(value)] })).toEqual([]);
  }
  const block = fc.oneof(
    fc.jsonValue(),
    fc.array(fc.oneof(fc.nat(9), fc.string(), fc.jsonValue())),
  );
  fc.assert(
    fc.property(fc.array(block), fc.string(), (blocks, reasoning_content) => {
      const value = `anthropic-claude-v1.${JSON.stringify(blocks)}`;
      for (const { index, block: one } of carriedThinking({
        reasoning_content,
        tool_calls: [signed(value)],
      })) {
        expect(index).toBeNumber();
        expect(typeof (one.type === "thinking" ? one.signature : one.data)).toBe("string");
      }
    }),
  );
});

test("Gemini does not get it as a signature of its own", () => {
  const messages = [
    { role: "user", content: "hello" },
    { role: "assistant", tool_calls: [called(carried([0, "hm", "sig"]))] },
  ];
  const { contents } = geminiRequest({ messages }, "gemini-3.5-flash") as {
    contents: { parts: Record<string, unknown>[] }[];
  };
  expect(contents[1]!.parts[0]!.thoughtSignature).toBe("skip_thought_signature_validator");
});
