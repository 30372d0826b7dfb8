import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const ORIGIN = "https://app.example.com";
let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_CORS_ORIGINS: ORIGIN } });
});
afterAll(() => gateway.stop());

const ask = (method: string, path: string, origin: string) =>
  fetch(`${gateway.baseUrl}${path}`, {
    method,
    headers: { origin, authorization: `Bearer ${gateway.secretKey}` },
  });

describe("cross-origin requests", () => {
  test("let the page of an allowed origin read the answer", async () => {
    const response = await ask("GET", "/v1/models", ORIGIN);
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
    expect(response.headers.get("vary")).toBe("origin");
  });

  test("let it read errors too", async () => {
    const response = await ask("GET", "/v1/keys/none", ORIGIN);
    expect(response.status).toBe(404);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
  });

  test("of another origin are told nothing", async () => {
    const response = await ask("GET", "/v1/models", "https://evil.example.com");
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("are announced by a preflight that needs no key", async () => {
    const response = await fetch(`${gateway.baseUrl}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: { origin: ORIGIN, "access-control-request-method": "POST" },
    });
    expect(response.status).toBe(204);
    expect(response.headers.get("access-control-allow-methods")).toBe("POST");
    expect(response.headers.get("access-control-allow-headers")).toContain("authorization");
  });
});

test("HEAD answers as GET does, without a body", async () => {
  const response = await ask("HEAD", "/healthz", ORIGIN);
  expect(response.status).toBe(200);
  expect(await response.text()).toBe("");
});

test("where no origin is allowed a preflight is a method that the endpoint does not take", async () => {
  const closed = await startTestGateway();
  try {
    const response = await fetch(`${closed.baseUrl}/v1/models`, { method: "OPTIONS" });
    expect(response.status).toBe(405);
  } finally {
    await closed.stop();
  }
});
