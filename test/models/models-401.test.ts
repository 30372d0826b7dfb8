import { afterAll, beforeAll, expect, test } from "bun:test";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { expectError } from "../support/error-envelope.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

const ENDPOINTS = [
  ["GET", "/v1/models"],
  ["GET", "/v1/models/acme/quill-4o"],
  ["GET", "/v1/models/no-such-model"],
  ["GET", "/v1/models/search?q=quill"],
  ["GET", "/v1/models/compare?models=acme/quill-4o"],
  ["DELETE", "/v1/models/acme/quill-4o"],
] as const;

test.each(ENDPOINTS)("%s %s tells nothing without a key", async (method, path) => {
  const response = await fetch(`${gateway.baseUrl}${path}`, { method });
  await expectError(response, 401, "missing_api_key");
});

test.each(ENDPOINTS)("%s %s tells nothing to a key that nobody has", async (method, path) => {
  const { key } = generateApiKey("secret");
  const response = await gateway.request(method, path, undefined, { key });
  await expectError(response, 401, "invalid_api_key");
});

test("the key is asked for before the query is looked at", async () => {
  const response = await fetch(`${gateway.baseUrl}/v1/models/search?limit=0&limit=0`);
  expect(response.status).toBe(401);
});
