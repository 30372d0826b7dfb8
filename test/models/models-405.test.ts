import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { sendRaw } from "../support/raw-http.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

test.each([
  ["POST", "/v1/models", "GET, HEAD"],
  ["DELETE", "/v1/models", "GET, HEAD"],
  ["PATCH", "/v1/models/acme/quill-4o", "GET, HEAD, DELETE"],
  ["DELETE", "/v1/models/search", "GET, HEAD"],
  ["POST", "/v1/models/compare", "GET, HEAD"],
])("%s %s is refused and told what is allowed", async (method, path, allowed) => {
  const response = await gateway.request(method, path);
  await expectError(response, 405, "method_not_allowed");
  expect(response.headers.get("allow")).toBe(allowed);
});

test.each(["/v1/models", "/v1/models/acme/quill-4o", "/v1/keys/key_1"])(
  "TRACE %s is refused like any method, and echoes nothing",
  async (path) => {
    const response = await sendRaw(gateway, { method: "TRACE", path });
    await expectError(response, 405, "method_not_allowed");
  },
);
