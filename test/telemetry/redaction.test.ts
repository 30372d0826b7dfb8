import { afterEach, describe, expect, test } from "bun:test";
import { DrizzleQueryError } from "drizzle-orm";
import fc from "fast-check";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import { redactText } from "../../src/platform/telemetry/redact.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { CapturedLog } from "./captured-log.ts";

const REQUEST_ID = "req_019aa1b2c3d4e5f60718293a4b5c6d7e";
const open: Telemetry[] = [];

function start(): { telemetry: Telemetry; log: CapturedLog } {
  const log = new CapturedLog();
  const telemetry = createTelemetry({
    level: "info",
    destination: log,
    clock: new VirtualClock(),
  });
  open.push(telemetry);
  return { telemetry, log };
}

function logError(err: unknown): { text: string; err: Record<string, unknown> } {
  const { telemetry, log } = start();
  telemetry.log.error({ err, request_id: REQUEST_ID });
  const [line] = log.lines();
  expect(line!.request_id).toBe(REQUEST_ID);
  return { text: log.text, err: line!.err as Record<string, unknown> };
}

afterEach(async () => {
  for (const telemetry of open.splice(0)) await telemetry.close();
});

/** Each text with the part of it that must not come through. */
const SECRETS: readonly (readonly [text: string, secret: string])[] = [
  ["key sk-proj-Ab3dEf6hIj9k refused", "Ab3dEf6hIj9k"],
  ["Incorrect API key provided: sk-abcd********wxyz.", "wxyz"],
  ["x-api-key: sk-ant-api03-Zz9yXx8w", "api03-Zz9yXx8w"],
  ["gsk_Ab3dEf6hIj9kLm", "Ab3dEf6hIj9kLm"],
  ["whsec_Ab3dEf6hIj9kLm", "Ab3dEf6hIj9kLm"],
  ["sk_live_Ab3dEf6hIj9kLm", "Ab3dEf6hIj9kLm"],
  ["AIzaSyA-1234567890abcdefghijklmnopqrstu", "1234567890"],
  ["AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"],
  ["Authorization: Bearer abc.def-ghi_jkl==", "abc.def"],
  ["authorization: bearer\tabcdefghijkl", "abcdefghijkl"],
  ["Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"],
  ["connect postgres://gateway:hunter2@db:5432/gateway failed", "hunter2"],
  ["connect postgres://gateway:hun@ter/2:x@db:5432/gateway failed", "ter/2"],
  ["redis://:hunter2@cache:6379", "hunter2"],
  ["https://ghp_hunter2@example.com/x", "hunter2"],
  ["GET https://api.example.com/v1?key=hunter2&alt=sse", "hunter2"],
  ["https://s3.example.com/f?X-Amz-Signature=hunter2", "hunter2"],
  ["host=db user=gateway password=hunter2 dbname=gateway", "hunter2"],
];

describe("redaction", () => {
  test("hides keys, tokens and credentials in a text", () => {
    for (const [text, secret] of SECRETS) {
      expect(redactText(text)).not.toContain(secret);
      expect(redactText(text)).toContain("[redacted]");
    }
  });

  test("hides every key of this gateway wherever it stands, and leaves its shown prefix", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("secret" as const, "management" as const),
        fc.string(),
        fc.string(),
        (kind, before, after) => {
          const { key, prefix } = generateApiKey(kind);
          expect(redactText(`${before}${key}${after}`)).not.toContain(key.slice(-20));
          expect(redactText(prefix)).toBe(prefix);
        },
      ),
    );
  });

  test("leaves harmless text as it is", () => {
    for (const text of [
      "The risk-assessment of task-42 took 3 ms",
      "connect http://127.0.0.1:8080/v1/models?limit=5 refused",
      "https://models.example.com:443/publishers/x/models/claude@20250101:predict",
      "prompt_tokens 12, keys 3",
      "mail a@b.example",
    ]) {
      expect(redactText(text)).toBe(text);
    }
  });

  test("takes time linear in the text, also for text made to be slow", () => {
    const hostile = ["://", "://a:", "Bearer ", "key=", "a_".repeat(20), "sk-", "\nparams: "];
    const elapsedMs = startStopwatch();
    for (const piece of hostile) redactText(piece.repeat(2_000_000 / piece.length));
    expect(elapsedMs()).toBeLessThan(1_500);
  });

  test("cuts long texts and says how long they were", () => {
    const text = redactText("a".repeat(5_000_000));
    expect(text.length).toBeLessThan(2100);
    expect(text).toEndWith("… (5000000 characters)");
  });
});

