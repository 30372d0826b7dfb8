import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import { listErrorRecordings, loadErrorRecording } from "../upstream/recordings.ts";

const RETRY_ROUNDS = 2;
/** A wait within which the gateway itself tries again. */
const SHORT_WAIT_SECONDS = 1;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;

interface Outcome {
  readonly status: number;
  readonly code: string;
  readonly calls: number;
}

/** The same failure, whole and streamed: before the first byte there is no difference. */
async function expectOutcome(behaviour: Behaviour, outcome: Outcome) {
  const responses = await Promise.all(
    [false, true].map(async (stream) => {
      const slug = gateway.modelThat(behaviour);
      const response = await gateway.chat(slug, { stream });
      const { error, request_id } = await expectError(response, outcome.status, outcome.code);
      expect(callsOf(slug)).toBe(outcome.calls);
      expect(await billOf(gateway, request_id)).toBeUndefined();
      return { response, error };
    }),
  );
  return responses;
}

describe("a provider's status", () => {
  test.each([400, 422])("%d is 400 with the provider's message, asked once", async (status) => {
    const message = "Unsupported value: 'temperature' must be 1 with this model.";
    const answers = await expectOutcome(
      { do: "error", status, message },
      { status: 400, code: "provider_rejected", calls: 1 },
    );
    for (const { error } of answers) {
      expect(error.message).toContain(message);
      expect(error.type).toBe("invalid_request_error");
    }
  });

  test("400 for a prompt beyond the model's context has the code by which agents know to shorten it", async () => {
    const message = "This model's maximum context length is 8192 tokens, you requested 9000.";
    const answers = await expectOutcome(
      { do: "error", status: 400, message },
      { status: 400, code: "context_length_exceeded", calls: 1 },
    );
    for (const { error } of answers) {
      expect(error.message).toContain(message);
      expect(error.type).toBe("invalid_request_error");
    }
  });

  test("a message that quotes the provider's key is told without it", async () => {
    const answers = await expectOutcome(
      { do: "error", status: 400, message: "No access for sk-upstream-0123456789 today." },
      { status: 400, code: "provider_rejected", calls: 1 },
    );
    for (const { error } of answers) expect(error.message).toBe("No access for [redacted] today.");
    expect(gateway.logLines.join("")).not.toContain("sk-upstream-0123456789");
  });

  test.each([401, 403, 404])(
    "%d is 502 without the provider's message, asked once",
    async (status) => {
      const message = "Incorrect API key provided: sk-upstream-0123456789.";
      const answers = await expectOutcome(
        { do: "error", status, message },
        { status: 502, code: "provider_error", calls: 1 },
      );
      for (const { error } of answers) {
        expect(error.type).toBe("provider_error");
        expect(error.message).not.toMatch(/sk-upstream|Incorrect/);
      }
    },
  );

  test("408 is 408 that no client should send again, asked once", async () => {
    const answers = await expectOutcome(
      { do: "error", status: 408 },
      { status: 408, code: "provider_timeout", calls: 1 },
    );
    for (const { response, error } of answers) {
      expect(error.type).toBe("timeout_error");
      expect(response.headers.get("x-should-retry")).toBe("false");
    }
  });

  test.each([500, 502, 503, 504, 529])("%d is 502 after two retries", async (status) => {
    await expectOutcome(
      { do: "error", status },
      { status: 502, code: "provider_error", calls: 1 + RETRY_ROUNDS },
    );
  });

  test("a 5xx that passes is not seen by the client", async () => {
    const slug = gateway.modelThat({ do: "error", status: 503 }, { do: "complete" });
    expect((await gateway.chat(slug)).status).toBe(200);
    expect(callsOf(slug)).toBe(2);
  });

  test.each([3, 3_600])(
    "503 that asks for a wait of %d seconds is 502 at once, asked once",
    async (seconds) => {
      const headers = { "retry-after": String(seconds) };
      await expectOutcome(
        { do: "error", status: 503, headers },
        { status: 502, code: "provider_error", calls: 1 },
      );
    },
  );

  test("is logged, and nothing of what the provider says of it, which may quote the prompt", async () => {
    const message = "Cannot answer: my secret question";
    const logged = gateway.logLines.length;
    const slug = gateway.modelThat({ do: "complete" });
    for (const status of [400, 401, 404, 408, 429, 500, 503]) {
      gateway.upstream.behave(slug, { do: "error", status, message });
      for (const stream of [false, true]) await (await gateway.chat(slug, { stream })).text();
    }
    const begun = { choices: [{ index: 0, delta: { content: "a" }, finish_reason: null }] };
    for (const broken of ["data: secret question\n\n", { error: { message, param: message } }]) {
      gateway.upstream.behave(slug, { do: "frames", frames: [begun, broken] });
      await (await gateway.chat(slug, { stream: true })).text();
    }
    const told = ["with status 503 (tried", "something that is not JSON", "with status 502 (tried"];
    await until("the failures are logged", () => {
      const lines = gateway.logLines.slice(logged);
      return told.every((text) => lines.some((line) => line.includes(text)));
    });
    expect(gateway.logLines.join("")).not.toContain("secret");
  });

  test("an error page in HTML with an error status is told without its HTML", async () => {
    const answers = await expectOutcome(
      { do: "html", status: 503 },
      { status: 502, code: "provider_error", calls: 1 + RETRY_ROUNDS },
    );
    for (const { error } of answers) expect(error.message).not.toContain("<");
  });
});

