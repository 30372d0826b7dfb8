import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

type Fields = Record<string, unknown>;

const INPUT = '*** Begin\n"Grünstadt" ☂\n';
const FORMAT = { type: "grammar", grammar: { syntax: "regex", definition: "^.+$" } };
const PATCH = {
  type: "custom",
  custom: { name: "patch", description: "Applies.", format: FORMAT },
};
const WEATHER = { type: "function", function: { name: "weather", parameters: { type: "object" } } };
const CALLED = { type: "custom", custom: { name: "patch", input: INPUT } };
const HELLO = { role: "user", content: "hello" };
const CALLS = [
  { name: "weather", arguments: "{}" },
  { name: "patch", arguments: JSON.stringify({ input: INPUT }) },
];
const PADDING = " ".repeat(262_145);

/** Of a documented provider that has functions alone, and of a server that says itself what it has. */
let groq: ChatGateway;
let local: ChatGateway;
beforeAll(async () => {
  groq = await startChatGateway({ primaryType: "groq" });
  local = await startChatGateway();
});
afterAll(async () => {
  await groq.stop();
  await local.stop();
});
afterEach(async () => {
  await expectBooksClosed(groq);
  await expectBooksClosed(local);
});

const ask = (gateway: ChatGateway, model: string, body: Fields, padding = "", init = {}) => {
  const asked = { model, messages: [HELLO], tools: [WEATHER, PATCH], ...body };
  return gateway.request("POST", "/v1/chat/completions", JSON.stringify(asked) + padding, init);
};

interface Message {
  readonly content: string | null;
  readonly tool_calls: readonly (Fields & { readonly id: string })[];
}

async function callsOf(response: Response): Promise<Message["tool_calls"]> {
  expect(response.status).toBe(200);
  const { choices } = (await response.json()) as {
    choices: [{ message: Message; finish_reason: string }];
  };
  expect(choices[0].finish_reason).toBe("tool_calls");
  return choices[0].message.tool_calls;
}

/** Joined as OpenAI's clients join them. */
async function streamedCalls(response: Response): Promise<Fields[]> {
  expect(response.status).toBe(200);
  const { chunks } = await readStream(response);
  const calls: Fields[] = [];
  for (const chunk of chunks as unknown as readonly { choices: { delta: Fields }[] }[]) {
    for (const { delta } of chunk.choices) {
      for (const { index, ...piece } of (delta.tool_calls ?? []) as (Fields & {
        index: number;
      })[]) {
        calls[index] ??= {};
        const call = calls[index];
        for (const [name, value] of Object.entries(piece)) {
          const before = (call[name] ?? {}) as Fields;
          if (typeof value !== "object" || value === null) call[name] = value;
          else {
            call[name] = { ...before };
            for (const [member, text] of Object.entries(value)) {
              (call[name] as Fields)[member] = `${before[member] ?? ""}${text}`;
            }
          }
        }
      }
    }
  }
  return calls;
}

const withoutId = ({ id: _, ...call }: Fields) => call;

