import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import type { RunnableToolFunctionWithoutParse } from "openai/lib/RunnableFunction";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import type { BehaviourName } from "../upstream/behaviours.ts";

const MODEL = "openai/gpt-4o-mini";
const UPSTREAM_MODEL = "gpt-4o-mini";
/** OpenAI's prices of gpt-4o-mini in nano-USD for a thousand tokens, and the fee of the free plan. */
const INPUT_NANO_PER_1000 = 150_000n;
const OUTPUT_NANO_PER_1000 = 600_000n;
const WEATHER: OpenAI.ChatCompletionFunctionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};
const ASK: OpenAI.ChatCompletionMessageParam[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "How are you?" },
];

type FunctionToolCall = OpenAI.ChatCompletionMessageFunctionToolCall;

let gateway: BuiltInGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
  openai = new OpenAI({ apiKey: gateway.secretKey, baseURL: gateway.apiUrl, maxRetries: 0 });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function expectBilled(requestId: string, usage: OpenAI.CompletionUsage): Promise<void> {
  const costNano1000 =
    BigInt(usage.prompt_tokens) * INPUT_NANO_PER_1000 +
    BigInt(usage.completion_tokens) * OUTPUT_NANO_PER_1000;
  const chargeNano = (costNano1000 * 104n + 50_000n) / 100_000n;
  const bill = await billOf(gateway, requestId);
  expect(bill).toMatchObject({ chargeNano, model: MODEL, provider: "openai", status: 200 });
  expect((usage as { cost?: number }).cost).toBe(Number(chargeNano) / 1e9);
}

describe("chat", () => {
  test("gives the answer, its usage and its request id", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", content: "Very well." });
    const completion = await openai.chat.completions.create({ model: MODEL, messages: ASK });
    expect(completion.object).toBe("chat.completion");
    expect(completion.model).toBe(MODEL);
    expect(completion.choices[0]!.message).toMatchObject({
      role: "assistant",
      content: "Very well.",
    });
    expect(completion.choices[0]!.finish_reason).toBe("stop");
    const { usage } = completion;
    expect(usage!.total_tokens).toBe(usage!.prompt_tokens + usage!.completion_tokens);
    expect(completion._request_id).toMatch(/^req_[0-9a-f]{32}$/);
    await expectBilled(completion._request_id!, usage!);
  });

  test("takes a model by its bare name, and OpenAI's recorded answer", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "replay",
      recording: "vercel-ai/openai-chat/openai-text.json",
    });
    const { data, response } = await openai.chat.completions
      .create({ model: UPSTREAM_MODEL, messages: ASK, temperature: 0, seed: 1 })
      .withResponse();
    expect(data.choices[0]!.message.content!.length).toBeGreaterThan(20);
    expect(response.headers.get("x-gateway-model")).toBe(MODEL);
    expect(response.headers.get("x-gateway-provider")).toBe("openai");
  });
});

describe("streamed chat", () => {
  test("brings every piece, and usage at the end", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "replay",
      recording: "vercel-ai/openai-chat/openai-text.chunks.txt",
    });
    const { data: stream, request_id } = await openai.chat.completions
      .create({
        model: MODEL,
        messages: ASK,
        stream: true,
        stream_options: { include_usage: true },
      })
      .withResponse();
    let content = "";
    let usage: OpenAI.CompletionUsage | undefined;
    const ids = new Set<string>();
    for await (const chunk of stream) {
      ids.add(chunk.id);
      content += chunk.choices[0]?.delta.content ?? "";
      if (chunk.usage) {
        expect(chunk.choices).toEqual([]);
        usage = chunk.usage;
      } else expect(chunk.choices).toHaveLength(1);
    }
    expect(ids.size).toBe(1);
    expect(content.length).toBe(gateway.upstream.served.at(-1)!.contentCharactersSent);
    await expectBilled(request_id!, usage!);
  });

  test("is gathered by the SDK's own stream helper", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "complete",
      content: "Well, and you?",
      events: 5,
    });
    const runner = openai.chat.completions.stream({ model: MODEL, messages: ASK });
    const pieces: string[] = [];
    runner.on("content", (delta) => pieces.push(delta));
    expect(await runner.finalContent()).toBe("Well, and you?");
    expect(pieces.length).toBeGreaterThan(1);
    expect((await runner.finalChatCompletion()).choices[0]!.finish_reason).toBe("stop");
  });
});

