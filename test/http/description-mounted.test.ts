import { afterAll, beforeAll, expect, test } from "bun:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("GET /openapi.json describes the mounted routes in valid OpenAPI 3.1, without a key", async () => {
  const response = await fetch(`${gateway.baseUrl}/openapi.json`);
  expect(response.status).toBe(200);
  const document = (await response.json()) as { paths: Record<string, object> };
  expect((await new Validator().validate(structuredClone(document))).errors).toBeUndefined();
  expect(Object.keys(document.paths)).toEqual(
    expect.arrayContaining([
      "/v1/chat/completions",
      "/v1/models",
      "/v1/models/search",
      "/v1/models/compare",
      "/v1/keys",
      "/v1/keys/{id}",
      "/v1/files",
      "/v1/files/{id}",
      "/v1/files/{id}/content",
      "/v1/credits",
      "/v1/credits/transactions",
      "/healthz",
      "/readyz",
      "/metrics",
    ]),
  );
});

test("the description shows an upload as a form, and what may go wrong with it", async () => {
  const response = await fetch(`${gateway.baseUrl}/openapi.json`);
  const { paths, components } = (await response.json()) as {
    paths: Record<string, Record<string, { requestBody: unknown; responses: object }>>;
    components: { schemas: Record<string, object> };
  };
  const { requestBody, responses } = paths["/v1/files"]!.post!;
  expect(requestBody).toMatchObject({
    required: true,
    content: {
      "multipart/form-data": { schema: { $ref: "#/components/schemas/FilesCreateForm" } },
    },
  });
  expect(components.schemas.FilesCreateForm).toMatchObject({ required: ["file", "purpose"] });
  expect(Object.keys(responses).join(" ")).toBe("200 400 401 403 413 415 500 503");
});

test("GET /docs leads to the documentation, which needs no key", async () => {
  const response = await fetch(`${gateway.baseUrl}/docs`);
  expect(response.url).toBe(`${gateway.baseUrl}/docs/`);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toContain("text/html");
});

test("the API reference has its files next to it, below a proxy's path too", async () => {
  const path = "/docs/api-reference";
  const response = await fetch(`${gateway.baseUrl}${path}`);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toContain("text/html");
  const page = await response.text();
  for (const [, file] of page.matchAll(/(?:src|data-url)="([^"]+)"/g)) {
    expect((await fetch(new URL(file!, `${gateway.baseUrl}${path}`))).status).toBe(200);
  }
  const slash = await fetch(`${gateway.baseUrl}${path}/`, { redirect: "manual" });
  expect(slash.status).toBe(308);
  const location = slash.headers.get("location")!;
  expect(new URL(location, `http://host/models${path}/`).pathname).toBe(`/models${path}`);
});

test.each(["/docs/..%2fpackage.json", "/docs/%2e%2e/package.json", "/docs//package.json"])(
  "GET %s leads to no file outside the documentation",
  async (path) => {
    const response = await sendRaw(gateway, { method: "GET", path });
    expect(response.status).toBe(404);
  },
);

test("the description does not narrow down of which type a file's content is", async () => {
  const response = await fetch(`${gateway.baseUrl}/openapi.json`);
  const { paths } = (await response.json()) as {
    paths: Record<string, Record<string, { responses: Record<string, { content: object }> }>>;
  };
  const { responses } = paths["/v1/files/{id}/content"]!.get!;
  expect([200, 206].map((status) => Object.keys(responses[status]!.content))).toEqual([
    ["*/*"],
    ["*/*"],
  ]);
});

test.each([
  "/healthz",
  "/readyz",
  "/metrics",
  "/openapi.json",
  "/docs/",
  "/docs/index.md",
  "/docs/api-reference",
  "/docs/scalar.js",
  "/llms.txt",
])("GET %s carries its request's id like every response", async (path) => {
  const response = await fetch(`${gateway.baseUrl}${path}`);
  expect(response.status).toBe(200);
  const id = response.headers.get("x-gateway-request-id");
  expect(id).toMatch(/^req_[0-9a-f]{32}$/);
  expect(response.headers.get("x-request-id")).toBe(id);
});
