import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

const DROPPED = "x-gateway-dropped-parameters";

/** `primary` is Groq, which has neither log probabilities nor top_k; `secondary` is a server with all. */
let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway({
    primaryType: "groq",
    models: {
      both: ["primary/groqs", "secondary/own"],
      "own-first": ["secondary/own", "primary/groqs"],
    },
  });
  gateway.upstream.behave("groqs", { do: "complete" });
  gateway.upstream.behave("own", { do: "complete" });
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

function lastBody(): Record<string, unknown> {
  return gateway.upstream.served.at(-1)!.requestBody!;
}

async function answered(model: string, body: Record<string, unknown>): Promise<Response> {
  const response = await gateway.chat(model, body);
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  return response;
}

describe("a hint that the only provider lacks", () => {
  test.each([false, true])("is left out and listed (stream: %p)", async (stream) => {
    const fields = { top_k: 3, min_p: 0.1, presence_penalty: 0.5, temperature: 0.5, stream };
    const response = await gateway.chat(slug, fields);
    expect(response.status).toBe(200);
    if (stream) expect((await readStream(response)).isDone).toBeTrue();
    else await response.arrayBuffer();
    expect(response.headers.get(DROPPED)).toBe("top_k, min_p, presence_penalty");
    expect(lastBody()).toMatchObject({ temperature: 0.5 });
    for (const field of ["top_k", "min_p", "presence_penalty"]) {
      expect(lastBody()).not.toHaveProperty(field);
    }
  });

  test("is not listed where it asks for nothing, nor is anything where nothing was left out", async () => {
    const response = await answered(slug, { presence_penalty: 0, n: 1, logprobs: false, seed: 1 });
    expect(response.headers.get(DROPPED)).toBeNull();
    expect(lastBody()).toMatchObject({ seed: 1 });
    for (const field of ["presence_penalty", "n", "logprobs"]) {
      expect(lastBody()).not.toHaveProperty(field);
    }
  });

  test("is 400 with require_parameters, and reaches no provider", async () => {
    const callsBefore = gateway.upstream.served.length;
    const provider = { require_parameters: true };
    for (const stream of [false, true]) {
      const response = await gateway.chat(slug, { top_k: 3, provider, stream });
      const { error } = await expectError(response, 400, "unsupported_parameter");
      expect(error.param).toBe("top_k");
      expect(error.message).toContain("top_k");
    }
    expect(gateway.upstream.served).toHaveLength(callsBefore);
    await answered(slug, { temperature: 0.5, provider });
  });
});

describe("a field that changes what an answer is", () => {
  test.each([
    ["logprobs", { logprobs: true }],
    ["logprobs", { logprobs: true, top_logprobs: 3 }],
    ["n", { n: 2 }],
  ])("%s that no candidate has is 400 that names it", async (param, body) => {
    const callsBefore = gateway.upstream.served.length;
    for (const stream of [false, true]) {
      const response = await gateway.chat(slug, { ...body, stream });
      const { error } = await expectError(response, 400, "unsupported_parameter");
      expect(error.param).toBe(param);
      expect(error.message).toContain(`test/${slug}`);
    }
    expect(gateway.upstream.served).toHaveLength(callsBefore);
  });

  test("leaves out the candidates that lack it, also where they would come first", async () => {
    const response = await answered("both", { logprobs: true, route_explain: true });
    expect(response.headers.get("x-gateway-provider")).toBe("secondary");
    expect(response.headers.get("x-gateway-route-explain")).toBe(
      "planned: secondary/own; tried: secondary/own=ok; skipped: primary/groqs=lacks_logprobs",
    );
    expect(lastBody()).toMatchObject({ model: "own", logprobs: true });
    const plain = await answered("both", {});
    expect(plain.headers.get("x-gateway-provider")).toBe("primary");
  });

  test("leaves out a whole model of the list where only another one has it", async () => {
    const models = [`test/${slug}`, "test/own-first"];
    const response = await answered(slug, { models, n: 2 });
    expect(response.headers.get("x-gateway-model")).toBe("test/own-first");
  });
});

