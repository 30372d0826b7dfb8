import { afterEach, expect, test } from "bun:test";
import { ask, askStream } from "./ask.ts";
import { startUpstream, type Upstream } from "./server.ts";

let upstream: Upstream;
afterEach(() => upstream.stop());

test("a record tells what was asked and sent, headers and body included", async () => {
  upstream = await startUpstream({ nowMs: () => 1_234 });
  await askStream(upstream, "m", { body: { user: "u-1" } });
  expect(upstream.served).toHaveLength(1);
  expect(upstream.served[0]).toMatchObject({
    id: 1,
    path: "/v1/chat/completions",
    model: "m",
    behaviour: "complete",
    stream: true,
    requestBody: { user: "u-1", messages: [{ content: "hello" }] },
    headers: { authorization: "Bearer test" },
    status: 200,
    eventsSent: 7,
    contentCharactersSent: "Echo: hello".length,
    usageReported: { prompt_tokens: 2, completion_tokens: 3 },
    startedAtMs: 1_234,
    endedAtMs: 1_234,
    aborted: false,
    finished: true,
  });
});

test("totals count every request although only the newest stay listed", async () => {
  upstream = await startUpstream({ keep: 3 });
  for (let i = 0; i < 5; i += 1) await ask(upstream, i % 2 === 0 ? "even" : "odd");
  expect(upstream.served.map((one) => one.id)).toEqual([3, 4, 5]);
  expect(upstream.totals()).toMatchObject({
    even: { requests: 3, finished: 3, promptTokens: 6, completionTokens: 9, statuses: { 200: 3 } },
    odd: { requests: 2, finished: 2, promptTokens: 4, completionTokens: 6, statuses: { 200: 2 } },
  });
});

test("a client that leaves in mid-stream is seen, with what it was sent by then", async () => {
  upstream = await startUpstream();
  upstream.behave("m", { do: "complete", events: 50, delayMs: 20 });
  await askStream(upstream, "m", { giveUp: (text) => text.includes("w000001") });
  await upstream.until(([one]) => one?.aborted === true);
  const [served] = upstream.served;
  expect(served).toMatchObject({ finished: false, usageReported: undefined });
  expect(served?.eventsSent).toBeWithin(3, 20);
  expect(upstream.totals().m).toMatchObject({ aborted: 1, finished: 0 });
});

test("a client that leaves before the answer is seen", async () => {
  upstream = await startUpstream();
  upstream.behave("m", { do: "complete", firstDelayMs: 60_000 });
  const client = new AbortController();
  const asked = ask(upstream, "m", { signal: client.signal });
  await upstream.until((list) => list.length === 1);
  client.abort();
  expect((await asked).status).toBeNull();
  await upstream.until(([one]) => one?.aborted === true);
  expect(upstream.served[0]).toMatchObject({
    status: null,
    finished: false,
    contentCharactersSent: 0,
  });
});

test("what is awaited in vain is an error", async () => {
  upstream = await startUpstream();
  await expect(upstream.until(() => false, 5)).rejects.toThrow("within 5 ms");
});

test("stopping closes stalled and endless connections at once", async () => {
  upstream = await startUpstream();
  upstream.enqueue("m", { do: "stall" }, { do: "endless", delayMs: 5 });
  const stalled = ask(upstream, "m");
  await upstream.until((list) => list.length === 1);
  const endless = askStream(upstream, "m");
  await upstream.until((list) => (list[1]?.eventsSent ?? 0) > 0);
  await upstream.stop();
  expect((await stalled).failed).toBe(true);
  expect((await endless).failed).toBe(true);
});
