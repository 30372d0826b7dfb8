import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

const MODEL = "openai/gpt-4o-mini";
const UPSTREAM_MODEL = "gpt-4o-mini";
const LOOK = {
  type: "function",
  name: "look",
  description: "Looks at a place",
  parameters: { type: "object", properties: { at: { type: "string" } }, required: ["at"] },
  strict: false,
} as const;

let gateway: BuiltInGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
  openai = new OpenAI({ apiKey: gateway.secretKey, baseURL: gateway.apiUrl, maxRetries: 0 });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const upstreamDoes = (...behaviours: Behaviour[]) =>
  gateway.upstream.enqueue(UPSTREAM_MODEL, ...behaviours);
const CALL: Behaviour = {
  do: "complete",
  toolCalls: [{ name: "look", arguments: '{"at":"the sea"}' }],
};
const ANSWER: Behaviour = { do: "complete", content: "It is calm." };
const lastMessages = () =>
  gateway.upstream.servedOf(UPSTREAM_MODEL).at(-1)!.requestBody!.messages as {
    role: string;
    content: unknown;
    reasoning?: string;
  }[];

const SEARCH: Behaviour = {
  do: "complete",
  toolCalls: [{ name: "file_search", arguments: '{"query":"sea"}' }],
};
const CITED: Behaviour = { do: "complete", content: "It is calm, says sea.txt." };
const store = () => vectorStoreOf(gateway, { "sea.txt": "The sea is calm." });

