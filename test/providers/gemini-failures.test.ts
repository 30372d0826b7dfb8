import { describe, expect, test } from "bun:test";
import { failureInside, failureOfStatus } from "../../src/providers/gemini/failure-mapping.ts";
import { geminiRateLimit, geminiUnknownModel } from "../upstream/gemini-recordings.ts";

const API_KEY = "AIzaSecretOfTheTest012345";
const CONTEXT = { nowMs: Date.UTC(2026, 0, 1), apiKey: API_KEY };

function mapped(status: number, body: unknown, headers: Record<string, string> = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return failureOfStatus(status, new Headers(headers), text, CONTEXT);
}

const error = (message: string, status: string, details: unknown[] = []) => ({
  error: { code: 400, message, status, details },
});

test("the recorded rate limit waits as long as RetryInfo says, unless a header says otherwise", () => {
  const body = geminiRateLimit();
  const failure = mapped(429, body);
  expect(failure).toMatchObject({ kind: "rate_limited", status: 429, retryAfterMs: 34_400 });
  expect(failure.message).toStartWith("You exceeded your current quota");
  expect(mapped(429, [body]).retryAfterMs).toBe(34_400);
  expect(mapped(429, body, { "retry-after": "7" }).retryAfterMs).toBe(7_000);
});

test("the recorded unknown model is the operator's fault", () => {
  const { status, body } = geminiUnknownModel();
  expect(mapped(status, body)).toMatchObject({ kind: "misconfigured", status: 404 });
});

test.each([
  ["API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", "misconfigured"],
  ["API key expired. Please renew the API key.", "INVALID_ARGUMENT", "misconfigured"],
  ["API Key not found. Please pass a valid API key.", "INVALID_ARGUMENT", "misconfigured"],
  ["User location is not supported for the API use.", "FAILED_PRECONDITION", "misconfigured"],
  ["Penalty is not enabled for this model", "INVALID_ARGUMENT", "rejected"],
])("%s", (message, status, kind) => {
  expect(mapped(400, error(message, status))).toMatchObject({ kind });
});

test("a key that Google refuses is the operator's fault by its reason alone", () => {
  const info = { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason: "API_KEY_INVALID" };
  expect(mapped(400, error("no", "INVALID_ARGUMENT", [info])).kind).toBe("misconfigured");
});

test("a prompt that is too long for the model says so", () => {
  const message =
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
  expect(mapped(400, error(message, "INVALID_ARGUMENT"))).toMatchObject({
    kind: "rejected",
    isTooLong: true,
  });
});

test("the key is in no message", () => {
  const { message } = mapped(400, error(`key ${API_KEY} and AIzaSyOfSomebodyElse-1`, "X"));
  expect(message).toBe("key [redacted] and [redacted]");
});

describe("odd bodies", () => {
  test.each(["", "<html>", "null", "7", "[]", '{"error": "text"}', '{"error": {"details": 7}}'])(
    "%s counts by its status",
    (body) => {
      expect(mapped(500, body)).toMatchObject({ kind: "unavailable", status: 500 });
      expect(mapped(429, body)).toMatchObject({ kind: "rate_limited", retryAfterMs: undefined });
    },
  );

  test("under a status of success count by the code that they name", () => {
    const inside = (body: unknown) => failureInside(body, CONTEXT)?.kind;
    expect(inside({ error: { code: 429, message: "m" } })).toBe("rate_limited");
    expect(inside([{ error: { code: 400, message: "m" } }])).toBe("rejected");
    expect(inside({ error: { code: "x" } })).toBe("unavailable");
    expect(inside({ error: {} })).toBe("unavailable");
    for (const body of [{}, null, [], 7, { error: null }]) expect(inside(body)).toBeUndefined();
  });
});
