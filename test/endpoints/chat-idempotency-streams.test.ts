import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, parseStream, readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const STREAM = { stream: true, stream_options: { include_usage: true } };
const header = (key: string) => ({ headers: { "idempotency-key": key } });
const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;
const isReplay = (response: Response) =>
  response.headers.get("x-gateway-idempotent-replay") === "true";
const idOf = (response: Response) => response.headers.get("x-gateway-request-id")!;

async function untilFree(key: string): Promise<void> {
  await until("the key is free", async () => {
    const rows =
      await gateway.sql`SELECT 1 FROM idempotency_records WHERE idempotency_key = ${key}`;
    return rows.length === 0;
  });
}

test("a stream is replayed byte for byte, as a stream, without a second call or charge", async () => {
  const slug = gateway.modelThat({ do: "complete", content: "Grüße 🌍", events: 4, cut: true });
  const key = crypto.randomUUID();
  const first = await gateway.chat(slug, STREAM, header(key));
  expect(isReplay(first)).toBeFalse();
  const text = await first.text();
  expectStreamShape(parseStream(text), { model: `test/${slug}`, includesUsage: true });
  for (let i = 0; i < 2; i++) {
    const again = await gateway.chat(slug, STREAM, header(key));
    expect([again.status, isReplay(again)]).toEqual([200, true]);
    expect(again.headers.get("content-type")).toStartWith("text/event-stream");
    for (const name of ["x-gateway-provider", "x-gateway-model"]) {
      expect(again.headers.get(name)).toBe(first.headers.get(name)!);
    }
    expect(again.headers.get("x-gateway-model")).toBe(`test/${slug}`);
    expect(await again.text()).toBe(text);
    expect(await billOf(gateway, idOf(again))).toBeUndefined();
  }
  expect(callsOf(slug)).toBe(1);
  expect((await billOfResponse(gateway, first)).estimated).toBeFalse();
});

test("streams under the key of a running one wait for it and have the same bytes", async () => {
  const slug = gateway.modelThat({ do: "complete", events: 4, delayMs: 40 });
  const key = crypto.randomUUID();
  const responses = await Promise.all(
    Array.from({ length: 4 }, () => gateway.chat(slug, STREAM, header(key))),
  );
  const texts = await Promise.all(responses.map((response) => response.text()));
  expect(new Set(texts).size).toBe(1);
  expect(parseStream(texts[0]!).isDone).toBeTrue();
  expect(responses.filter(isReplay)).toHaveLength(3);
  expect(callsOf(slug)).toBe(1);
});

test("the same call without stream is a different call", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const key = crypto.randomUUID();
  await (await gateway.chat(slug, STREAM, header(key))).text();
  const response = await gateway.chat(slug, {}, header(key));
  await expectError(response, 409, "idempotency_conflict");
});

test("a stream that breaks is billed and frees the key", async () => {
  const slug = gateway.modelThat({ do: "cut", events: 8, afterEvents: 5 }, { do: "complete" });
  const key = crypto.randomUUID();
  const broken = await gateway.chat(slug, STREAM, header(key));
  expect((await readStream(broken)).error).toBeDefined();
  expect((await billOfResponse(gateway, broken)).completionTokens).toBe(4);
  await untilFree(key);
  const again = await gateway.chat(slug, STREAM, header(key));
  expect(isReplay(again)).toBeFalse();
  expect((await readStream(again)).isDone).toBeTrue();
});

test("a stream that fails before its first event frees the key", async () => {
  const slug = gateway.modelThat({ do: "error", status: 400 }, { do: "complete" });
  const key = crypto.randomUUID();
  await expectError(await gateway.chat(slug, STREAM, header(key)), 400, "provider_rejected");
  const again = await gateway.chat(slug, STREAM, header(key));
  expect([again.status, isReplay(again)]).toEqual([200, false]);
  await again.text();
});

test("a client that leaves in mid-stream pays for what was produced and frees the key", async () => {
  const slug = gateway.modelThat(
    { do: "stall-after-events", events: 8, afterEvents: 5 },
    { do: "complete" },
  );
  const key = crypto.randomUUID();
  const abort = new AbortController();
  const gone = await gateway.chat(slug, STREAM, { ...header(key), signal: abort.signal });
  expect(gone.status).toBe(200);
  let seen = "";
  for await (const piece of gone.body!.pipeThrough(new TextDecoderStream())) {
    seen += piece;
    if (seen.includes("w000003")) break;
  }
  expect(seen).toContain("w000003");
  abort.abort();
  await untilFree(key);
  expect(await billOfResponse(gateway, gone)).toMatchObject({ status: 499, completionTokens: 4 });
  const again = await gateway.chat(slug, STREAM, header(key));
  expect([again.status, isReplay(again)]).toEqual([200, false]);
  expect((await readStream(again)).isDone).toBeTrue();
});

test("a stream too large to be kept is delivered, and not made again: 409", async () => {
  const slug = gateway.modelThat({ do: "huge-event", contentBytes: 1_100_000 });
  const key = crypto.randomUUID();
  const body = { ...STREAM, max_tokens: 20_000 };
  expect((await readStream(await gateway.chat(slug, body, header(key)))).isDone).toBeTrue();
  await expectError(await gateway.chat(slug, body, header(key)), 409, "idempotency_conflict");
  expect(callsOf(slug)).toBe(1);
});
