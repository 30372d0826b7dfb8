import { afterAll, beforeAll, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

const READS = [
  "/v1/models",
  "/v1/models/acme/quill-4o",
  "/v1/models/no-such-model",
  "/v1/models/search?q=quill",
  "/v1/models/compare?models=acme/quill-4o",
];

test("a secret key reads models with the scope models:read, and with no other", async () => {
  const reader = await addSecretKey(gateway, { scopes: ["models:read"] });
  const other = await addSecretKey(gateway, { scopes: ["models:write", "chat:completions"] });
  for (const path of READS) {
    const allowed = await gateway.request("GET", path, undefined, { key: reader });
    expect(allowed.status).toBe(path.endsWith("no-such-model") ? 404 : 200);
    const refused = await gateway.request("GET", path, undefined, { key: other });
    await expectError(refused, 403, "missing_scope");
  }
});

test("a secret key needs the scope models:write to delete a model, there or not", async () => {
  const reader = await addSecretKey(gateway, { scopes: ["models:read"] });
  for (const name of ["acme/quill-4o", "no-such-model"]) {
    const response = await gateway.request("DELETE", `/v1/models/${name}`, undefined, {
      key: reader,
    });
    await expectError(response, 403, "missing_scope");
  }
});

test("nobody can delete a model of the catalogue, under whatever name", async () => {
  const names = ["acme/quill-4o", "acme%2Fquill-4o", "programmer", "acme/quill-2"];
  for (const key of [gateway.secretKey, gateway.managementKey]) {
    for (const name of names) {
      const response = await gateway.request("DELETE", `/v1/models/${name}`, undefined, { key });
      await expectError(response, 403, "model_not_allowed");
    }
  }
  expect(await gateway.found("quill-4o")).toContain("acme/quill-4o");
});
