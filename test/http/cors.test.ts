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

const preflight = (headers: Record<string, string>) =>
  fetch(`${gateway.baseUrl}/v1/chat/completions`, {
    method: "OPTIONS",
    headers: { origin: ORIGIN, "access-control-request-method": "POST", ...headers },
  });

describe("cross-origin requests", () => {
  test("let the page of an allowed origin read the answer", async () => {
    const response = await ask("GET", "/v1/models", ORIGIN);
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
    expect(response.headers.get("vary")).toBe("origin");
  });

  test("bring their bodies", async () => {
    const response = await fetch(`${gateway.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        origin: ORIGIN,
        authorization: `Bearer ${gateway.secretKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "sandbox/chat",
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
    expect(((await response.json()) as { object: string }).object).toBe("chat.completion");
  });

  test("let it read errors too", async () => {
    const response = await ask("GET", "/v1/keys/none", ORIGIN);
    expect(response.status).toBe(404);
    expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
  });

  test.each([
    ["GET", "/v1/nothing", 404],
    ["OPTIONS", "/v1/nothing", 404],
    ["PUT", "/v1/models", 405],
  ])(
    "let it read that there is no such endpoint or method: %s %s",
    async (method, path, status) => {
      const response = await ask(method, path, ORIGIN);
      expect(response.status).toBe(status);
      expect(response.headers.get("access-control-allow-origin")).toBe(ORIGIN);
      expect(response.headers.get("vary")).toBe("origin");
    },
  );

  test("of another origin are told nothing", async () => {
    const response = await ask("GET", "/v1/models", "https://evil.example.com");
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("are announced by a preflight that needs no key", async () => {
    const response = await preflight({});
    expect(response.status).toBe(204);
    expect(response.headers.get("access-control-allow-methods")).toBe("POST");
    expect(response.headers.get("access-control-allow-headers")).toContain("authorization");
    expect(response.headers.get("x-gateway-request-id")).toMatch(/^req_[0-9a-f]{32}$/);
    expect(response.headers.get("x-request-id")).toBe(response.headers.get("x-gateway-request-id"));
  });

  test("may have the headers that an SDK adds, whatever their names", async () => {
    const names = "authorization,content-type,x-stainless-lang,x-stainless-retry-count";
    const response = await preflight({ "access-control-request-headers": names });
    expect(response.headers.get("access-control-allow-headers")).toBe(names);
    expect(response.headers.get("vary")).toBe("origin, access-control-request-headers");
    const odd = await preflight({ "access-control-request-headers": 'authorization, "<x>"' });
    expect(odd.headers.get("access-control-allow-headers")).not.toContain("<x>");
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
