import { describe, expect, test } from "bun:test";
import { version } from "../../package.json";
import { healthRoutes, type Readiness } from "../../src/http/system/monitoring.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { callPublic } from "./public-context.ts";

function ready(readiness: Readiness) {
  return healthRoutes({ isReady: async () => readiness });
}

describe("GET /healthz", () => {
  test("is 200 while the process lives, whatever state its dependencies are in", async () => {
    const routes = healthRoutes({ isReady: () => Promise.reject(new Error("all is lost")) });
    const { response } = await callPublic(routes, "/healthz");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ status: "ok", version });
    expect(response.headers.get("cache-control")).toBe("no-store");
  });
});

describe("GET /readyz", () => {
  test("is 200 with the checks when all is well", async () => {
    const checks = { database: "ok", redis: "ok" };
    const { response, errorCode } = await callPublic(ready({ ok: true, checks }), "/readyz");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ status: "ok", checks });
    expect(errorCode).toBeUndefined();
  });

  test("is 503 in the shape of all errors and names the failed checks", async () => {
    const checks = { database: "unreachable", redis: "ok" };
    const { response, errorCode } = await callPublic(ready({ ok: false, checks }), "/readyz");
    expect(response.status).toBe(503);
    expect(await response.json()).toEqual({
      error: {
        message: "Not ready: database unreachable.",
        type: "overloaded_error",
        param: null,
        code: "overloaded",
      },
      request_id: "req_1",
      status: "not ready",
      checks,
    });
    expect(errorCode).toBe("overloaded");
  });

  test("shows no credentials that a check speaks of", async () => {
    const checks = { database: "connect postgres://gateway:hunter2@db/gateway: refused" };
    const { response } = await callPublic(ready({ ok: false, checks }), "/readyz");
    const text = await response.text();
    expect(text).not.toContain("hunter2");
    expect(text).toContain("refused");
  });

  test("is 503 without a private text when the check itself fails", async () => {
    const routes = healthRoutes({ isReady: () => Promise.reject(new Error("hunter2")) });
    const { response } = await callPublic(routes, "/readyz");
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ checks: { readiness: "the check failed" } });
  });

  test("is 503 after two seconds when the check hangs", async () => {
    const clock = new VirtualClock();
    const routes = healthRoutes({ isReady: () => new Promise(() => {}), clock });
    const call = callPublic(routes, "/readyz");
    clock.advance(2000);
    const { response } = await call;
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({
      checks: { readiness: "no answer within 2000 ms" },
    });
  });
});