describe("of a provider without custom tools", () => {
  const made = () => `test/${groq.modelThat({ do: "complete", toolCalls: CALLS })}`;
  const sent = () => groq.upstream.served.at(-1)!.requestBody as Fields;

  test("a custom tool is offered as a function of one text, and its calls are turned back", async () => {
    for (const padding of ["", PADDING]) {
      const calls = await callsOf(await ask(groq, made(), {}, padding));
      expect(calls.map(withoutId)).toEqual([
        { type: "function", function: { name: "weather", arguments: "{}" } },
        CALLED,
      ]);
      const [function_, custom] = sent().tools as Fields[];
      expect(function_).toEqual(WEATHER);
      expect(custom).toMatchObject({
        type: "function",
        function: {
          name: "patch",
          description: expect.stringContaining("^.+$"),
          parameters: { properties: { input: { type: "string" } }, required: ["input"] },
        },
      });
    }
  });

  test("so are those of a stream, whole in one piece", async () => {
    for (const padding of ["", PADDING]) {
      const calls = await streamedCalls(await ask(groq, made(), { stream: true }, padding));
      expect(calls.map(withoutId)).toEqual([
        { type: "function", function: { name: "weather", arguments: "{}" } },
        CALLED,
      ]);
    }
  });

  test("earlier calls and each form of tool_choice go as those of functions", async () => {
    const messages = [
      HELLO,
      { role: "assistant", content: null, tool_calls: [{ id: "call_1", ...CALLED }] },
      { role: "tool", tool_call_id: "call_1", content: "Done." },
    ];
    const named = { type: "function", function: { name: "patch" } };
    const choice = { type: "custom", custom: { name: "patch" } };
    const allowed = (tools: unknown) => ({
      type: "allowed_tools",
      allowed_tools: { mode: "auto", tools },
    });
    for (const padding of ["", PADDING]) {
      await callsOf(await ask(groq, made(), { messages, tool_choice: choice }, padding));
      expect(sent().tool_choice).toEqual(named);
      expect((sent().messages as Fields[])[1]!.tool_calls).toEqual([
        {
          id: "call_1",
          type: "function",
          function: { name: "patch", arguments: CALLS[1]!.arguments },
        },
      ]);
      await callsOf(await ask(groq, made(), { tool_choice: allowed([choice]) }, padding));
      expect(sent().tool_choice).toEqual(allowed([named]));
    }
  });

  test("OpenAI's SDK runs a custom tool of the sandbox", async () => {
    const client = new OpenAI({ baseURL: `${groq.baseUrl}/v1`, apiKey: groq.secretKey });
    const tools = [PATCH as OpenAI.ChatCompletionTool];
    const { choices } = await client.chat.completions.create({
      ...{ model: "sandbox/chat", messages: [{ role: "user", content: "Use patch." }], tools },
    });
    const [call] = choices[0]!.message.tool_calls!;
    expect(call).toMatchObject({ type: "custom", custom: { name: "patch" } });
    expect(typeof (call as OpenAI.ChatCompletionMessageCustomToolCall).custom.input).toBe("string");
  });
});

describe("of a provider that has custom tools", () => {
  const piece = (delta: Fields, finish: string | null = null) => ({
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const parts = [INPUT.slice(0, 7), INPUT.slice(7)];
  const frames = [
    piece({
      role: "assistant",
      tool_calls: [{ index: 0, id: "c1", type: "custom", custom: { name: "patch", input: "" } }],
    }),
    ...parts.map((input) => piece({ tool_calls: [{ index: 0, custom: { input } }] })),
    piece({}, "tool_calls"),
  ];

  test("tools and calls pass as they are, from the response cache too", async () => {
    const model = `test/${local.modelThat({ do: "frames", frames })}`;
    const headers = { "x-gateway-cache": "on" };
    const stream = () => ask(local, model, { stream: true }, "", { headers });
    expect(await streamedCalls(await stream())).toEqual([{ id: "c1", ...CALLED }]);
    expect((local.upstream.served.at(-1)!.requestBody as Fields).tools).toEqual([WEATHER, PATCH]);
    const before = local.upstream.served.length;
    expect(await callsOf(await ask(local, model, {}, "", { headers }))).toEqual([
      { id: "c1", ...CALLED },
    ]);
    expect(await streamedCalls(await stream())).toEqual([{ id: "c1", ...CALLED }]);
    expect(local.upstream.served.length).toBe(before);
  });
});

test.each([
  [{ type: "custom" }, "tools.0.custom"],
  [{ type: "custom", custom: {} }, "tools.0.custom"],
  [{ type: "custom", custom: { name: "" } }, "tools.0.custom.name"],
  [{ type: "custom", custom: { name: "p", format: { type: "lark" } } }, "tools.0.custom.format"],
])("a custom tool is checked: %j", async (tool, param) => {
  const refused = await ask(local, "sandbox/chat", { tools: [tool] });
  const { error } = await expectError(refused, 400, "invalid_body");
  expect(error.param).toStartWith(param);
});
