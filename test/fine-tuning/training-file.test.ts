import { describe, expect, test } from "bun:test";
import { checkChatLine } from "../../src/jobs/files/json-lines-check.ts";
import {
  checkFile,
  checkLongLine,
  type LongLineCall,
} from "../../src/jobs/fine-tuning/training-file.ts";
import { textStream } from "../contracts/fine-tuning-providers.ts";

const CONTEXT_TOKENS = 50;

/** One token a word. */
const limits = {
  contextTokens: CONTEXT_TOKENS,
  countTokens: async (text: string) => text.split(/\s+/).filter((word) => word !== "").length,
  checkLongLine: async (call: LongLineCall) => checkLongLine(call),
};
const check = (...lines: unknown[]) =>
  checkFile(
    textStream(
      lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line))).join("\n"),
    ),
    limits,
    "training_file",
  );
const example = (...messages: object[]) => ({ messages });
const user = { role: "user", content: "q" };
const assistant = { role: "assistant", content: "a" };

describe("a training file", () => {
  test("of examples is good, and about counted", async () => {
    const outcome = await check(
      example(user, assistant),
      "",
      example(
        { role: "system", content: [{ type: "text", text: "s" }] },
        user,
        { role: "assistant", tool_calls: [{ id: "c" }] },
        { role: "tool", tool_call_id: "c", content: "t" },
        assistant,
      ),
    );
    expect(outcome).toMatchObject({ tokens: expect.any(Number) });
  });

  const SAID = {
    "calls tools": { content: null, tool_calls: [{ id: "c" }] },
    "calls a function": { content: null, function_call: { name: "f", arguments: "{}" } },
    refuses: { content: null, refusal: "no" },
    "has null for what it does not do": {
      content: "a",
      tool_calls: null,
      function_call: null,
      refusal: null,
    },
  };
  test.each(Object.entries(SAID))(
    "is taken at its upload and in its job where the assistant %s",
    async (_, said) => {
      const line = { ...example(user, { role: "assistant", ...said }), tools: null };
      expect(checkChatLine(line)).toBeUndefined();
      expect(await check(line)).toHaveProperty("tokens");
    },
  );

  test("is refused by both where the assistant says nothing", async () => {
    for (const silence of [{}, { content: null }, { content: null, tool_calls: null }]) {
      const line = example(user, { role: "assistant", ...silence });
      expect(checkChatLine(line)).toMatchObject({ field: "messages.1.content" });
      expect(await check(line)).toMatchObject({ error: { code: "invalid_format" } });
    }
  });

  const FAULTS: [string, unknown[], string][] = [
    ["is empty", [""], "no examples"],
    ["has a line that is no JSON", [example(user, assistant), "{"], "line 2"],
    ["has a line that is no object", [[]], "line 1 is not an object"],
    ["has a line without messages", [{}], 'line 1 has no list of "messages"'],
    ["has an example without messages", [example()], 'line 1 has no list of "messages"'],
    ["has a message that is none", [{ messages: [5] }], "message (1) that is not an object"],
    [
      "has a role that is none",
      [example({ role: "king", content: "x" })],
      'the unknown role "king"',
    ],
    ["has a message without content", [example({ role: "user" })], "no content"],
    [
      "has content that is no text",
      [example({ role: "user", content: 5 })],
      "content that is neither text nor a list of parts",
    ],
    ["has nothing to learn", [example(user)], "no message of the assistant"],
  ];
  for (const [what, lines, words] of FAULTS) {
    test(`that ${what} has an invalid format, and the line at fault is named`, async () => {
      expect(await check(...lines)).toMatchObject({
        error: {
          code: "invalid_format",
          param: "training_file",
          message: expect.stringContaining(words),
        },
      });
    });
  }

  test("may fill the base model's context and no more", async () => {
    const words = (count: number) => "w ".repeat(count).trim();
    const fits = example({ role: "user", content: words(CONTEXT_TOKENS - 1) }, assistant);
    expect(await check(fits)).toHaveProperty("tokens");
    const exceeds = example({ role: "user", content: words(CONTEXT_TOKENS) }, assistant);
    expect(await check(fits, exceeds)).toMatchObject({
      error: { code: "token_limit_exceeded", message: expect.stringContaining("line 2") },
    });
  });

  test("is checked alike where its lines are long", async () => {
    const long = (fields: object) => ({ ...fields, padding: "x".repeat(70_000) });
    const { tokens: short } = (await check(example(user, assistant))) as { tokens: number };
    const good = long(example(user, assistant));
    expect(await check(good, example(user, assistant), good)).toEqual({ tokens: 3 * short });
    for (const [, lines, words] of FAULTS.slice(2)) {
      const refused = await check(good, ...lines.slice(0, -1), long(lines.at(-1) as object));
      const message = words.replace("line 1", "line 2");
      if (!Array.isArray(lines.at(-1))) {
        expect(refused).toMatchObject({ error: { message: expect.stringContaining(message) } });
      }
    }
    expect(await check(good, `{${" ".repeat(70_000)}`)).toMatchObject({
      error: { message: "The file is not valid JSONL: line 2 is not valid JSON." },
    });
    const words = "w ".repeat(CONTEXT_TOKENS + 1);
    expect(await check(good, long(example({ ...user, content: words }, assistant)))).toMatchObject({
      error: { code: "token_limit_exceeded", message: expect.stringContaining("line 2") },
    });
  });
});
