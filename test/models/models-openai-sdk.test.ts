import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

let upstream: Upstream;
let gateway: TestGateway;
let client: OpenAI;
beforeAll(async () => {
  upstream = await startUpstream();
  gateway = await startTestGateway({
    environment: { OPENAI_BASE_URL: upstream.baseUrl, OPENAI_API_KEY: "test" },
  });
  client = new OpenAI({
    baseURL: `${gateway.baseUrl}/v1`,
    apiKey: gateway.secretKey,
    maxRetries: 0,
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

test("the SDK lists the built-in models of a provider whose key is set", async () => {
  const models: OpenAI.Model[] = [];
  for await (const model of client.models.list()) models.push(model);
  const mini = models.find(({ id }) => id === "openai/gpt-4o-mini");
  expect(mini).toMatchObject({ object: "model", owned_by: "openai", created: expect.any(Number) });
  expect(models.every(({ id, object }) => id.includes("/") && object === "model")).toBe(true);
});

test("the SDK retrieves a model by its id, which it encodes, and by its slug", async () => {
  for (const name of ["openai/gpt-4o-mini", "gpt-4o-mini"]) {
    expect((await client.models.retrieve(name)) as object).toMatchObject({
      id: "openai/gpt-4o-mini",
      context_length: 128_000,
      max_output_tokens: 16_384,
      input_cost_per_token: 1.5e-7,
      output_cost_per_token: 6e-7,
      supports_vision: true,
    });
  }
});

test("the SDK reads the errors of a model that is unknown or not to be deleted", async () => {
  const unknown = client.models.retrieve("openai/gpt-none").catch((error: unknown) => error);
  expect(await unknown).toBeInstanceOf(OpenAI.NotFoundError);
  expect(await unknown).toMatchObject({ code: "model_not_found", requestID: expect.any(String) });
  const deletion = client.models.delete("openai/gpt-4o-mini").catch((error: unknown) => error);
  expect(await deletion).toBeInstanceOf(OpenAI.PermissionDeniedError);
  expect(await deletion).toMatchObject({ code: "model_not_allowed" });
});
