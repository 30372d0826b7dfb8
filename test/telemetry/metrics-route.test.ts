import { describe, expect, test } from "bun:test";
import { metricsRoutes } from "../../src/http/system/monitoring.ts";
import { callPublic, refusalOf } from "../http/public-context.ts";

const TOKEN = "metrics-token-1";
const telemetry = {
  metrics: async () => "gateway_x 1\n",
  metricsContentType: "text/plain; version=0.0.4; charset=utf-8",
};

function get(
  authorization: string | undefined,
  options: { token?: string; isLoopback: boolean },
  further: Record<string, string> = {},
) {
  const headers: Record<string, string> = { host: "127.0.0.1:3000", ...further };
  if (authorization !== undefined) headers.authorization = authorization;
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

  test.each(["localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:3000", "[::1]:3000"])(
    "without a token answers the loopback host %s",
    async (host) => {
      const { response } = await get(undefined, { isLoopback: true }, { host });
      expect(response.status).toBe(200);
    },
  );

  test.each<Record<string, string>>([
    { host: "gateway.example.com" },
    { host: "127.0.0.1.example.com" },
    { host: "localhost.example.com:3000" },
    { host: "10.0.0.1:3000" },
    { host: "" },
    { "x-forwarded-for": "203.0.113.7" },
    { "x-forwarded-host": "gateway.example.com" },
    { forwarded: "for=203.0.113.7" },
    { via: "1.1 proxy" },
    { "x-real-ip": "203.0.113.7" },
  ])("without a token is not served through a proxy of this machine: %o", async (headers) => {
    expect(await refusalOf(get(undefined, { isLoopback: true }, headers))).toBe("route_not_found");
    const { response } = await get(`Bearer ${TOKEN}`, { token: TOKEN, isLoopback: true }, headers);
    expect(response.status).toBe(200);
  });
});
