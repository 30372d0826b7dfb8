import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { createOpenAICompatible, type OpenAICompatibleProvider } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

const MODEL = "openai/gpt-4o-mini";
const UPSTREAM_MODEL = "gpt-4o-mini";

let gateway: BuiltInGateway;
let provider: OpenAICompatibleProvider;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
  provider = createOpenAICompatible({
    name: "gateway",
    baseURL: gateway.apiUrl,
    apiKey: gateway.secretKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ask = { prompt: "How are you?", maxRetries: 0 };

function weatherTool(asked: string[]) {
  return tool({
    description: "The weather of a city",
    inputSchema: jsonSchema<{ city: string }>({
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    }),
    execute: async ({ city }) => {
      asked.push(city);
      return "rain";
    },
  });
}

const TOOL_LOOP: Behaviour[] = [
  { do: "complete", toolCalls: [{ name: "weather", arguments: '{"city":"Ulm"}' }] },
  { do: "complete", content: "It rains in Ulm." },
];

describe("generateText", () => {
  test("gives the text, its finish reason and its usage", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", content: "Very well." });
    const result = await generateText({ model: provider(MODEL), ...ask });
    expect(result.text).toBe("Very well.");
    expect(result.finishReason).toBe("stop");
    expect(result.usage.inputTokens).toBePositive();
    expect(result.usage.outputTokens).toBe(3);
    expect(result.response.modelId).toBe(MODEL);
    expect(result.response.headers!["x-gateway-request-id"]).toMatch(/^req_/);
  });

  test("runs tools and gives their results back", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, ...TOOL_LOOP);
    const asked: string[] = [];
    const result = await generateText({
      model: provider(MODEL),
      ...ask,
      tools: { weather: weatherTool(asked) },
      stopWhen: stepCountIs(3),
    });
    expect(asked).toEqual(["Ulm"]);
    expect(result.text).toBe("It rains in Ulm.");
    expect(result.steps).toHaveLength(2);
  });

  test("gives output that follows a schema", async () => {
    const schema = jsonSchema<{ mood: string }>({
      type: "object",
      properties: { mood: { type: "string", enum: ["good", "bad"] } },
      required: ["mood"],
      additionalProperties: false,
    });
    const { output } = await generateText({
      model: provider(MODEL),
      ...ask,
      output: Output.object({ schema }),
    });
    expect(output.mood).toBeOneOf(["good", "bad"]);
  });

  test("fails with the gateway's own message", async () => {
    const error = await generateText({ model: provider("openai/gpt-0"), ...ask }).catch(
      (thrown: unknown) => thrown,
    );
    expect(APICallError.isInstance(error)).toBeTrue();
    const { statusCode, message, isRetryable } = error as APICallError;
    expect([statusCode, isRetryable]).toEqual([404, false]);
    expect(message).toContain("openai/gpt-0");
  });
});

describe("streamText", () => {
  test("brings every piece, the finish reason and the usage", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "complete",
      content: "Grüße, und selbst? 🌍",
      events: 6,
      cut: true,
    });
    const result = streamText({ model: provider(MODEL), ...ask });
    const pieces = await Array.fromAsync(result.textStream);
    expect(pieces.join("")).toBe("Grüße, und selbst? 🌍");
    expect(pieces.length).toBeGreaterThan(1);
    expect(await result.finishReason).toBe("stop");
    expect((await result.usage).outputTokens).toBe(6);
  });

  test("tells reasoning apart from text", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, {
      do: "complete",
      reasoning: "Let me think.",
      content: "Done.",
    });
    const result = streamText({ model: provider(MODEL), ...ask });
    expect(await result.text).toBe("Done.");
    expect(await result.reasoningText).toBe("Let me think.");
  });

  test("runs tools whose calls come in pieces", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, ...TOOL_LOOP);
    const asked: string[] = [];
    const result = streamText({
      model: provider(MODEL),
      ...ask,
      tools: { weather: weatherTool(asked) },
      stopWhen: stepCountIs(3),
    });
    expect(await result.text).toBe("It rains in Ulm.");
    expect(asked).toEqual(["Ulm"]);
  });

  test("tells an error in the middle of the stream", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "error-in-stream", events: 8, afterEvents: 5 });
    const errors: unknown[] = [];
    const result = streamText({
      model: provider(MODEL),
      ...ask,
      onError: ({ error }) => void errors.push(error),
    });
    const pieces = await Array.fromAsync(result.textStream);
    expect(pieces.join("")).toBe("w000000 w000001 w000002 w000003 ");
    expect(errors).toHaveLength(1);
  });

  test("aborted, stops the provider at once", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", events: 2_000, delayMs: 5 });
    const abort = new AbortController();
    const result = streamText({ model: provider(MODEL), ...ask, abortSignal: abort.signal });
    let pieces = 0;
    for await (const _ of result.textStream) if (++pieces === 10) abort.abort();
    await gateway.upstream.until((list) => list.at(-1)?.aborted === true, 500);
  });
});
