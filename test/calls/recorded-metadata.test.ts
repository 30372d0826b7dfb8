import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const REQUESTS: readonly [string, Record<string, unknown>][] = [
  ["chat/completions", { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] }],
  ["responses", { model: "sandbox/chat", input: "Hello" }],
  ["embeddings", { model: "sandbox/embed", input: "Hello" }],
];
/** Of a body that a thread reads. */
const PADDING = " ".repeat(300_000);

const pairs = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`key-${at}`, `value ${at}`]));

describe.each(REQUESTS)("metadata of POST /v1/%s", (path, request) => {
  const send = (metadata: Record<string, unknown>, padding = "") =>
    gateway.request("POST", `/v1/${path}`, JSON.stringify({ ...request, metadata }) + padding);

  test("have at most 16 pairs, with keys of 64 and texts of 512 characters", async () => {
    const wrong = [pairs(17), { ["k".repeat(65)]: "v" }, { key: "v".repeat(513) }];
    for (const padding of ["", PADDING]) {
      for (const metadata of wrong) {
        const { error } = await expectError(await send(metadata, padding), 400, "invalid_body");
        expect(error.param).toStartWith("metadata");
      }
      const most = { ...pairs(15), ["é".repeat(64)]: "🚢".repeat(512) };
      expect((await send(most, padding)).status).toBe(200);
    }
  });

  test("have the gateway's own members besides", async () => {
    const tags = Array.from({ length: 32 }, (_, at) => `a tag that is somewhat long ${at}`);
    const own = { idempotency_key: crypto.randomUUID() };
    expect((await send({ ...pairs(16), ...own, tags })).status).toBe(200);
    expect((await send({ ...pairs(16), tags: tags.join(",") })).status).toBe(200);
  });
});

describe.each(REQUESTS.slice(0, 2))("reasoning.effort of POST /v1/%s", (path, request) => {
  const send = (effort: unknown) =>
    gateway.request("POST", `/v1/${path}`, { ...request, reasoning: { effort } });

  test("is one of OpenAI's and OpenRouter's", async () => {
    for (const effort of ["none", "minimal", "low", "medium", "high", "xhigh", "max", null]) {
      expect((await send(effort)).status).toBe(200);
    }
    for (const effort of ["", "HIGH", "huge", 3]) {
      const { error } = await expectError(await send(effort), 400, "invalid_body");
      expect(error.param).toBe("reasoning.effort");
    }
  });
});
