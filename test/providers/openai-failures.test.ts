import { afterAll, beforeEach, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { VirtualClock } from "../../src/lib/clock.ts";
import {
  failureInside,
  failureOfStatus,
  QUOTA_EXHAUSTED_RETRY_MS,
} from "../../src/providers/openai/failure-mapping.ts";
import {
  ERROR_BODY_TIMEOUT_MS,
  MAX_ERROR_BODY_BYTES,
} from "../../src/providers/transport/bounded-body.ts";
import { MAX_FAILURE_MESSAGE_CHARACTERS } from "../../src/providers/transport/status-failure.ts";
import { listErrorRecordings, loadErrorRecording } from "../upstream/recordings.ts";
import { startUpstream } from "../upstream/server.ts";
import { API_KEY, adapter, callOf, failureOf, serve } from "./openai-adapter.ts";

const CONTEXT = { nowMs: Date.UTC(2026, 0, 1), apiKey: API_KEY };
const upstream = await startUpstream();
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

function mapped(status: number, body: unknown, headers: Record<string, string> = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return failureOfStatus(status, new Headers(headers), text, CONTEXT);
}

test.each([
  [400, "rejected"],
  [401, "misconfigured"],
  [402, "misconfigured"],
  [403, "misconfigured"],
  [404, "misconfigured"],
  [405, "misconfigured"],
  [408, "timeout"],
  [409, "unavailable"],
  [413, "rejected"],
  [422, "rejected"],
  [425, "unavailable"],
  [429, "rate_limited"],
  [500, "unavailable"],
  [502, "unavailable"],
  [503, "unavailable"],
  [504, "unavailable"],
  [529, "unavailable"],
] as const)("status %d is of kind %s, streamed or not", async (status, kind) => {
  upstream.behave("m", { do: "error", status });
  for (const stream of [false, true]) {
    const failure = await failureOf(adapter(upstream.baseUrl).chat(callOf("m", { stream })));
    expect([failure.kind, failure.status]).toEqual([kind, status]);
  }
});

test.each([301, 302, 303, 307, 308])("status %d is of kind unavailable", async (status) => {
  upstream.behave("m", { do: "redirect", status });
  const failure = await failureOf(adapter(upstream.baseUrl).chat(callOf("m")));
  expect([failure.kind, failure.status]).toEqual(["unavailable", status]);
});

test.each(listErrorRecordings())("the recorded error %s is mapped with its words", async (name) => {
  const recording = loadErrorRecording(name);
  const failure = await failureOf(adapter(upstream.baseUrl).chat(callOf(`replay:${name}`)));
  const error = (recording.json as { error: { message: string; param: string | null } }).error;
  expect(failure.kind).toBe(recording.status === 400 ? "rejected" : "misconfigured");
  expect(failure.message).toBe(error.message);
  expect(failure.param).toBe(error.param ?? null);
});

test.each([
  ["OpenAI", { error: { message: "No.", param: "n", type: "t", code: null } }, "No.", "n"],
  ["a list of one (Google)", [{ error: { message: "No.", code: 400 } }], "No.", null],
  ["xAI", { code: "invalid", error: "No." }, "No.", null],
  ["Mistral", { object: "error", message: "No.", type: "t", param: "n" }, "No.", "n"],
  [
    "Mistral's validation",
    { object: "error", message: { detail: [{ loc: ["body", "n"], msg: "Extra inputs" }] } },
    "n: Extra inputs",
    "n",
  ],
  ["FastAPI", { detail: "No." }, "No.", null],
  [
    "FastAPI's validation",
    { detail: [{ loc: ["body", "messages", 0, "role"], msg: "Wrong" }] },
    "messages.0.role: Wrong",
    "messages.0.role",
  ],
  [
    "OpenRouter",
    { error: { code: 400, message: "Provider returned error", metadata: { raw: "No." } } },
    "Provider returned error: No.",
    null,
  ],
  ["no JSON", "<html>busy</html>", "the provider answered with status 400", null],
  ["nothing", "", "the provider answered with status 400", null],
  ["null", "null", "the provider answered with status 400", null],
  ["wrong types", { error: { message: 5, param: {}, code: [] } }, /status 400/, null],
  ["an empty list", "[]", /status 400/, null],
] as const)(
  "the message and param of an error body are found: %s",
  (_shape, body, message, param) => {
    const failure = mapped(400, body);
    expect(failure.kind).toBe("rejected");
    expect(failure.message).toMatch(message);
    expect(failure.param).toBe(param);
  },
);

test.each([
  ["OpenAI", { error: { code: "context_length_exceeded", message: "Your input is long." } }],
  ["llama.cpp", { error: { code: 400, type: "exceed_context_size_error", message: "m" } }],
  ["vLLM", { error: { message: "This model's maximum context length is 10 tokens.", code: 400 } }],
  ["Mistral", { message: "Prompt too large for model with 32768 maximum context length" }],
  ["xAI", { code: "c", error: "This model's maximum prompt length is 10 but the request has 11." }],
  ["Anthropic", { error: { message: "prompt is too long: 205654 tokens > 200000 maximum" } }],
  ["Google", [{ error: { message: "The input token count exceeds the maximum number of 9" } }]],
])("a prompt too long for the model is told from other complaints: %s", (_who, body) => {
  expect(mapped(400, body)).toMatchObject({ kind: "rejected", isTooLong: true });
  expect(mapped(500, body)).toMatchObject({ kind: "unavailable", isTooLong: false });
});

test.each([
  { error: { message: "max_tokens is too large: 200000. It supports at most 16384." } },
  { error: { message: "No such context.", code: "invalid_value" } },
  "",
])("another complaint is none of a prompt too long: %j", (body) => {
  expect(mapped(400, body).isTooLong).toBeFalse();
});

test.each([
  [400, { error: { code: "content_policy_violation", message: "m" } }],
  [400, { error: { code: "content_filter", message: "m" } }],
  [400, { error: { code: "x", innererror: { code: "ResponsibleAIPolicyViolation" } } }],
  [400, { error: { code: "invalid_prompt", message: "m" } }],
  [403, { error: { code: 403, message: "m", metadata: { reasons: [], flagged_input: "x" } } }],
])("status %d with %p is of kind content_policy", (status, body) => {
  expect(mapped(status, body).kind).toBe("content_policy");
});

test.each([
  { error: { code: "invalid_api_key", message: "m" } },
  { code: "bad", error: "Incorrect API key provided: xa***. Get one." },
  { error: { code: 400, status: "INVALID_ARGUMENT", message: "API key not valid. Pass one." } },
  { object: "error", message: "Invalid model: m", type: "invalid_model", code: "1500" },
  { error: { code: "model_decommissioned", message: "m", type: "invalid_request_error" } },
  { error: { code: "model_terms_required", message: "m", type: "invalid_request_error" } },
  { error: { code: "organization_restricted", message: "m", type: "invalid_request_error" } },
  {
    error: {
      message:
        "/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view available models for your key.",
      ...{ type: "None", param: "None", code: "400" },
    },
  },
  { error: { code: "OperationNotSupported", message: "The chatCompletion operation does not" } },
])("status 400 with %p is our fault, not the caller's", (body) => {
  expect(mapped(400, body).kind).toBe("misconfigured");
});

test.each([
  ["No endpoints found that support image input", "rejected"],
  ["No endpoints found that support the provided 'tool_choice' value. To learn more", "rejected"],
  ["No endpoints found matching your data policy.", "misconfigured"],
  ["No endpoints found for a/b.", "misconfigured"],
])("OpenRouter's 404 is the caller's where it tells of what was asked for: %s", (message, kind) => {
  expect(mapped(404, { error: { message, code: 404 } }).kind).toBe(kind as "rejected");
});

test("a request larger than the account's limit by the minute is one of its rate limit", () => {
  const error = { message: "Request too large for model m", code: "rate_limit_exceeded" };
  expect(mapped(413, { error }).kind).toBe("rate_limited");
  expect(mapped(413, { error: { message: "Request too large" } }).kind).toBe("rejected");
});

test("an invalid prompt that happens to speak of an API key stays the caller's", () => {
  const body = { error: { message: "The message 'my api key not valid?' is too long" } };
  expect(mapped(400, { error: { message: "max_tokens is too large" } }).kind).toBe("rejected");
  expect(mapped(422, body).kind).toBe("rejected");
});

test("a message is cut, well-formed, and never tells our key", () => {
  const message = `${API_KEY} is wrong: ${API_KEY}${"😀".repeat(2_000)}`;
  const failure = mapped(400, { error: { message, param: `x ${API_KEY}` } });
  expect(failure.message.length).toBeLessThanOrEqual(MAX_FAILURE_MESSAGE_CHARACTERS);
  expect(failure.message.isWellFormed()).toBe(true);
  expect(`${failure.message}${failure.param}${JSON.stringify(failure)}`).not.toContain(API_KEY);
  expect(failure.message).toStartWith("[redacted] is wrong: [redacted]");
});

test("a key that is too short to be a secret takes no words out of messages", () => {
  const told = (apiKey: string, message: string) =>
    failureOfStatus(400, new Headers(), JSON.stringify({ error: { message } }), {
      nowMs: 0,
      apiKey,
    }).message;
  expect(told("a", "a bad parameter")).toBe("a bad parameter");
  expect(told("test", "the latest test")).toBe("the latest test");
  expect(told("1234567", "at 12345678 ms")).toBe("at 12345678 ms");
  expect(told("12345678", "key 12345678 is wrong")).toBe("key [redacted] is wrong");
});

test("a rate limit's wait is found in headers before the body, and Google's in its RetryInfo", () => {
  const google = readFileSync(
    join(import.meta.dir, "../fixtures/vercel-ai/google/google-429-retry-info.json"),
    "utf8",
  );
  expect(mapped(429, google)).toMatchObject({ kind: "rate_limited", retryAfterMs: 34_400 });
  expect(mapped(429, google, { "retry-after": "2" }).retryAfterMs).toBe(2_000);
  expect(mapped(429, {}).retryAfterMs).toBeUndefined();
  expect(mapped(503, {}, { "retry-after": "3" })).toMatchObject({
    kind: "unavailable",
    retryAfterMs: 3_000,
  });
});

test("an account without money is a rate limit that does not pass soon", () => {
  const body = { error: { message: "m", type: "insufficient_quota", code: "insufficient_quota" } };
  expect(mapped(429, body, { "retry-after": "1" })).toMatchObject({
    kind: "rate_limited",
    retryAfterMs: QUOTA_EXHAUSTED_RETRY_MS,
  });
});

test.each([
  [{ error: { message: "m", code: 429 } }, "rate_limited", 429],
  [{ error: { message: "m", code: "429" } }, "rate_limited", 429],
  [{ error: { message: "m", type: "rate_limit_error" } }, "rate_limited", 429],
  [{ error: { message: "m", code: "insufficient_quota" } }, "rate_limited", 429],
  [{ error: { message: "m", code: 502 } }, "unavailable", 502],
  [{ error: { message: "m", type: "server_error" } }, "unavailable", 502],
  [{ error: { message: "m", type: "invalid_request_error" } }, "rejected", 400],
  [{ error: { message: "m", code: "content_filter" } }, "content_policy", 400],
  [{ error: { message: "m", code: "invalid_api_key" } }, "misconfigured", 401],
  [{ error: { message: "m", code: 200 } }, "unavailable", 502],
  [{ error: "m", choices: [] }, "unavailable", 502],
  [{ object: "error", message: "m", code: 400 }, "rejected", 400],
] as const)("the error %p with status 200 is of kind %s", async (body, kind, status) => {
  await using server = serve(() => Response.json(body));
  for (const stream of [false, true]) {
    const failure = await failureOf(adapter(server.baseUrl).chat(callOf("m", { stream })));
    expect([failure.kind, failure.status, failure.message]).toEqual([kind, status, "m"]);
  }
});

test("choices beside an empty error are an answer", () => {
  expect(failureInside({ error: null, choices: [] }, CONTEXT)).toBeUndefined();
  expect(failureInside({ error: { message: "m" }, choices: [{}] }, CONTEXT)).toBeUndefined();
  expect(failureInside("text", CONTEXT)).toBeUndefined();
});

test("of an endless error body only MAX_ERROR_BODY_BYTES are read", async () => {
  const block = new Uint8Array(16 * 1024).fill(0x61);
  let sent = 0;
  await using server = serve(
    () =>
      new Response(
        new ReadableStream<Uint8Array>({
          pull(controller) {
            sent += block.length;
            controller.enqueue(block);
          },
        }),
        { status: 400 },
      ),
  );
  const failure = await failureOf(adapter(server.baseUrl).chat(callOf("m")));
  expect([failure.kind, failure.message]).toEqual([
    "rejected",
    "the provider answered with status 400",
  ]);
  expect(sent).toBeLessThan(100 * MAX_ERROR_BODY_BYTES);
});

test("an error body that stalls is given up after ERROR_BODY_TIMEOUT_MS", async () => {
  const clock = new VirtualClock();
  const timed = Promise.withResolvers<number>();
  const observed = {
    nowMs: () => clock.nowMs(),
    after(delayMs: number, run: () => void) {
      timed.resolve(delayMs);
      return clock.after(delayMs, run);
    },
  };
  const stalled = () => new ReadableStream<Uint8Array>({ pull: () => new Promise(() => {}) });
  const provider = adapter("http://h.test/v1", {
    clock: observed,
    answer: () => new Response(stalled(), { status: 500 }),
  });
  const failure = failureOf(provider.chat(callOf("m")));
  expect(await timed.promise).toBe(ERROR_BODY_TIMEOUT_MS);
  clock.advance(ERROR_BODY_TIMEOUT_MS);
  expect((await failure).kind).toBe("unavailable");
});

test.each([
  ["a refused connection", "http://127.0.0.1:1/v1", /ECONNREFUSED/],
  ["TLS where there is none", "https://127.0.0.1:PORT/v1", /failed: /],
] as const)("%s is of kind unavailable", async (_what, url, message) => {
  await using server = serve(() => new Response(""));
  const failure = await failureOf(
    adapter(url.replace("PORT", String(server.port))).chat(callOf("m")),
  );
  expect(failure.kind).toBe("unavailable");
  expect(failure.message).toMatch(message);
});

test("a name that does not resolve is of kind unavailable", async () => {
  const failure = await failureOf(adapter("http://nowhere.invalid/v1").chat(callOf("m")));
  expect([failure.kind, failure.isLasting]).toEqual(["unavailable", false]);
  expect(failure.message).toContain("ENOTFOUND");
});
