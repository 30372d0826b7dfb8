import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, type ReadStream, readStream } from "../support/stream-reader.ts";
import type { Behaviour, BehaviourName } from "../upstream/behaviours.ts";

interface Completion {
  readonly created: number;
  readonly service_tier?: string;
  readonly choices: [{ message: Record<string, unknown>; finish_reason: string; logprobs: null }];
}

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function whole(behaviour: Behaviour, body = {}) {
  const response = await gateway.chat(gateway.modelThat(behaviour), body);
  expect(response.status).toBe(200);
  return { response, completion: (await response.json()) as Completion };
}

async function stream(behaviour: Behaviour, body = {}) {
  const slug = gateway.modelThat(behaviour);
  const wish = { stream: true, stream_options: { include_usage: true }, ...body };
  const response = await gateway.chat(slug, wish);
  expect(response.status).toBe(200);
  const read: ReadStream = await readStream(response);
  expectStreamShape(read, { model: `test/${slug}`, includesUsage: true });
  return { response, read };
}

test("all chunks of a stream tell the same time, also where the provider's clock goes on", async () => {
  // The shape that is expected of every stream holds it.
  await stream({ do: "created-anew", content: "One two three.", events: 5, cut: true });
});

test("a provider without a clock does not date an answer back to 1970", async () => {
  const before = Math.floor(Date.now() / 1_000);
  const { completion } = await whole({ do: "created-0" });
  expect(completion.created).toBeGreaterThanOrEqual(before);
  const { read } = await stream({ do: "created-0" });
  for (const chunk of read.chunks) expect(chunk.created).toBeGreaterThanOrEqual(before);
});

test("a refusal ends with content_filter, whole and streamed", async () => {
  const { completion } = await whole({ do: "refusal", content: "I cannot help with it." });
  expect(completion.choices[0]).toMatchObject({
    message: { content: null, refusal: "I cannot help with it." },
    finish_reason: "content_filter",
  });
  const { read } = await stream({ do: "refusal", content: "I cannot help with it.", events: 3 });
  const said = read.chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta.refusal));
  expect(said.join("")).toBe("I cannot help with it.");
  expect(read.finishReason).toBe("content_filter");
});

test("a message has OpenAI's required members, null where the provider leaves them out", async () => {
  const { completion } = await whole({ do: "without-nulls", content: "Hi." });
  expect(completion.choices[0]).toMatchObject({
    message: { role: "assistant", content: "Hi.", refusal: null },
    logprobs: null,
  });
});

test("what a provider says to be null is not told where OpenAI's form has no null", async () => {
  const { completion } = await whole({ do: "nulls", content: "Hi." });
  expect(completion.choices[0].message).toEqual({
    role: "assistant",
    content: "Hi.",
    refusal: null,
  });
  expect(completion).not.toContainKey("service_tier");
  expect(completion).toMatchObject({ system_fingerprint: null });
  const { read } = await stream({ do: "nulls", content: "Hi there.", events: 3 });
  expect(read.content).toBe("Hi there.");
  expect(read.text).not.toMatch(
    /annotations|audio|function_call|reasoning_content|service_tier|fingerprint/,
  );
});

test.each([null, "", false])("an error of %j beside an answer is none", async (error) => {
  const choice = { index: 0, finish_reason: "stop" };
  const part = { role: "assistant", content: "Hi." };
  const answer = { error, choices: [{ ...choice, message: part }] };
  const { completion } = await whole({ do: "frames", frames: [answer] });
  expect(completion).not.toContainKey("error");
  const frames = [{ error, choices: [{ ...choice, delta: part }] }, "data: [DONE]\n\n"];
  const { read } = await stream({ do: "frames", frames });
  expect(read.content).toBe("Hi.");
  expect(read.text).not.toContain("error");
});

test("an empty error beside an answer is none", async () => {
  const { completion } = await whole({ do: "empty-error", content: "Hi." });
  expect(completion.choices[0].message.content).toBe("Hi.");
  expect(completion).not.toContainKey("error");
  const { read } = await stream({ do: "empty-error", content: "Hi." });
  expect(read.content).toBe("Hi.");
  expect(read.text).not.toContain("error");
});

test("a tier of service is told in OpenAI's words or not at all: strict clients know no others", async () => {
  const told: [BehaviourName, string | undefined][] = [
    ["tier-default", "default"],
    ["tier-on-demand", undefined],
  ];
  for (const [name, tier] of told) {
    const { completion } = await whole({ do: name });
    expect(completion.service_tier).toBe(tier);
    const { read } = await stream({ do: name, content: "One two three.", events: 5, cut: true });
    const tiers = read.chunks.filter(({ choices }) => choices.length > 0);
    expect(new Set(tiers.map(({ service_tier }) => service_tier))).toEqual(new Set([tier]));
  }
});

test.each([{ include_reasoning: false }, { reasoning: { exclude: true } }])(
  "reasoning that is not wanted (%j) is in no other member either",
  async (body) => {
    const behaviour: Behaviour = { do: "reasoning-details", reasoning: "HUSH", content: "Hi." };
    expect(JSON.stringify((await whole(behaviour)).completion)).toContain("reasoning_details");
    expect(JSON.stringify((await whole(behaviour, body)).completion)).not.toContain("HUSH");
    const { read } = await stream(behaviour, body);
    expect(read.content).toBe("Hi.");
    expect(read.text).not.toContain("HUSH");
  },
);

test("a function called in the old form is counted where the provider tells no usage", async () => {
  const toolCalls = [{ name: "get_weather", arguments: '{"city":"Ulm"}' }];
  const name: BehaviourName = "old-function-call";
  const behaviour: Behaviour = { do: name, content: "", toolCalls, usage: null };
  const { response, completion } = await whole(behaviour);
  expect(completion.choices[0].finish_reason).toBe("tool_calls");
  expect(completion.choices[0].message.function_call).toEqual(toolCalls[0]!);
  expect((await billOfResponse(gateway, response)).completionTokens).toBeGreaterThan(3);
  const streamed = await stream(behaviour);
  expect((await billOfResponse(gateway, streamed.response)).completionTokens).toBeGreaterThan(3);
});
