import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

/** Enough that one object a call stands out from what the gateway's own clocks make and drop meanwhile. */
const CALLS = 100;
/** What a call that is not let go of keeps at least one of. */
const TYPES = [
  "Promise",
  "SlimPromiseReaction",
  "FullPromiseReaction",
  "AbortSignal",
  "AbortController",
  "Request",
  "Response",
  "ReadableStream",
  "Timeout",
  "Map",
  "Set",
  "Generator",
  "AsyncGenerator",
];

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const messages = [{ role: "user", content: "Hello" }];
const chat = { model: "sandbox/chat", messages };

async function read(path: string, body: unknown, init: RequestInit = {}): Promise<string> {
  const response = await gateway.request("POST", path, body, init);
  expect(response.status).toBe(200);
  return response.text();
}

async function stored(): Promise<void> {
  const { id } = JSON.parse(await read("/v1/responses", { model: "sandbox/chat", input: "Hello" }));
  expect((await gateway.request("DELETE", `/v1/responses/${id}`)).status).toBe(200);
}

async function left(): Promise<void> {
  const leaving = new AbortController();
  const { signal } = leaving;
  const init = { signal };
  const body = { ...chat, stream: true };
  const response = await gateway.request("POST", "/v1/chat/completions", body, init);
  await response.body!.getReader().read();
  leaving.abort();
}

const KINDS: readonly [string, () => Promise<unknown>][] = [
  ["chats", () => read("/v1/chat/completions", chat)],
  ["streams", () => read("/v1/chat/completions", { ...chat, stream: true })],
  ["streams that are left", left],
  ["embeddings", () => read("/v1/embeddings", { model: "sandbox/embed", input: "Hello" })],
  ["stored responses", stored],
];

async function countObjects(): Promise<number> {
  await until("nothing runs", async () => {
    const [row] = await gateway.sql<{ count: number }[]>`
      SELECT ((SELECT count(*) FROM holds) + (SELECT count(*) FROM attempts))::int AS count`;
    return row!.count === 0;
  });
  Bun.gc(true);
  const counts = heapStats().objectTypeCounts;
  return TYPES.reduce((sum, type) => sum + (counts[type] ?? 0), 0);
}

test.each(KINDS)("%s leave no object behind", async (_, call) => {
  const callAll = async () => {
    for (let made = 0; made < CALLS; made++) await call();
  };
  await callAll();
  const before = await countObjects();
  await callAll();
  await until(
    "what they made is gone",
    async () => (await countObjects()) - before < CALLS / 2,
    20_000,
  );
});
