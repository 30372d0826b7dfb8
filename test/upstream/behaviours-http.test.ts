import { afterAll, beforeEach, expect, test } from "bun:test";
import { ask, askRaw, askStream } from "./ask.ts";
import { BEHAVIOUR_NAMES } from "./behaviours.ts";
import { startUpstream } from "./server.ts";

const NOW_MS = Date.UTC(2026, 0, 1);
const upstream = await startUpstream({ nowMs: () => NOW_MS });
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

test("a refusal closes the connection without one byte", async () => {
  upstream.behave("m", { do: "refuse" });
  expect(await ask(upstream, "m")).toMatchObject({ status: null, failed: true });
  expect((await askRaw(upstream, '{"model":"m","messages":[]}')).received).toHaveLength(0);
  expect(upstream.served.map((one) => [one.status, one.finished, one.aborted])).toEqual([
    [null, false, false],
    [null, false, false],
  ]);
});

test("a stall answers nothing, and sees the client leave", async () => {
  upstream.behave("m", { do: "stall" });
  const client = new AbortController();
  const asked = ask(upstream, "m", { signal: client.signal });
  await upstream.until(([one]) => one?.behaviour === "stall");
  expect(upstream.served[0]).toMatchObject({ status: null, endedAtMs: null });
  client.abort();
  expect(await asked).toMatchObject({ status: null, failed: true });
  await upstream.until(([one]) => one?.aborted === true);
});

test.each([400, 401, 403, 404, 408, 422, 429, 500, 502, 503])(
  "status %d has OpenAI's error body",
  async (status) => {
    upstream.behave("m", { do: "error", status });
    for (const asked of [await ask(upstream, "m"), await askStream(upstream, "m")]) {
      expect(asked.status).toBe(status);
      const { error } = JSON.parse(asked.text);
      expect(Object.keys(error).sort()).toEqual(["code", "message", "param", "type"]);
      expect(error.message).not.toBe("");
    }
    expect(upstream.totals().m).toMatchObject({
      requests: 2,
      finished: 2,
      statuses: { [status]: 2 },
    });
  },
);

test("a rate limit tells when to come back: in seconds, as a date, in milliseconds, or as it is told", async () => {
  upstream.enqueue(
    "m",
    { do: "rate-limited", retryAfter: { seconds: 7 } },
    { do: "rate-limited", retryAfter: { dateInSeconds: 90 } },
    { do: "rate-limited", retryAfter: { milliseconds: 250 } },
    { do: "rate-limited", retryAfter: { raw: "soon" } },
    { do: "rate-limited" },
  );
  const seen: (string | number | null)[][] = [];
  for (let i = 0; i < 5; i += 1) {
    const { status, headers } = await ask(upstream, "m");
    seen.push([status, headers.get("retry-after"), headers.get("retry-after-ms")]);
  }
  expect(seen).toEqual([
    [429, "7", null],
    [429, "Thu, 01 Jan 2026 00:01:30 GMT", null],
    [429, null, "250"],
    [429, "soon", null],
    [429, "1", null],
  ]);
});

test("HTML, an empty body, a redirect and unstreamed JSON come where a stream was asked for", async () => {
  upstream.enqueue(
    "m",
    { do: "html" },
    { do: "empty-body" },
    { do: "redirect", location: "http://127.0.0.1:1/" },
  );
  const html = await askStream(upstream, "m");
  expect(html).toMatchObject({ status: 200, text: expect.stringContaining("<h1>") });
  expect(html.headers.get("content-type")).toStartWith("text/html");
  expect(await askStream(upstream, "m")).toMatchObject({ status: 200, text: "", failed: false });
  const redirect = await askStream(upstream, "m");
  expect(redirect.status).toBe(307);
  expect(redirect.headers.get("location")).toBe("http://127.0.0.1:1/");
  upstream.behave("m", { do: "json-for-stream" });
  const json = await askStream(upstream, "m");
  expect(json.headers.get("content-type")).toBe("application/json");
  expect(JSON.parse(json.text).object).toBe("chat.completion");
});

test("queued behaviours come first and once, then the model's own, then that of every model", async () => {
  upstream.behave("*", { do: "error", status: 503 });
  upstream.behave("m", { do: "error", status: 502 });
  upstream.enqueue("m", { do: "error", status: 500 }, { do: "complete" });
  const statuses = [];
  for (const model of ["m", "m", "m", "other"]) statuses.push((await ask(upstream, model)).status);
  upstream.behave("m", null);
  upstream.behave("*", null);
  statuses.push((await ask(upstream, "m")).status);
  expect(statuses).toEqual([500, 200, 502, 503, 200]);
});

test("a model named do:<behaviour> behaves so, and a name that does not exist is told", async () => {
  expect(await ask(upstream, "do:html")).toMatchObject({ text: expect.stringContaining("<h1>") });
  expect(await ask(upstream, "do:nothing")).toMatchObject({
    status: 500,
    text: expect.stringContaining("nothing"),
  });
  expect(await ask(upstream, "replay:nothing")).toMatchObject({
    status: 500,
    text: expect.stringContaining("nothing"),
  });
  expect(BEHAVIOUR_NAMES).toContain("html");
});

test("a body that is no request is refused, and so is an unknown path", async () => {
  const broken = await fetch(`${upstream.baseUrl}/chat/completions`, { method: "POST", body: "{" });
  expect(broken.status).toBe(400);
  const unknown = await fetch(`${upstream.baseUrl}/nothing`, { method: "POST", body: "{}" });
  expect(unknown.status).toBe(404);
});