test("what is listed is what the candidate that served lacked", async () => {
  const body = { top_k: 3 };
  const first = await answered("both", body);
  expect(first.headers.get("x-gateway-provider")).toBe("primary");
  expect(first.headers.get(DROPPED)).toBe("top_k");
  gateway.upstream.enqueue("groqs", { do: "error", status: 500 });
  const fallback = await answered("both", body);
  expect(fallback.headers.get("x-gateway-provider")).toBe("secondary");
  expect(fallback.headers.get(DROPPED)).toBeNull();
  expect(lastBody()).toMatchObject({ top_k: 3 });
});

test("an unknown field goes to the provider that it is meant for, and is listed for another", async () => {
  const alone = await answered(slug, { x_custom: 1 });
  expect(alone.headers.get(DROPPED)).toBeNull();
  expect(lastBody()).toMatchObject({ x_custom: 1 });
  // A conversation of its own: others have moved to the second provider and stay there.
  const fields = { x_custom: 1, safe_prompt: true, reasoning_format: "raw", session_id: "mixed" };
  const mixed = await answered("both", fields);
  expect(mixed.headers.get("x-gateway-provider")).toBe("primary");
  expect(mixed.headers.get(DROPPED)).toBe("x_custom, safe_prompt");
  expect(lastBody()).toMatchObject({ reasoning_format: "raw" });
  expect(lastBody()).not.toHaveProperty("x_custom");
  await answered("own-first", { x_custom: 1, safe_prompt: true });
  expect(lastBody()).toMatchObject({ x_custom: 1, safe_prompt: true });
});

test("reasoning becomes the effort that the provider takes, and its details are listed", async () => {
  const response = await answered(slug, { reasoning: { effort: "low", max_tokens: 50 } });
  expect(response.headers.get(DROPPED)).toBe("reasoning.max_tokens");
  expect(lastBody()).toMatchObject({ reasoning_effort: "low" });
  expect(lastBody()).not.toHaveProperty("reasoning");
});

test("options of streams that the gateway does not pass on are listed", async () => {
  const stream_options = { include_usage: true, continuous_usage_stats: true };
  const response = await answered("own-first", { stream: true, stream_options });
  expect(response.headers.get(DROPPED)).toBe("stream_options.continuous_usage_stats");
});

test.each([
  "n_predict",
  "num_predict",
  "max_new_tokens",
  "best_of",
  "num_return_sequences",
  "use_beam_search",
  "n_cmpl",
])("%s is 400 wherever the request would go", async (field) => {
  const callsBefore = gateway.upstream.served.length;
  for (const model of [slug, "own-first"]) {
    for (const value of [5, true]) {
      const response = await gateway.chat(model, { [field]: value });
      const { error } = await expectError(response, 400, "unsupported_parameter");
      expect(error.param).toBe(field);
      expect(error.message).toMatch(/use (max_tokens|n)\.$/);
    }
  }
  expect(gateway.upstream.served).toHaveLength(callsBefore);
  await answered("own-first", { [field]: null });
});

test("route is fallback or 400, never ignored", async () => {
  await answered(slug, { route: "fallback" });
  await answered(slug, { route: null });
  for (const route of ["sort", "", "FALLBACK"]) {
    const response = await gateway.chat(slug, { route });
    const { error } = await expectError(response, 400, "unsupported_parameter");
    expect(error.param).toBe("route");
  }
  await expectError(await gateway.chat(slug, { route: 5 }), 400, "invalid_body");
});

test("top_logprobs needs logprobs", async () => {
  const response = await gateway.chat("own-first", { top_logprobs: 2 });
  const { error } = await expectError(response, 400, "invalid_body");
  expect(error.param).toBe("top_logprobs");
  await answered("own-first", { top_logprobs: 2, logprobs: true });
});
