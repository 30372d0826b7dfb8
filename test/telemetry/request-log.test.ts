import { afterEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { LevelWithSilent } from "pino";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { RequestRecord, Telemetry } from "../../src/platform/telemetry/interface.ts";
import { CapturedLog, CHAT_RECORD, refused } from "./captured-log.ts";

const open: Telemetry[] = [];

function start(level: LevelWithSilent = "info"): { telemetry: Telemetry; log: CapturedLog } {
  const log = new CapturedLog();
  const telemetry = createTelemetry({ level, destination: log, clock: new VirtualClock() });
  open.push(telemetry);
  return { telemetry, log };
}

function logged(record: RequestRecord): Record<string, unknown> {
  const { telemetry, log } = start();
  telemetry.record(record);
  const [line, ...others] = log.lines();
  expect(others).toEqual([]);
  return line!;
}

afterEach(async () => {
  for (const telemetry of open.splice(0)) await telemetry.close();
});

describe("a request's log line", () => {
  test("tells id, key, organization, model, provider, route, status, tokens, cost and latencies", () => {
    expect(logged(CHAT_RECORD)).toEqual({
      level: "info",
      time: "2026-01-01T00:00:00.000Z",
      request_id: CHAT_RECORD.requestId,
      organization_id: CHAT_RECORD.organizationId,
      key_id: CHAT_RECORD.keyId,
      method: "POST",
      route: "/v1/chat/completions",
      status: 200,
      model: "openai/gpt-4o-mini",
      provider: "openai",
      prompt_tokens: 120,
      completion_tokens: 30,
      cost_usd: 0.00003744,
      latency_ms: 812.35,
      first_token_ms: 210.5,
      msg: "request",
    });
  });

  test("leaves out what is not known and names the error", () => {
    const line = logged(refused("missing_api_key", 401));
    expect(line).toMatchObject({ status: 401, error_code: "missing_api_key", level: "info" });
    for (const absent of ["model", "provider", "cost_usd", "first_token_ms", "prompt_tokens"]) {
      expect(line).not.toHaveProperty(absent);
    }
  });

  test("is an error from status 500 on, and an information below, 499 included", () => {
    for (const [status, level] of [
      [200, "info"],
      [429, "info"],
      [499, "info"],
      [500, "error"],
      [503, "error"],
    ] as const) {
      expect(logged({ ...CHAT_RECORD, status }).level).toBe(level);
    }
  });

  test("moves with the clock", () => {
    const log = new CapturedLog();
    const clock = new VirtualClock();
    const telemetry = createTelemetry({ level: "info", destination: log, clock });
    open.push(telemetry);
    telemetry.record(CHAT_RECORD);
    clock.advance(1);
    telemetry.record(CHAT_RECORD);
    telemetry.log.info("also");
    expect(log.lines().map((line) => line.time)).toEqual([
      "2026-01-01T00:00:00.000Z",
      "2026-01-01T00:00:00.001Z",
      "2026-01-01T00:00:00.001Z",
    ]);
  });

  test("stays one line of printable JSON whatever the caller named as model", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 400 }), (model) => {
        const { telemetry, log } = start();
        telemetry.record(refused("model_not_found", 404, model));
        expect(log.text).toMatch(/^[\x20-\x7e]+\n$/);
        expect(String(log.lines()[0]!.model ?? "").length).toBeLessThanOrEqual(200);
      }),
    );
    const forged = 'x"}\r\n{"level":"info","msg":"forged"}\u2028\u0085\u0000\ud800';
    expect(logged(refused("model_not_found", 404, forged)).msg).toBe("request");
  });

  test("does not hold a key that was sent as a model", () => {
    const { key } = generateApiKey("secret");
    expect(JSON.stringify(logged(refused("model_not_found", 404, key)))).not.toContain(key);
  });
});

describe("LOG_LEVEL", () => {
  test("at warn and error leaves only requests that failed", () => {
    for (const level of ["warn", "error"] as const) {
      const { telemetry, log } = start(level);
      telemetry.record(CHAT_RECORD);
      telemetry.record(refused("internal", 500));
      expect(log.lines().map((line) => line.status)).toEqual([500]);
    }
  });

  test("at silent writes nothing and still counts", async () => {
    const { telemetry, log } = start("silent");
    telemetry.record(refused("internal", 500));
    telemetry.log.fatal("nothing");
    expect(log.text).toBe("");
    expect(await telemetry.metrics()).toContain('gateway_errors_total{code="internal"} 1');
  });
});
