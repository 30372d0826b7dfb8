import { afterAll, beforeAll, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

interface Model {
  readonly id: string;
}

async function listed(query = ""): Promise<string[]> {
  const { object, data } = await gateway.get<{ object: string; data: Model[] }>(
    `/v1/models${query}`,
  );
  expect(object).toBe("list");
  return data.map(({ id }) => id);
}

test("lists every active model in the catalogue's order, with every field of a model", async () => {
  expect(await listed()).toEqual([
    "acme/quill-4o-mini",
    "acme/quill-4o",
    "acme/quill-3.5",
    "acme/embedder",
    "zenith/programmer",
    "zenith/quill-4o",
    "zenith/search",
    "zenith/author/nested-x",
  ]);
  const { data } = await gateway.get<{ data: Model[] }>("/v1/models");
  expect(data[0] as unknown).toEqual({
    id: "acme/quill-4o-mini",
    object: "model",
    name: "Quill 4o mini",
    description: "Small and quick.",
    provider: "acme",
    owned_by: "acme",
    context_length: 128_000,
    input_cost_per_token: 1.5e-7,
    output_cost_per_token: 6e-7,
    pricing: {
      prompt: "0.00000015",
      completion: "0.0000006",
      input_cache_read: "0.000000075",
      input_cache_write: "0.00000015",
    },
    is_active: true,
    capabilities: ["streaming", "function_calling", "vision", "json_mode"],
    category: "chat",
    created: 1_750_000_000,
  });
});

test("lists what is not available, and only that, with active false", async () => {
  expect(await listed("?active=false")).toEqual(["acme/quill-2"]);
  expect(await listed("?active=true")).toEqual(await listed());
});

test("restricts by provider, category and capability, each exactly and all together", async () => {
  expect(await listed("?provider=zenith")).toEqual([
    "zenith/programmer",
    "zenith/quill-4o",
    "zenith/search",
    "zenith/author/nested-x",
  ]);
  expect(await listed("?category=embedding")).toEqual(["acme/embedder"]);
  expect(await listed("?capability=function_calling")).toEqual([
    "acme/quill-4o-mini",
    "acme/quill-4o",
  ]);
  expect(await listed("?provider=acme&category=chat&capability=vision")).toEqual([
    "acme/quill-4o-mini",
  ]);
  expect(await listed("?provider=acme&category=code")).toEqual([]);
  for (const part of ["provider=acm", "provider=%25", "category=constructor", "capability=str"]) {
    expect(await listed(`?${part}`)).toEqual([]);
  }
});

test("shows every model to a key that may use only one, and to a management key", async () => {
  const restricted = await addSecretKey(gateway, { allowedModels: ["acme/quill-4o"] });
  for (const key of [restricted, gateway.managementKey]) {
    const response = await gateway.request("GET", "/v1/models", undefined, { key });
    expect(response.status).toBe(200);
    expect(((await response.json()) as { data: Model[] }).data).toHaveLength(8);
  }
});

test("carries the request's id in its headers", async () => {
  const { headers } = await gateway.request("GET", "/v1/models");
  expect(headers.get("x-gateway-request-id")).toMatch(/^req_/);
  expect(headers.get("x-request-id")).toBe(headers.get("x-gateway-request-id"));
});
