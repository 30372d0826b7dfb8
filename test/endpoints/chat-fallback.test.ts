import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

const PAIRS = 17;

let gateway: ChatGateway;
let usedPairs = 0;
beforeAll(async () => {
  const pairs = Array.from({ length: PAIRS }, (_, i): [string, string[]] => [
    `pair-${i}`,
    [`primary/pair-${i}-a`, `secondary/pair-${i}-b`],
  ]);
  gateway = await startChatGateway({ models: Object.fromEntries(pairs) });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** A model with two endpoints, at `primary` and at `secondary`. */
function pairThat(first: Behaviour, second: Behaviour): string {
  const slug = `pair-${usedPairs++}`;
  gateway.upstream.behave(`${slug}-a`, first);
  gateway.upstream.behave(`${slug}-b`, second);
  return slug;
}

/** Names of the upstream models that were called, in order. */
const calls = (...slugs: string[]) =>
  gateway.upstream.served
    .map(({ model }) => model)
    .filter((model) => slugs.some((slug) => model.startsWith(slug)));

const contentOf = async (response: Response) =>
  ((await response.json()) as { choices: { message: { content: string } }[] }).choices[0]!.message
    .content;

const RETRYABLE_CODES: Behaviour[] = [
  { do: "refuse" },
  { do: "error", status: 500 },
  { do: "error", status: 401 },
  { do: "error", status: 404 },
  { do: "error", status: 408 },
  { do: "rate-limited", retryAfter: { seconds: 60 } },
  { do: "html" },
  { do: "empty-body" },
];

describe("another endpoint of the same model answers at once", () => {
  test.each(RETRYABLE_CODES)("where the first does %j", async (failure) => {
    const slug = pairThat(failure, { do: "complete", content: "from b" });
    const response = await gateway.chat(slug, { route_explain: true });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-provider")).toBe("secondary");
    expect(response.headers.get("x-gateway-route-explain")).toMatch(
      new RegExp(
        `^planned: primary/${slug}-a, secondary/${slug}-b; tried: primary/${slug}-a=[a-z_]+, secondary/${slug}-b=ok$`,
      ),
    );
    expect(await contentOf(response)).toBe("from b");
    expect(calls(slug)).toEqual([`${slug}-a`, `${slug}-b`]);
    expect(await billOfResponse(gateway, response)).toMatchObject({ provider: "secondary" });
  });

  test("but not where the request itself is refused", async () => {
    const slug = pairThat({ do: "error", status: 400 }, { do: "complete" });
    await expectError(await gateway.chat(slug), 400, "provider_rejected");
    expect(calls(slug)).toEqual([`${slug}-a`]);
  });
});

describe("models", () => {
  test("are tried in order, override model, and the one that answered is named and billed", async () => {
    const broken = gateway.modelThat({ do: "error", status: 400 });
    const good = gateway.modelThat({ do: "complete", content: "good" });
    const unused = gateway.modelThat({ do: "complete" });
    for (const stream of [false, true]) {
      const response = await gateway.chat("no-such-model", {
        stream,
        models: [broken, good, unused].map((slug) => `test/${slug}`),
        route: "fallback",
      });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-model")).toBe(`test/${good}`);
      if (stream) {
        const read = await readStream(response);
        expectStreamShape(read, { model: `test/${good}`, includesUsage: false });
        expect(read.content).toBe("good");
      } else expect(await contentOf(response)).toBe("good");
      expect((await billOfResponse(gateway, response)).model).toBe(`test/${good}`);
    }
    expect(calls(broken, good, unused)).toEqual([broken, good, broken, good]);
  });

  test("that all fail end with the failure of the last, after retries of all, and cost nothing", async () => {
    const first = gateway.modelThat({ do: "refuse" });
    const last = gateway.modelThat({ do: "error", status: 503 });
    const response = await gateway.chat(first, { models: [`test/${first}`, `test/${last}`] });
    const { request_id } = await expectError(response, 502, "provider_error");
    expect(calls(first, last)).toEqual([first, last, first, last, first, last]);
    expect(await billOf(gateway, request_id)).toBeUndefined();
  });

  test("with a 429 at the end tell its Retry-After, once all are used up", async () => {
    const first = gateway.modelThat({ do: "error", status: 500 });
    const last = gateway.modelThat({ do: "rate-limited", retryAfter: { seconds: 33 } });
    const response = await gateway.chat(first, { models: [`test/${first}`, `test/${last}`] });
    await expectError(response, 429, "rate_limit_exceeded");
    expect(response.headers.get("retry-after")).toBe("33");
  });

  test("share one hold: what the dearest of them may cost, not the sum", async () => {
    const slugs = Array.from({ length: 4 }, () => gateway.modelThat({ do: "complete" }));
    // A budget that pays for one hold of 4,096 tokens and not for two.
    const key = await addSecretKey(gateway, { dailyBudgetNano: 3_000_000n });
    const models = slugs.map((slug) => `test/${slug}`);
    expect((await gateway.chat("any", { models, max_tokens: 4096 }, { key })).status).toBe(200);
  });

  test("that are named twice are tried once", async () => {
    const slug = gateway.modelThat({ do: "error", status: 404 });
    const models = [`test/${slug}`, `test/${slug}`];
    await expectError(await gateway.chat(slug, { models }), 502, "provider_error");
    expect(calls(slug)).toEqual([slug]);
  });
});

describe("provider", () => {
  test("order puts the named providers first, in its order", async () => {
    const slug = pairThat({ do: "complete" }, { do: "complete" });
    const response = await gateway.chat(slug, {
      provider: { order: ["nobody", "secondary", "primary"] },
      route_explain: true,
    });
    expect(response.headers.get("x-gateway-provider")).toBe("secondary");
    expect(response.headers.get("x-gateway-route-explain")).toBe(
      `planned: secondary/${slug}-b, primary/${slug}-a; tried: secondary/${slug}-b=ok; not needed: primary/${slug}-a`,
    );
  });

  test("order still falls back to the providers that it does not name", async () => {
    const slug = pairThat({ do: "complete" }, { do: "refuse" });
    const response = await gateway.chat(slug, { provider: { order: ["secondary"] } });
    expect(response.headers.get("x-gateway-provider")).toBe("primary");
    expect(calls(slug)).toEqual([`${slug}-b`, `${slug}-a`]);
  });

  test("that names a provider again and again has it tried as often as any other", async () => {
    const slug = pairThat({ do: "error", status: 500 }, { do: "complete", content: "from b" });
    const order = Array.from({ length: 20 }, () => "primary");
    const response = await gateway.chat(slug, { provider: { order } });
    expect(await contentOf(response)).toBe("from b");
    expect(calls(slug)).toEqual([`${slug}-a`, `${slug}-b`]);
  });

  test("allow_fallbacks false asks only the first endpoint, retries included", async () => {
    const slug = pairThat({ do: "error", status: 500 }, { do: "complete" });
    const response = await gateway.chat(slug, { provider: { allow_fallbacks: false } });
    await expectError(response, 502, "provider_error");
    expect(calls(slug)).toEqual([`${slug}-a`, `${slug}-a`, `${slug}-a`]);
  });

  test("allow_fallbacks false with an order asks only the named ones; where none serves the model it is 400", async () => {
    const slug = pairThat({ do: "complete" }, { do: "complete", content: "from b" });
    const named = { provider: { order: ["secondary"], allow_fallbacks: false } };
    const response = await gateway.chat(slug, named);
    expect(response.headers.get("x-gateway-provider")).toBe("secondary");
    const none = { provider: { order: ["nobody"], allow_fallbacks: false } };
    const refused = await gateway.chat(slug, none);
    const { error } = await expectError(refused, 400, "invalid_body");
    expect(error.param).toBe("provider.order");
    expect(calls(slug)).toEqual([`${slug}-b`]);
  });
});

test.each([false, true])(
  "route_explain tells what was tried where all of it failed, streamed: %p",
  async (stream) => {
    const slug = pairThat({ do: "error", status: 401 }, { do: "error", status: 400 });
    const response = await gateway.chat(slug, { route_explain: true, stream });
    await expectError(response, 400, "provider_rejected");
    expect(response.headers.get("x-gateway-route-explain")).toBe(
      `planned: primary/${slug}-a, secondary/${slug}-b; tried: primary/${slug}-a=misconfigured, secondary/${slug}-b=rejected`,
    );
    const silent = await gateway.chat(slug, { stream });
    expect(silent.headers.get("x-gateway-route-explain")).toBeNull();
  },
);

test("a call that failed counts as one that reached its last provider", async () => {
  const slug = pairThat({ do: "error", status: 401 }, { do: "error", status: 400 });
  await expectError(await gateway.chat(slug), 400, "provider_rejected");
  const metrics = await (await fetch(`${gateway.baseUrl}/metrics`)).text();
  const line = `gateway_model_requests_total{model="test/${slug}",provider="secondary",status="400"} 1`;
  expect(metrics.split("\n")).toContain(line);
});

test("without route_explain no header tells the route", async () => {
  const response = await gateway.chat(gateway.modelThat({ do: "complete" }));
  expect(response.headers.get("x-gateway-route-explain")).toBeNull();
});
