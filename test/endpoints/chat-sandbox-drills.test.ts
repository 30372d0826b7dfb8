import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { sandboxModels } from "../../src/providers/catalogue/sandbox-models.ts";
import { TOKENS_BEFORE_BREAK } from "../../src/sandbox/drills.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

/** The drills of the sandbox through the whole gateway, as docs/reference/sandbox.md describes them. */

/** Longer than the retries of `error-429` wait, shorter than `slow-first-token`. */
const TOTAL_MS = 3_500;
const SHORT_MS = 300;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: {
      GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: String(TOTAL_MS),
      GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: String(SHORT_MS),
      GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: String(SHORT_MS),
    },
  });
});
afterAll(() => gateway.stop());

const MESSAGES = [{ role: "user", content: "count to 20" }];
const chat = (body: object) =>
  gateway.request("POST", "/v1/chat/completions", { messages: MESSAGES, ...body });

/** The model, what it ends with whole and streamed, and whether its stream has begun by then. */
const FAILING: [model: string, whole: [number, string], streamed: [number, string]][] = [
  ["error-429", [429, "rate_limit_exceeded"], [429, "rate_limit_exceeded"]],
  ["error-500", [502, "provider_error"], [502, "provider_error"]],
  ["overloaded", [502, "provider_error"], [502, "provider_error"]],
  ["garbage", [502, "provider_error"], [502, "provider_error"]],
  ["slow-first-token", [408, "provider_timeout"], [408, "provider_timeout"]],
  ["cut", [502, "provider_error"], [200, "provider_error"]],
  ["stall", [408, "provider_timeout"], [200, "provider_timeout"]],
];

/** Nothing takes over from what the total timeout ends, nor from a stream that has begun. */
const REPLACED = FAILING.flatMap(([model, [whole], [streamed]]): [string, boolean][] => [
  ...(whole === 408 ? [] : [[model, false] as [string, boolean]]),
  ...(streamed === 200 ? [] : [[model, true] as [string, boolean]]),
]);

test.concurrent.each(REPLACED)(
  "the model behind %s answers, streamed: %p",
  async (model, stream) => {
    const response = await chat({ models: [`sandbox/${model}`, "sandbox/chat"], stream });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-model")).toBe("sandbox/chat");
    await response.text();
    expect(await billOfResponse(gateway, response)).toMatchObject({ model: "sandbox/chat" });
  },
);

describe("a drill alone", () => {
  test.concurrent.each(FAILING)(
    "%s fails as the page says, and costs nothing",
    async (model, [status, code]) => {
      const response = await chat({ model: `sandbox/${model}` });
      const { request_id } = await expectError(response, status as 502, code);
      if (status === 429) expect(response.headers.get("retry-after")).toBe("1");
      expect(await billOf(gateway, request_id)).toBeUndefined();
    },
  );

  test.concurrent.each(FAILING)(
    "%s streamed fails as the page says, and costs what came",
    async (model, _whole, [status, code]) => {
      const response = await chat({ model: `sandbox/${model}`, stream: true });
      if (status !== 200) {
        const { request_id } = await expectError(response, status as 502, code);
        expect(await billOf(gateway, request_id)).toBeUndefined();
        return;
      }
      const read = await readStream(response);
      expect([read.isDone, read.error?.error.code as string]).toEqual([false, code]);
      expect(read.content).toBe("1, 2, 3,");
      expect(await billOfResponse(gateway, response)).toMatchObject({
        completionTokens: TOKENS_BEFORE_BREAK,
        estimated: true,
      });
    },
  );

  test.concurrent.each([false, true])(
    "refusal ends with content_filter, streamed: %p",
    async (stream) => {
      const response = await chat({ model: "sandbox/refusal", stream });
      const text = await response.text();
      expect(text).toContain('"finish_reason":"content_filter"');
      expect(text).toContain('"refusal":"The');
      expect((await billOfResponse(gateway, response)).completionTokens).toBePositive();
    },
  );

  test.concurrent.each([false, true])("reasoning reasons, streamed: %p", async (stream) => {
    const response = await chat({ model: "sandbox/reasoning", stream });
    expect(await response.text()).toContain('"reasoning":"The');
    expect((await billOfResponse(gateway, response)).reasoningTokens).toBePositive();
  });
});

test("the page names every model of the sandbox", async () => {
  const page = await Bun.file(join(import.meta.dir, "../../docs/reference/sandbox.md")).text();
  const ids = sandboxModels().map(({ id }) => id);
  expect(ids.filter((id) => !page.includes(`\`${id}\``))).toEqual([]);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
