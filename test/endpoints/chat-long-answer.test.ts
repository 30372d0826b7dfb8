import { afterAll, beforeAll, expect, test } from "bun:test";
import { chargeNano, MAX_OUTPUT_TOKENS, PRICES } from "../support/chat-gateway.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

/** Unstreamed answers that are too long for the event loop, through the whole gateway. */

const content = `"Grüße" 👋\n${"word ".repeat(200_000)}`;
const usage = { prompt_tokens: 100, completion_tokens: 25, total_tokens: 125 };
let calls = 0;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: ({ method }) => {
    // Others ask for the list of models.
    if (method === "POST") calls++;
    const message = { role: "assistant", content };
    return Response.json({
      ...{ id: "theirs", object: "chat.completion", created: 1_700_000_000, model: "theirs" },
      choices: [{ index: 0, message, finish_reason: "stop" }],
      usage,
    });
  },
});

let gateway: TestGateway;
beforeAll(async () => {
  const usd = (femto: bigint) => Number(femto) / 1e15;
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "box", type: "vllm", base_url: `http://127.0.0.1:${server.port}/v1`, api_key: "k" },
      ],
      models: [
        {
          id: "test/long",
          category: "chat",
          context_length: 128_000,
          max_output_tokens: MAX_OUTPUT_TOKENS,
          input_cost_per_token: usd(PRICES.inputFemto),
          output_cost_per_token: usd(PRICES.outputFemto),
          cached_input_cost_per_token: usd(PRICES.cachedFemto),
          capabilities: ["streaming"],
          endpoints: [{ provider: "box", model: "long" }],
        },
      ],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await server.stop(true);
});

const chat = (headers: Record<string, string> = {}) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { model: "test/long", messages: [{ role: "user", content: "hello" }] },
    { headers },
  );

test("a long answer has the form, the bill and the replay of any other", async () => {
  const headers = { "idempotency-key": crypto.randomUUID() };
  const response = await chat(headers);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toStartWith("application/json");
  const text = await response.text();
  const charge = chargeNano({ prompt: 100, cached: 0, completion: 25 });
  expect(JSON.parse(text)).toMatchObject({
    id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
    object: "chat.completion",
    created: 1_700_000_000,
    model: "test/long",
    choices: [
      { index: 0, finish_reason: "stop", message: { role: "assistant", content, refusal: null } },
    ],
    usage: { ...usage, cost: Number(charge) / 1e9 },
  });
  expect(await billOfResponse(gateway, response)).toMatchObject({
    chargeNano: charge,
    estimated: false,
  });
  const replayed = await chat(headers);
  expect(replayed.headers.get("x-gateway-idempotent-replay")).toBe("true");
  expect(await replayed.text()).toBe(text);
  expect(calls).toBe(1);
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));

test("comes as a message to a client of Anthropic's API, billed the same", async () => {
  const body = {
    model: "test/long",
    max_tokens: 100,
    messages: [{ role: "user", content: "hello" }],
  };
  const response = await gateway.request("POST", "/v1/messages", body);
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({
    type: "message",
    model: "test/long",
    content: [{ type: "text", text: content }],
    stop_reason: "end_turn",
    usage: { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens },
  });
  const tokens = { prompt: usage.prompt_tokens, completion: usage.completion_tokens };
  expect((await billOfResponse(gateway, response)).chargeNano).toBe(chargeNano(tokens));
});