describe("an error that a stream begins with is what an answer of that status would be", () => {
  const told = (error: object): Behaviour => ({ do: "frames", frames: [{ error }] });
  const message = "The context is too long.";
  const OUTCOMES: [string, Behaviour, Outcome][] = [
    [
      "a status",
      told({ message, code: 400 }),
      { status: 400, code: "provider_rejected", calls: 1 },
    ],
    [
      "a type",
      told({ message, type: "invalid_request_error" }),
      { status: 400, code: "provider_rejected", calls: 1 },
    ],
    [
      "a plain object",
      { do: "frames", frames: [{ object: "error", message, code: 400 }] },
      { status: 400, code: "provider_rejected", calls: 1 },
    ],
    [
      "a filter",
      told({ message, code: "content_filter" }),
      { status: 400, code: "content_policy_violation", calls: 1 },
    ],
    [
      "a refused key",
      told({ message, code: 401 }),
      { status: 502, code: "provider_error", calls: 1 },
    ],
    [
      "a rate limit",
      told({ message, type: "rate_limit_error" }),
      { status: 429, code: "rate_limit_exceeded", calls: 3 },
    ],
    ["a failure", told({ message, code: 503 }), { status: 502, code: "provider_error", calls: 3 }],
  ];
  test.each(OUTCOMES)("told by %s", async (_what, behaviour, outcome) => {
    const answers = await expectOutcome(behaviour, outcome);
    if (outcome.status !== 400) return;
    for (const { error } of answers) expect(error.message).toBe(message);
  });
});

describe("a provider's 429", () => {
  const LONG_WAITS: [string, Behaviour["retryAfter"], number][] = [
    ["in seconds", { seconds: 7 }, 7],
    ["as a date", { dateInSeconds: 30 }, 30],
    ["in milliseconds", { milliseconds: 4_200 }, 5],
    [
      "in milliseconds rather than in seconds where both stand",
      { milliseconds: 3_000, seconds: 9 },
      3,
    ],
    ["beyond a day, which nobody waits", { seconds: 9_999_999 }, 86_400],
  ];
  test.each(LONG_WAITS)(
    "is 429 at once with its Retry-After %s",
    async (_, retryAfter, seconds) => {
      const answers = await expectOutcome(
        { do: "rate-limited", retryAfter },
        { status: 429, code: "rate_limit_exceeded", calls: 1 },
      );
      for (const { response, error } of answers) {
        expect(error.type).toBe("rate_limit_error");
        const told = Number(response.headers.get("retry-after"));
        // A date has whole seconds, of which a part may have gone by.
        expect(
          told === seconds || (retryAfter?.dateInSeconds !== undefined && told === seconds - 1),
        ).toBeTrue();
      }
    },
  );

  test("that passes within its Retry-After is not seen by the client", async () => {
    const slug = gateway.modelThat(
      { do: "rate-limited", retryAfter: { milliseconds: 20 } },
      { do: "complete" },
    );
    expect((await gateway.chat(slug)).status).toBe(200);
    expect(callsOf(slug)).toBe(2);
  });

  test("is waited for and tried again where it is short, then told", async () => {
    const startedMs = performance.now();
    const answers = await expectOutcome(
      { do: "rate-limited", retryAfter: { seconds: SHORT_WAIT_SECONDS } },
      { status: 429, code: "rate_limit_exceeded", calls: 1 + RETRY_ROUNDS },
    );
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(
      RETRY_ROUNDS * SHORT_WAIT_SECONDS * 1_000 - 50,
    );
    for (const { response } of answers) expect(response.headers.get("retry-after")).toBe("1");
  });

  test.each(["soon", "-5", "", "1e3", "999999999999999999999", "Tomorrow 12:00"])(
    "with the unreadable Retry-After %p has one of at least a second",
    async (raw) => {
      const answers = await expectOutcome(
        { do: "rate-limited", retryAfter: { raw } },
        { status: 429, code: "rate_limit_exceeded", calls: 1 + RETRY_ROUNDS },
      );
      for (const { response } of answers) expect(response.headers.get("retry-after")).toBe("1");
    },
  );
});

describe("errors that providers have sent", () => {
  test.each(listErrorRecordings().filter((name) => !name.includes("embed")))("%s", async (name) => {
    const { status, json } = loadErrorRecording(name);
    const { error: recorded } = json as { error: { message: string } };
    const slug = gateway.modelThat({ do: "replay", recording: name });
    const response = await gateway.chat(slug);
    if (status === 404) {
      const { error } = await expectError(response, 502, "provider_error");
      expect(error.message).not.toContain(recorded.message);
    } else {
      const { error } = await expectError(response, 400, "provider_rejected");
      expect(error.message).toBe(recorded.message);
    }
    expect(callsOf(slug)).toBe(1);
  });
});