describe("openai", () => {
  test("has files searched, whole and streamed, and goes on from what was found", async () => {
    const tools = [{ type: "file_search" as const, vector_store_ids: [await store()] }];
    const asked = { model: MODEL, input: "How is the sea?", tools } as const;
    upstreamDoes(SEARCH, CITED, SEARCH, CITED, ANSWER);
    const include = ["file_search_call.results" as const];
    const response = await openai.responses.create({ ...asked, include });
    expect(response.output_text).toBe("It is calm, says sea.txt.");
    const [run] = response.output;
    if (run?.type !== "file_search_call") throw new Error(`no search: ${run?.type}`);
    expect(run).toMatchObject({ status: "completed", queries: ["sea"] });
    expect(run.results).toMatchObject([{ filename: "sea.txt", text: "The sea is calm." }]);
    const helper = openai.responses.stream(asked);
    const seen = new Set<string>();
    for await (const { type } of helper) seen.add(type);
    expect(seen).toContain("response.file_search_call.searching");
    const streamed = await helper.finalResponse();
    expect(streamed.output_text).toBe(response.output_text);
    await openai.responses.create({
      ...asked,
      input: "And now?",
      previous_response_id: response.id,
    });
    expect(lastMessages().map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
    ]);
  });

  test("creates a response, retrieves, lists and deletes it", async () => {
    upstreamDoes(ANSWER);
    const response = await openai.responses.create({ model: MODEL, input: "How is the sea?" });
    expect(response.output_text).toBe("It is calm.");
    expect(response.usage!.output_tokens).toBe(3);
    const bill = await billOf(gateway, response.id.replace("resp_", "req_"));
    expect(bill).toMatchObject({ model: MODEL, status: 200, completionTokens: 3 });
    const found = await openai.responses.retrieve(response.id);
    expect(found.output_text).toBe(response.output_text);
    const items = [];
    for await (const item of openai.responses.inputItems.list(response.id)) items.push(item);
    expect(items).toMatchObject([{ role: "user", content: [{ text: "How is the sea?" }] }]);
    await openai.responses.delete(response.id);
    // The SDK's promises send their request when they are awaited.
    const retrieve = async () => openai.responses.retrieve(response.id);
    await expect(retrieve()).rejects.toMatchObject({ status: 404 });
    const next = async () =>
      openai.responses.create({
        model: MODEL,
        input: "And now?",
        previous_response_id: response.id,
      });
    await expect(next()).rejects.toMatchObject({
      status: 400,
      code: "previous_response_not_found",
      param: "previous_response_id",
    });
  });

  test("streams, by events and by its helper, which gathers the whole", async () => {
    upstreamDoes(ANSWER, ANSWER);
    const events = await openai.responses.create({ model: MODEL, input: "hello", stream: true });
    let text = "";
    for await (const event of events) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    expect(text).toBe("It is calm.");
    const helper = openai.responses.stream({ model: MODEL, input: "hello" });
    const final = await helper.finalResponse();
    expect(final.output_text).toBe("It is calm.");
    expect(final.status).toBe("completed");
  });

  test("runs a response in the background, polls it, follows it from an event, and cancels one", async () => {
    upstreamDoes({ ...ANSWER, firstDelayMs: 50, delayMs: 30 }, ANSWER, {
      do: "endless",
      delayMs: 5,
    });
    const input = { model: MODEL, input: "How is the sea?", background: true } as const;
    let polled = await openai.responses.create(input);
    expect(polled.status).toBe("queued");
    while (polled.status === "queued" || polled.status === "in_progress") {
      polled = await openai.responses.retrieve(polled.id);
    }
    expect([polled.status, polled.output_text]).toEqual(["completed", "It is calm."]);
    const events = await Array.fromAsync(await openai.responses.create({ ...input, stream: true }));
    const { response } = events.at(-1) as { response: OpenAI.Responses.Response };
    const rest = await openai.responses.retrieve(response.id, {
      ...{ stream: true, starting_after: 4 },
    });
    expect(await Array.fromAsync(rest)).toEqual(events.slice(5));
    const helper = openai.responses.stream({ response_id: response.id, starting_after: 4 });
    expect((await helper.finalResponse()).output_text).toBe("It is calm.");
    const { id } = await openai.responses.create(input);
    expect((await openai.responses.cancel(id)).status).toBe("cancelled");
    expect((await openai.responses.retrieve(id)).status).toBe("cancelled");
    const cancelPlain = async () => openai.responses.cancel((await plain()).id);
    upstreamDoes(ANSWER);
    await expect(cancelPlain()).rejects.toMatchObject({ code: "response_not_cancellable" });
  });

  test("keeps a conversation, which responses continue", async () => {
    upstreamDoes(ANSWER);
    const { conversations } = openai;
    const items = [{ type: "message", role: "user", content: "I sail." }] as const;
    const { id } = await conversations.create({ metadata: { topic: "sea" }, items: [...items] });
    await openai.responses.create({ model: MODEL, input: "How is the sea?", conversation: id });
    expect(lastMessages().map(({ content }) => content)).toEqual(["I sail.", "How is the sea?"]);
    const listed = await Array.fromAsync(conversations.items.list(id, { order: "asc", limit: 2 }));
    expect(listed.map((item) => item.type === "message" && item.role)).toEqual([
      "user",
      "user",
      "assistant",
    ]);
    const [first] = listed;
    expect(await conversations.items.retrieve(first!.id!, { conversation_id: id })).toEqual(first!);
    await conversations.items.delete(first!.id!, { conversation_id: id });
    const added = await conversations.items.create(id, { items: [...items] });
    expect(added.data).toHaveLength(1);
    await conversations.update(id, { metadata: { topic: "lake" } });
    expect((await conversations.retrieve(id)).metadata).toEqual({ topic: "lake" });
    expect((await conversations.delete(id)).deleted).toBe(true);
  });

  const plain = () => openai.responses.create({ model: MODEL, input: "hello" });

  test("calls tools, and goes on from the response that called", async () => {
    upstreamDoes(CALL, ANSWER);
    const first = await openai.responses.create({ model: MODEL, input: "Look.", tools: [LOOK] });
    const call = first.output.find((item) => item.type === "function_call")!;
    expect(JSON.parse(call.arguments)).toEqual({ at: "the sea" });
    const second = await openai.responses.create({
      model: MODEL,
      tools: [LOOK],
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "calm" }],
    });
    expect(second.output_text).toBe("It is calm.");
    expect(lastMessages().map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  test("parses structured output", async () => {
    const response = await openai.responses.parse({
      model: "sandbox/chat",
      input: "Who?",
      text: {
        format: {
          type: "json_schema",
          name: "person",
          strict: true,
          schema: {
            type: "object",
            properties: { name: { type: "string" } },
            required: ["name"],
            additionalProperties: false,
          },
        },
      },
    });
    expect(JSON.parse(response.output_text)).toEqual({ name: expect.any(String) });
  });

  test("raises what breaks a stream behind the pieces that came", async () => {
    upstreamDoes({ do: "cut", events: 8, afterEvents: 5 });
    const stream = await openai.responses.create({ model: MODEL, input: "hello", stream: true });
    const types: string[] = [];
    const reading = (async () => {
      for await (const event of stream) types.push(event.type);
    })();
    await expect(reading).rejects.toMatchObject({ code: "provider_error" });
    expect(types).toContain("response.output_text.delta");
    expect(types.at(-1)).toBe("response.failed");
  });
});

