import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";
import { type CloudUpstream, startCloudUpstream } from "../support/cloud-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/** Ids of the catalogue, and the names that an operator gave to the deployments. */
const DEPLOYMENTS = { "openai/gpt-5-mini": "prod-small", "openai/gpt-4o-mini": "prod-old" };

let upstream: Upstream;
/** A resource whose addresses name deployments, as each test says what it answers. */
let dated: CloudUpstream;
let gateway: TestGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  dated = startCloudUpstream();
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "azure", type: "azure", base_url: upstream.baseUrl, api_key: "k", deployments: {} },
        {
          id: "dated",
          type: "azure",
          base_url: dated.origin,
          api_key: "k",
          api_version: "2024-10-21",
          deployments: { "gpt-4o": "prod-4o" },
        },
      ],
      models: Object.entries(DEPLOYMENTS).map(([id, model]) => ({
        id,
        endpoints: [{ provider: "azure", model }],
      })),
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await dated.stop();
  await gateway.stop();
});

test.each([
  ["openai/gpt-5-mini", "max_completion_tokens"],
  ["openai/gpt-4o-mini", "max_tokens"],
] as const)("%s gets its limit as %s, whatever its deployment is called", async (model, name) => {
  const messages = [{ role: "user", content: "hi" }];
  for (const asked of ["max_tokens", "max_completion_tokens"]) {
    for (const stream of [false, true]) {
      const body = { model, messages, [asked]: 7, stream };
      const response = await gateway.request("POST", "/v1/chat/completions", body);
      expect(response.status).toBe(200);
      await response.arrayBuffer();
      const { stream_options: _, ...sent } = upstream.served.at(-1)!.requestBody!;
      const streamed = stream ? { stream } : {};
      expect(sent).toEqual({ model: DEPLOYMENTS[model], messages, [name]: 7, ...streamed });
    }
  }
});

describe("a deployment in a dated version of the interface", () => {
  const path = "/openai/deployments/prod-4o/chat/completions?api-version=2024-10-21";
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const SAFE = { hate: { filtered: false, severity: "safe" } };
  const chunk = (choices: object[], more: object = {}) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "gpt-4o", choices, ...more })}\n\n`;
  const delta = (content: string, finish: string | null = null) =>
    chunk([{ index: 0, delta: { content }, finish_reason: finish, content_filter_results: SAFE }]);
  /** As Azure begins each stream. */
  const OPENING = `data: ${JSON.stringify({ id: "", object: "", created: 0, model: "", choices: [], prompt_filter_results: [{ prompt_index: 0, content_filter_results: SAFE }] })}\n\n`;
  const streamOf = (text: string) =>
    new Response(text, { headers: { "content-type": "text/event-stream" } });
  const ask = (more: object = {}) =>
    gateway.request("POST", "/v1/chat/completions", {
      model: "openai/gpt-4o",
      messages: [{ role: "user", content: "hi" }],
      ...more,
    });
  const STREAMED = { stream: true, stream_options: { include_usage: true } };

  test("is called for its model, whose price is charged", async () => {
    const prices = (await builtInModels("azure", new Date())).models.find(
      ({ id }) => id === "azure/gpt-4o",
    )!.prices;
    const costFemto = 10n * prices.inputTokenFemto + 5n * prices.outputTokenFemto;
    const message = { role: "assistant", content: "Hello." };
    const choice = { index: 0, message, finish_reason: "stop", content_filter_results: SAFE };
    dated.answer = () => Response.json({ object: "chat.completion", choices: [choice], usage });
    const whole = await ask();
    expect(whole.status).toBe(200);
    await whole.arrayBuffer();
    const text = `${OPENING}${delta("Hel")}${delta("lo.", "stop")}${chunk([], { usage })}data: [DONE]\n\n`;
    dated.answer = () => streamOf(text);
    const streamed = await ask(STREAMED);
    const read = await readStream(streamed);
    expect([read.content, read.finishReason, read.usage]).toMatchObject(["Hello.", "stop", usage]);
    for (const response of [whole, streamed]) {
      expect(await billOfResponse(gateway, response)).toMatchObject({
        chargeNano: (costFemto * 104n + 50_000_000n) / 100_000_000n,
        estimated: false,
      });
    }
    expect(dated.asked.map((one) => one.path)).toEqual([path, path]);
    expect(dated.asked[0]!.body.model).toBe("prod-4o");
  });

  test("whose filter refuses the prompt is 400 content_policy_violation, and costs nothing", async () => {
    const error = {
      message: "The response was filtered.",
      param: "prompt",
      code: "content_filter",
      innererror: { code: "ResponsibleAIPolicyViolation", content_filter_result: SAFE },
    };
    dated.answer = () => Response.json({ error }, { status: 400 });
    for (const more of [{}, STREAMED]) {
      const response = await ask(more);
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({
        error: { type: "invalid_request_error", code: "content_policy_violation" },
      });
      expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
    }
  });

  test("whose filter cuts the answer ends with content_filter", async () => {
    const text = `${OPENING}${delta("Hel")}${delta("", "content_filter")}${chunk([], { usage })}data: [DONE]\n\n`;
    dated.answer = () => streamOf(text);
    const response = await ask(STREAMED);
    const read = await readStream(response);
    expect([read.content, read.finishReason]).toEqual(["Hel", "content_filter"]);
    expect(await billOfResponse(gateway, response)).toMatchObject({ completionTokens: 5 });
  });
});
