import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"];
const ORIGIN = "https://app.example.com";

let gateway: TestGateway;
let paths: Map<string, string[]>;
beforeAll(async () => {
  gateway = await startTestGateway();
  paths = await describedPaths();
});
afterAll(() => gateway.stop());

/** Each described path with a name for each of its parameters, and the methods it takes. */
async function describedPaths(): Promise<Map<string, string[]>> {
  const response = await fetch(`${gateway.baseUrl}/openapi.json`);
  const document = (await response.json()) as { paths: Record<string, object> };
  return new Map(
    Object.entries(document.paths).map(([path, operations]) => {
      const methods = Object.keys(operations).map((method) => method.toUpperCase());
      return [
        path.replaceAll(/\{\w+\}/g, "x"),
        methods.includes("GET") ? [...methods, "HEAD"] : methods,
      ];
    }),
  );
}

function allowed(response: Response): string[] {
  return (response.headers.get("allow") ?? "").split(", ").toSorted();
}

test("every path refuses each method that it does not take, and tells those that it takes", async () => {
  for (const [path, methods] of paths) {
    for (const method of METHODS.filter((each) => !methods.includes(each))) {
      for (const form of [path, ...(path === "/" ? [] : [`${path}/`]), `${path}?limit=x`]) {
        const response = await sendRaw(gateway, { method, path: form });
        const told = { method, form, status: response.status, allowed: allowed(response) };
        expect(told).toEqual({ method, form, status: 405, allowed: methods.toSorted() });
        if (method === "HEAD") continue;
        if (path.startsWith("/v1/messages")) await expectAnthropicError(response);
        else await expectError(response, 405, "method_not_allowed");
      }
    }
  }
});

async function expectAnthropicError(response: Response): Promise<void> {
  expect(await response.json()).toMatchObject({
    type: "error",
    error: { type: "invalid_request_error", code: "method_not_allowed" },
    request_id: response.headers.get("request-id"),
  });
}

test("a refused method is told with those that the path takes", async () => {
  const response = await sendRaw(gateway, { method: "GET", path: "/v1/chat/completions" });
  const { error } = await expectError(response, 405, "method_not_allowed");
  expect(error.message).toBe("/v1/chat/completions does not accept GET. It accepts POST.");
});

test("a WebSocket is refused with 426, upon which Codex sends plain requests", async () => {
  const response = await sendRaw(gateway, {
    method: "GET",
    path: "/v1/responses",
    headers: [
      ["upgrade", "websocket"],
      ["sec-websocket-version", "13"],
      ["sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="],
    ],
  });
  expect(response.headers.get("upgrade")).toBe("HTTP/1.1");
  await expectError(response, 426, "websocket_unsupported");
});

test("below Anthropic's path every error has Anthropic's envelope", async () => {
  const key = { "x-api-key": gateway.secretKey };
  const json = { ...key, "content-type": "application/json" };
  const cases = [
    ["POST", "/v1/messages/batches", 404, "not_found_error", key, undefined],
    ["GET", "/v1/messages/batches/x/results", 404, "not_found_error", key, undefined],
    ["DELETE", "/v1/messages/count_tokens", 405, "invalid_request_error", key, undefined],
    ["POST", "/v1/messages", 401, "authentication_error", {}, "{}"],
    [
      "POST",
      "/v1/messages",
      415,
      "invalid_request_error",
      { ...key, "content-type": "text/x" },
      "{}",
    ],
    ["POST", "/v1/messages/count_tokens", 400, "invalid_request_error", json, "{"],
    ["POST", "/v1/messages?beta=maybe", 400, "invalid_request_error", json, MESSAGE],
  ] as const;
  for (const [method, path, status, type, headers, body] of cases) {
    const response = await sendRaw(gateway, {
      ...{ method, path, headers: Object.entries(headers) },
      ...(body && { body }),
    });
    expect([path, response.status]).toEqual([path, status]);
    expect(response.headers.get("request-id")).toStartWith("req_");
    expect(await response.json()).toMatchObject({
      type: "error",
      error: { type },
      request_id: response.headers.get("request-id"),
    });
  }
});

const MESSAGE = JSON.stringify({
  model: "sandbox/chat",
  max_tokens: 5,
  messages: [{ role: "user", content: "Hello" }],
});

test.each([
  ["POST", "/chat/completions", "/v1/chat/completions", true],
  ["POST", "/v1/v1/chat/completions", "/v1/chat/completions", true],
  ["POST", "/api/v1/chat/completions", "/v1/chat/completions", true],
  ["POST", "/v1/completions", "/v1/chat/completions", false],
  ["POST", "/v1/chat/completion", "/v1/chat/completions", false],
  ["POST", "/v1/chat", "/v1/chat/completions", false],
  ["GET", "/models", "/v1/models", true],
  ["GET", "/v1/model", "/v1/models", false],
  ["GET", "/v1", "/v1/models", false],
  ["GET", "/health", "/healthz", false],
  ["GET", "/doc", "/docs", false],
])("%s %s, which is not there, is told as %s", async (method, path, meant, isBaseUrl) => {
  const response = await sendRaw(gateway, { method, path });
  const { error } = await expectError(response, 404, "route_not_found");
  expect(error.message).toContain(`${method} ${path}`);
  expect(error.message).toContain(`Did you mean ${meant}?`);
  expect(error.message.includes("The base URL of clients ends in /v1")).toBe(isBaseUrl);
});

test("a path that is like none is shown cut, and the description is named", async () => {
  for (const path of [
    "/wp-login.php",
    `/${"x".repeat(5_000)}`,
    "/a/b/c/d/e/f/g/h/i/j",
    "/%22%0a",
  ]) {
    const response = await sendRaw(gateway, { method: "GET", path });
    const { error } = await expectError(response, 404, "route_not_found");
    expect(error.message).toEndWith("All endpoints are described at /docs.");
    expect(error.message.length).toBeLessThan(250);
    expect(error.message).not.toMatch(/\n/);
  }
});

test("what is beside the paths is no endpoint for any method", async () => {
  for (const path of ["/v1", "/v1/keys/x/y", "/v1/files//content", "/openapixjson"]) {
    for (const method of METHODS) {
      expect([method, path, (await sendRaw(gateway, { method, path })).status]).toEqual([
        method,
        path,
        404,
      ]);
    }
  }
});

describe("where browsers may call", () => {
  let open: TestGateway;
  beforeAll(async () => {
    open = await startTestGateway({ environment: { GATEWAY_CORS_ORIGINS: ORIGIN } });
  });
  afterAll(() => open.stop());

  test("every path answers a preflight with its methods, once", async () => {
    for (const [path, methods] of paths) {
      const response = await fetch(`${open.baseUrl}${path}`, {
        method: "OPTIONS",
        headers: { origin: ORIGIN, "access-control-request-method": methods[0]! },
      });
      const told = response.headers.get("access-control-allow-methods")?.split(", ").toSorted();
      expect([path, response.status, told]).toEqual([path, 204, methods.toSorted()]);
      expect(response.headers.get("vary")).toBe("origin, access-control-request-headers");
    }
  });
});