describe("ai, with OpenAI's responses model", () => {
  const responses = () =>
    createOpenAI({ baseURL: gateway.apiUrl, apiKey: gateway.secretKey }).responses(MODEL);
  const look = tool({
    description: LOOK.description,
    inputSchema: jsonSchema<{ at: string }>(LOOK.parameters as never),
    execute: async ({ at }) => `${at} is calm`,
  });

  test("has files searched by the gateway, whole and streamed, and shows what is cited", async () => {
    const openAi = createOpenAI({ baseURL: gateway.apiUrl, apiKey: gateway.secretKey });
    const tools = { file_search: openAi.tools.fileSearch({ vectorStoreIds: [await store()] }) };
    const asked = { model: responses(), prompt: "How is the sea?", tools, maxRetries: 0 };
    upstreamDoes(SEARCH, CITED, SEARCH, CITED);
    const whole = await generateText(asked);
    expect(whole.text).toBe("It is calm, says sea.txt.");
    expect(whole.toolResults).toMatchObject([{ toolName: "file_search" }]);
    expect(whole.sources).toMatchObject([{ sourceType: "document", filename: "sea.txt" }]);
    const streamed = streamText(asked);
    expect(await streamed.text).toBe(whole.text);
    expect(await streamed.toolResults).toMatchObject([{ toolName: "file_search" }]);
  });

  test("runs tools over turns whose items it refers to by their ids", async () => {
    upstreamDoes(CALL, ANSWER, ANSWER);
    const first = await generateText({
      model: responses(),
      prompt: "Look.",
      tools: { look },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    });
    expect(first.text).toBe("It is calm.");
    const user = { role: "user", content: "And now?" } as const;
    const messages = [{ role: "user", content: "Look." } as const, ...first.responseMessages, user];
    const second = await generateText({ model: responses(), messages, maxRetries: 0 });
    expect(second.text).toBe("It is calm.");
    expect(lastMessages().map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
    ]);
  });

  test("streams text with its usage", async () => {
    upstreamDoes(ANSWER);
    const result = streamText({ model: responses(), prompt: "hello", maxRetries: 0 });
    expect(await result.text).toBe("It is calm.");
    expect((await result.usage).outputTokens).toBe(3);
  });

  test("shows reasoning where it asks for a summary", async () => {
    const provider = createOpenAI({ baseURL: gateway.apiUrl, apiKey: gateway.secretKey });
    const result = await generateText({
      model: provider.responses("sandbox/chat"),
      prompt: "hello",
      providerOptions: {
        openai: { forceReasoning: true, reasoningEffort: "high", reasoningSummary: "auto" },
      },
      maxRetries: 0,
    });
    expect(result.reasoningText).toContain("states the request");
    expect(result.text).toContain("hello");
  });
});
