import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

async function compared(names: string) {
  const query = new URLSearchParams({ models: names });
  const { models } = await gateway.get<{ models: { id: string }[] }>(`/v1/models/compare?${query}`);
  return models;
}

const ids = async (names: string) => (await compared(names)).map(({ id }) => id);

test("answers with the compared fields and no others", async () => {
  expect((await compared("acme/quill-4o-mini,acme/embedder")) as unknown[]).toEqual([
    {
      id: "acme/quill-4o-mini",
      provider: "acme",
      context_length: 128_000,
      input_cost_per_token: 1.5e-7,
      output_cost_per_token: 6e-7,
      capabilities: ["streaming", "function_calling", "vision", "json_mode"],
    },
    {
      id: "acme/embedder",
      provider: "acme",
      context_length: 8192,
      input_cost_per_token: 2e-8,
      output_cost_per_token: 0,
      capabilities: [],
    },
  ]);
});

test("keeps the order that was asked for", async () => {
  expect(await ids("zenith/search,acme/quill-4o,acme/embedder")).toEqual([
    "zenith/search",
    "acme/quill-4o",
    "acme/embedder",
  ]);
});

test("shows a model once, however often and under whatever name it is asked for", async () => {
  expect(await ids("zenith/search,acme/embedder,zenith/search, embedder")).toEqual([
    "zenith/search",
    "acme/embedder",
  ]);
});

test("compares one model, a model that is not available, and as many as 20", async () => {
  expect(await ids("acme/quill-4o")).toEqual(["acme/quill-4o"]);
  expect(await ids("acme/quill-2,acme/quill-4o")).toEqual(["acme/quill-2", "acme/quill-4o"]);
  expect(await ids(Array(20).fill("acme/quill-4o").join(","))).toEqual(["acme/quill-4o"]);
});
