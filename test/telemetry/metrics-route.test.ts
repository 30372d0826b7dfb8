import { describe, expect, test } from "bun:test";
import { metricsRoutes } from "../../src/routes/metrics/index.ts";
import { callPublic, refusalOf } from "../routes/public-context.ts";

const TOKEN = "metrics-token-1";
const telemetry = {
  metrics: async () => "gateway_x 1\n",
  metricsContentType: "text/plain; version=0.0.4; charset=utf-8",
};

function get(authorization: string | undefined, options: { token?: string; isLoopback: boolean }) {
  const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
  return callPublic(metricsRoutes({ telemetry, ...options }), "/metrics", headers);
}

describe("GET /metrics", () => {
  test("answers who has the token, on any address", async () => {
    for (const isLoopback of [true, false]) {
      const { response } = await get(`Bearer ${TOKEN}`, { token: TOKEN, isLoopback });
      expect(response.status).toBe(200);
      expect(response.headers.get("content-type")).toBe(telemetry.metricsContentType);
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(await response.text()).toBe("gateway_x 1\n");
    }
  });

  test("refuses a missing and a wrong token, on a loopback address too", async () => {
    for (const isLoopback of [true, false]) {
      const options = { token: TOKEN, isLoopback };
      expect(await refusalOf(get(undefined, options))).toBe("missing_api_key");
      for (const wrong of [
        TOKEN,
        `Basic ${TOKEN}`,
        "Bearer",
        "Bearer x",
        `Bearer ${TOKEN}x`,
        `Bearer ${TOKEN.slice(0, -1)}`,
        `Bearer ${TOKEN} ${TOKEN}`,
        `Bearer ${"x".repeat(10_000)}`,
      ]) {
        expect(await refusalOf(get(wrong, options))).toBe("invalid_api_key");
      }
    }
  });

  test("without a token is there on a loopback address alone", async () => {
    const { response } = await get(undefined, { isLoopback: true });
    expect(response.status).toBe(200);
    expect(await refusalOf(get(undefined, { isLoopback: false }))).toBe("route_not_found");
    expect(await refusalOf(get("Bearer undefined", { isLoopback: false }))).toBe("route_not_found");
  });
});