describe("a logged error", () => {
  test("shows type, code, message, frames and the chain of causes, without secrets", () => {
    for (const [text, secret] of SECRETS) {
      const cause = new Error(text, { cause: new TypeError(`again ${text}`) });
      const error = new GatewayError("internal", "Something went wrong.", { cause });
      const { text: line, err } = logError(error);
      expect(line).not.toContain(secret);
      expect(err).toMatchObject({
        type: "GatewayError",
        code: "internal",
        message: "Something went wrong.",
        cause: { type: "Error", cause: { type: "TypeError" } },
      });
      expect(String(err.stack)).toStartWith("at ");
    }
  });

  test("keeps secrets out when it is logged bare, in the message or in other members", () => {
    for (const [text, secret] of SECRETS) {
      const { telemetry, log } = start();
      telemetry.log.error(new Error(text));
      telemetry.log.warn({ url: text, deep: [{ list: [text] }], [text]: 1 }, `see ${text}`);
      telemetry.log.child({ where: text }).info("child");
      expect(log.lines()).toHaveLength(3);
      expect(log.text).not.toContain(secret);
    }
  });

  test("hides members that are named like secrets whatever they hold", () => {
    const { telemetry, log } = start();
    telemetry.log.info({
      headers: { authorization: "hunter2", "x-api-key": "hunter2", cookie: "hunter2" },
      api_key: "hunter2",
      masterKey: "hunter2",
      previousMasterKey: "hunter2",
      GATEWAY_MASTER_KEY_PREVIOUS: "hunter2",
      webhook_secret: "hunter2",
      password: "hunter2",
      prompt_tokens: 12,
      key_id: "key_1",
    });
    expect(log.text).not.toContain("hunter2");
    expect(log.lines()[0]).toMatchObject({ prompt_tokens: 12, key_id: "key_1" });
  });

  test("does not show the parameters of a failed query", () => {
    const query = "insert into t values ($1)";
    const error = new DrizzleQueryError(query, ["tell me a\nsecret"], new Error("deadlock"));
    const { text, err } = logError(error);
    expect(text).not.toContain("tell me");
    expect(err.message).toBe(`Failed query: ${query}\nparams: [redacted]`);
    expect(err.cause).toMatchObject({ message: "deadlock" });
  });

  test("shows no members beyond the named ones", () => {
    const error = Object.assign(new Error("refused"), { code: 42, body: "a prompt", query: "q" });
    const { text, err } = logError(error);
    expect(text).not.toContain("a prompt");
    expect(err).toMatchObject({ code: 42, message: "refused" });
    expect(err).not.toHaveProperty("query");
  });

  test("ends for causes that form a ring, and for hostile objects", () => {
    const ring = new Error("ring");
    ring.cause = ring;
    expect(logError(ring).err.message).toBe("ring");
    const hostile = new Error("x");
    Object.defineProperty(hostile, "message", {
      get() {
        throw new Error("no");
      },
    });
    const { telemetry, log } = start();
    telemetry.log.error({ err: hostile }, "hostile");
    expect(log.lines()[0]!.err).toEqual({
      type: "unreadable",
      message: "the error could not be read",
    });
    for (const thrown of ["sk-Ab3dEf6hIj9k", 7, null, undefined, { key: "x" }, Symbol("s"), 1n]) {
      start().telemetry.log.error({ err: thrown });
      expect(logError({ err: thrown }).text).not.toContain("Ab3dEf6hIj9k");
    }
  });

  test("shows the errors of an aggregate", () => {
    const { err } = logError(new AggregateError([new Error("one"), new Error("two")], "both"));
    expect(err).toMatchObject({ errors: [{ message: "one" }, { message: "two" }] });
  });
});

test("every log line is one line of JSON, whatever is logged", () => {
  fc.assert(
    fc.property(
      fc.string({ unit: "binary" }),
      fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue()),
      (message, members) => {
        const { telemetry, log } = start();
        telemetry.log.info({ members }, "%s", `key ${message}`);
        telemetry.log.info({ members }, message);
        expect(log.lines()).toHaveLength(2);
        expect(log.text).not.toMatch(/[\r\u0085\u2028\u2029]/);
      },
    ),
  );
});