describe("tool calls", () => {
  test("come whole, and their results go back", async () => {
    const first = await openai.chat.completions.create({
      model: MODEL,
      messages: ASK,
      tools: [WEATHER],
      tool_choice: "required",
    });
    const { message, finish_reason } = first.choices[0]!;
    expect(finish_reason).toBe("tool_calls");
    expect(message.content).toBeNull();
    const call = message.tool_calls![0]! as FunctionToolCall;
    expect(call.type).toBe("function");
    expect(call.function.name).toBe("get_weather");
    expect(JSON.parse(call.function.arguments)).toEqual({ city: expect.any(String) });
    const result: OpenAI.ChatCompletionMessageParam = {
      role: "tool",
      tool_call_id: call.id,
      content: "rain",
    };
    const second = await openai.chat.completions.create({
      model: MODEL,
      messages: [...ASK, message, result],
      tools: [WEATHER],
    });
    expect(second.choices[0]!.finish_reason).toBe("stop");
    const received = gateway.upstream.served.at(-1)!.requestBody!.messages as unknown[];
    const { refusal, ...said } = message;
    expect(refusal).toBeNull();
    expect(received.slice(-2)).toEqual([said, result]);
  });

  test("come streamed, and the SDK joins them", async () => {
    const args = JSON.stringify({ city: "Grünstadt ☂" });
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "complete",
      toolCalls: [
        { name: "get_weather", arguments: args },
        { name: "get_weather", arguments: '{"city":"Ulm"}' },
      ],
      cut: true,
    });
    const runner = openai.chat.completions.stream({
      model: MODEL,
      messages: ASK,
      tools: [WEATHER],
    });
    const { message, finish_reason } = (await runner.finalChatCompletion()).choices[0]!;
    expect(finish_reason).toBe("tool_calls");
    const calls = (message.tool_calls as FunctionToolCall[]).map(({ function: called }) => called);
    expect(calls.map(({ name }) => name)).toEqual(["get_weather", "get_weather"]);
    expect(calls.map((called) => called.arguments)).toEqual([args, '{"city":"Ulm"}']);
    expect(new Set(message.tool_calls!.map(({ id }) => id)).size).toBe(2);
  });

  test.each<[BehaviourName, boolean]>([
    ["complete", false],
    ["complete", true],
    ["calls-untyped", false],
    ["calls-untyped", true],
    ["calls-from-1", true],
  ])("are run by the SDK's own tool runner: %s, streamed: %p", async (name, stream) => {
    gateway.upstream.enqueue(
      UPSTREAM_MODEL,
      { do: name, toolCalls: [{ name: "get_weather", arguments: '{"city":"Ulm"}' }] },
      { do: "complete", content: "It rains in Ulm." },
    );
    const asked: string[] = [];
    const tool: RunnableToolFunctionWithoutParse = {
      type: "function",
      function: {
        name: "get_weather",
        description: "The weather of a city",
        parameters: WEATHER.function.parameters!,
        function: (args) => {
          asked.push(args);
          return "rain";
        },
      },
    };
    const wish = { model: MODEL, messages: ASK, tools: [tool] };
    const runner = stream
      ? openai.chat.completions.runTools({ ...wish, stream: true })
      : openai.chat.completions.runTools(wish);
    expect(await runner.finalContent()).toBe("It rains in Ulm.");
    expect(asked).toEqual(['{"city":"Ulm"}']);
  });
});

test("JSON schema output is parsed by the SDK", async () => {
  const completion = await openai.chat.completions.parse({
    model: MODEL,
    messages: ASK,
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "mood",
        strict: true,
        schema: {
          type: "object",
          properties: {
            mood: { type: "string", enum: ["good", "bad"] },
            score: { type: "integer" },
          },
          required: ["mood", "score"],
          additionalProperties: false,
        },
      },
    },
  });
  const parsed = completion.choices[0]!.message.parsed as unknown as Record<string, unknown>;
  expect(parsed.mood).toBeOneOf(["good", "bad"]);
  expect(parsed.score).toBeInteger();
  expect(gateway.upstream.served.at(-1)!.requestBody!.response_format).toMatchObject({
    type: "json_schema",
    json_schema: { name: "mood", strict: true },
  });
});
