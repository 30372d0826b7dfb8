import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

const unknown = async (method: string, path: string) =>
  (await expectError(await gateway.request(method, path), 404, "model_not_found")).error;

test("an unknown model is named in the error, cut where it is long", async () => {
  expect((await unknown("GET", "/v1/models/acme/quill-9")).message).toContain('"acme/quill-9"');
  const long = (await unknown("GET", `/v1/models/acme/${"x".repeat(10_000)}`)).message;
  expect(long.length).toBeLessThan(300);
});

test("names are neither cut, completed nor decoded twice to fit a model", async () => {
  for (const name of [
    "ACME/quill-4o",
    "acme/quill-4o/",
    "acme%252Fquill-4o",
    "acme/quill",
    "acme",
    "%20acme/quill-4o",
    "acme//quill-4o",
    "zenith/constructor",
    "__proto__",
  ]) {
    await unknown("GET", `/v1/models/${name}`);
  }
});

test("a slug that several models have, or only one that is not available, names none", async () => {
  await unknown("GET", "/v1/models/quill-4o");
  await unknown("GET", "/v1/models/quill-2");
});

test("what is encoded wrongly, NUL included, names no model", async () => {
  for (const name of ["%", "%zz", "a%2", "%ff", "%ed%a0%80", "a%00b", "acme%2Fquill-4o%0d%0a"]) {
    await unknown("GET", `/v1/models/${name}`);
    await unknown("DELETE", `/v1/models/${name}`);
  }
});

test("a comparison with one unknown model is refused as a whole", async () => {
  const error = await unknown("GET", "/v1/models/compare?models=acme/quill-4o,acme/quill-9");
  expect(error).toMatchObject({ param: "models" });
  expect(error.message).toContain('"acme/quill-9"');
});

test("a model that is not there cannot be deleted", async () => {
  await unknown("DELETE", "/v1/models/ft:acme/quill-4o:org::abc");
  await unknown("DELETE", "/v1/models/acme%2Fquill-9");
});
