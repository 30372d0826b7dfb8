import { afterEach, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { CapturedLog, CHAT_RECORD, refused } from "./captured-log.ts";

const TIME = new Date("2026-01-01T00:00:00.000Z").toTimeString().slice(0, 8);
const open: Telemetry[] = [];
afterEach(async () => {
  for (const telemetry of open.splice(0)) await telemetry.close();
});

function start(hasColors = false, level: "info" | "debug" = "info") {
  const destination = new CapturedLog();
  const clock = new VirtualClock();
  const telemetry = createTelemetry({ level, format: "text", hasColors, destination, clock });
  open.push(telemetry);
  return { telemetry, destination };
}

function shown(write: (telemetry: Telemetry) => void): string {
  const { telemetry, destination } = start();
  write(telemetry);
  return destination.text;
}

describe("a log line as text", () => {
  test("has time, level, message, and the fields that the message does not show", () => {
    const fields = { port: 3000, models: 12, reason: "a b" };
    expect(shown(({ log }) => log.info(fields, "listening on http://127.0.0.1:3000"))).toBe(
      `${TIME} INFO  listening on http://127.0.0.1:3000 models=12 reason="a b"\n`,
    );
    expect(shown(({ log }) => log.warn("late"))).toBe(`${TIME} WARN  late\n`);
  });

  test("of a request shows method, route, status, time, model, tokens, cost and id", () => {
    expect(shown((telemetry) => telemetry.record(CHAT_RECORD))).toBe(
      `${TIME} INFO  POST /v1/chat/completions 200 812 ms  openai/gpt-4o-mini  120+30 tokens  0.00003744 USD request_id=${CHAT_RECORD.requestId}\n`,
    );
    expect(shown((telemetry) => telemetry.record(refused("missing_api_key", 401)))).toContain(
      " 401 812 ms  missing_api_key request_id=",
    );
  });

  test("of a failed program ends with the messages of its causes, then the stack of each", () => {
    const cause = new TypeError("x is not a function");
    const text = shown(({ log }) =>
      log.error({ err: new Error("no price", { cause }) }, "request failed"),
    );
    const [line, ...frames] = text.trimEnd().split("\n");
    expect(line).toBe(`${TIME} ERROR request failed: no price: x is not a function`);
    expect(frames.length).toBeGreaterThan(1);
    for (const frame of frames) expect(frame).toStartWith("    at ");
  });

  test("obeys no control characters of a message, a field or a name", () => {
    const text = shown(({ log }) =>
      log.warn({ "a\u001b[2J": "b\u001b[31m" }, "c\u001b]0;d\u0007\ne"),
    );
    expect(text).toBe(`${TIME} WARN  c�]0;d� e a�[2J=b�[31m\n`);
  });

  test("hides secrets as JSON does", () => {
    expect(shown(({ log }) => log.warn({ api_key: "abc" }, "sent"))).toBe(
      `${TIME} WARN  sent api_key=[redacted]\n`,
    );
  });

  test("has colors only if they are enabled", () => {
    const { telemetry, destination } = start(true);
    telemetry.log.error("down");
    expect(destination.text).toContain("\u001b[31mERROR\u001b[0m down");
    expect(shown(({ log }) => log.error("down"))).toBe(`${TIME} ERROR down\n`);
  });

  test("stands after what was logged before a printed text", () => {
    const { telemetry, destination } = start();
    telemetry.log.info("first");
    telemetry.print("\n  Base URL\n");
    expect(destination.text).toBe(`${TIME} INFO  first\n\n  Base URL\n`);
    expect(destination.flushes).toBe(1);
  });
});

test("requests of probes are logged at debug, whatever their status", () => {
  for (const route of ["/healthz", "/readyz", "/metrics"]) {
    for (const status of [200, 503]) {
      const record = { ...CHAT_RECORD, route, status };
      expect(shown((telemetry) => telemetry.record(record))).toBe("");
      const { telemetry, destination } = start(false, "debug");
      telemetry.record(record);
      expect(destination.text).toContain(` DEBUG POST ${route} ${status} `);
    }
  }
});

test("a provider's failure is logged with its kind and status, without a stack of the gateway", () => {
  const destination = new CapturedLog();
  const telemetry = createTelemetry({ level: "info", destination, clock: new VirtualClock() });
  open.push(telemetry);
  const err = new ProviderFailure("rate_limited", "the prompt", { status: 429 });
  telemetry.log.error({ err, code: "provider_error" }, "request failed");
  expect(destination.lines()).toEqual([
    {
      level: "error",
      time: "2026-01-01T00:00:00.000Z",
      err: {
        type: "ProviderFailure",
        message: "the provider answered with status 429",
        kind: "rate_limited",
        status: 429,
      },
      code: "provider_error",
      msg: "request failed",
    },
  ]);
});
