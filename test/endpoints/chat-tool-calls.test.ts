import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import type { BehaviourName } from "../upstream/behaviours.ts";

const CALLS = [
  { name: "get_weather", arguments: '{"city":"Ulm"}' },
  { name: "get_weather", arguments: '{"city":"Grünstadt ☂"}' },
];
const ODD: BehaviourName[] = [
  "complete",
  "calls-untyped",
  "calls-without-ids",
  "calls-at-index-0",
  "calls-as-objects",
  "calls-from-1",
  "calls-with-ids-anew",
  "calls-with-plain-stop",
];

interface Message {
  readonly content: string | null;
  readonly tool_calls?: readonly {
    readonly id: string;
    readonly type: string;
    readonly function: { readonly name: string; readonly arguments: string };
  }[];
}

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function whole(slug: string) {
  const response = await gateway.chat(slug);
  expect(response.status).toBe(200);
  const { choices } = (await response.json()) as {
    choices: [{ message: Message; finish_reason: string }];
  };
  return choices[0];
}

async function stream(slug: string) {
  const response = await gateway.chat(slug, {
    stream: true,
    stream_options: { include_usage: true },
  });
  expect(response.status).toBe(200);
  const read = await readStream(response);
  expectStreamShape(read, { model: `test/${slug}`, includesUsage: true });
  return read;
}

function expectIds(ids: readonly string[]): void {
  expect(new Set(ids).size).toBe(CALLS.length);
  for (const id of ids) expect(id).toMatch(/^.{1,40}$/);
}

describe("tool calls are in OpenAI's form, whatever the provider's is", () => {
  test.each(ODD)("%s, whole", async (name) => {
    const slug = gateway.modelThat({ do: name, toolCalls: CALLS });
    const { message, finish_reason } = await whole(slug);
    expect(finish_reason).toBe("tool_calls");
    expect(message.content).toBeNull();
    const calls = message.tool_calls!;
    // And nothing else: what clients send back in a call OpenAI takes by name.
    expect(calls.map(({ id: _, ...call }) => call)).toEqual(
      CALLS.map((call) => ({ type: "function", function: call })),
    );
    expectIds(calls.map(({ id }) => id));
  });

  test.each(ODD)("%s, streamed", async (name) => {
    const slug = gateway.modelThat({ do: name, toolCalls: CALLS, cut: true });
    const read = await stream(slug);
    expect(read.finishReason).toBe("tool_calls");
    expect(read.toolCalls.map(({ id: _, ...call }) => call)).toEqual(
      CALLS.map((call, index) => ({ index, ...call })),
    );
    expectIds(read.toolCalls.map(({ id }) => id));
    const pieces = read.chunks
      .flatMap(({ choices }) => choices.flatMap(({ delta }) => delta.tool_calls ?? []))
      .map((piece) => piece as Record<string, unknown>);
    const first = pieces.filter(({ id }) => id !== undefined);
    expect(first.map(({ index, type }) => ({ index, type }))).toEqual([
      { index: 0, type: "function" },
      { index: 1, type: "function" },
    ]);
    for (const piece of pieces) expect(JSON.stringify(piece)).not.toContain("null");
  });

  test.each<BehaviourName>(["complete", "calls-untyped"])(
    "a call without arguments has those of no name: %s",
    async (name) => {
      const toolCalls = [{ name: "now", arguments: "" }, ...CALLS, { name: "here", arguments: "" }];
      const slug = gateway.modelThat({ do: name, toolCalls });
      const expected = ["{}", ...CALLS.map((call) => call.arguments), "{}"];
      const { message } = await whole(slug);
      expect(message.tool_calls!.map((call) => call.function.arguments)).toEqual(expected);
      const read = await stream(slug);
      expect(read.toolCalls.map((call) => call.arguments)).toEqual(expected);
      expect(read.finishReason).toBe("tool_calls");
    },
  );

  test.each<BehaviourName>(["calls-of-null", "calls-of-none"])(
    "an answer that calls nothing says so by silence: %s",
    async (name) => {
      const slug = gateway.modelThat({ do: name, content: "Hello." });
      const { message, finish_reason } = await whole(slug);
      expect(message.content).toBe("Hello.");
      expect(message).not.toContainAnyKeys(["tool_calls", "function_call"]);
      expect(finish_reason).toBe("stop");
      const read = await stream(slug);
      expect(read.content).toBe("Hello.");
      expect(read.text).not.toMatch(/tool_calls|function_call/);
      expect(read.finishReason).toBe("stop");
    },
  );

  test.each<[string, object, object]>([
    ["empty", { id: "", type: "" }, { name: "" }],
    ["null", { id: null, type: null }, { name: null }],
    ["told again", { id: "a", type: "function" }, { name: "here" }],
  ])("what a further piece says besides arguments is nothing: %s", async (_name, call, called) => {
    const piece = (fields: object, told: object) => ({
      choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...fields, function: told }] } }],
    });
    const frames = [
      piece({ id: "a", type: "" }, { name: "here", arguments: "" }),
      piece(call, { ...called, arguments: "{}" }),
      { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
      "data: [DONE]\n\n",
    ];
    const { chunks } = await stream(gateway.modelThat({ do: "frames", frames }));
    const pieces = chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    expect(pieces[0]).toEqual({
      index: 0,
      id: "a",
      type: "function",
      function: { name: "here", arguments: "" },
    });
    expect(pieces[1]).not.toContainKey("id");
    expect(pieces[1]).not.toMatchObject({ type: "" });
    expect(pieces[1]).toHaveProperty("function", { arguments: "{}" });
  });

  test.each([null, {}, { name: "", arguments: "" }])(
    "a function that is called %j is none, streamed and whole",
    async (function_call) => {
      const choice = { index: 0, finish_reason: "stop" };
      const told = { role: "assistant", content: "Hello.", function_call };
      const frames = [{ choices: [{ ...choice, delta: told }] }, "data: [DONE]\n\n"];
      const read = await stream(gateway.modelThat({ do: "frames", frames }));
      expect(read).toMatchObject({ content: "Hello.", finishReason: "stop" });
      expect(read.text).not.toContain("function_call");
      const answer = { choices: [{ ...choice, message: told }] };
      const { message } = await whole(gateway.modelThat({ do: "frames", frames: [answer] }));
      expect(message).not.toContainKey("function_call");
    },
  );
});
