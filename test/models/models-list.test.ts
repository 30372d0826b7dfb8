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

interface Page {
  readonly data: readonly Model[];
  readonly links: { readonly next: string | null };
  readonly total_count: number;
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
    canonical_slug: "acme/quill-4o-mini",
    hugging_face_id: null,
    architecture: {
      modality: "text+image->text",
      input_modalities: ["text", "image"],
      output_modalities: ["text"],
      tokenizer: "Other",
      instruct_type: null,
    },
    top_provider: {
      context_length: 128_000,
      max_completion_tokens: 16_384,
      is_moderated: false,
    },
    per_request_limits: null,
    supported_parameters: expect.arrayContaining(["max_tokens", "tools", "response_format"]),
    default_parameters: null,
    supported_voices: null,
    links: { details: "/v1/models/acme/quill-4o-mini" },
  });
});

test("counts what it lists", async () => {
  for (const query of ["", "?active=false", "?provider=zenith&category=chat", "?capability=none"]) {
    const { data } = await gateway.get<{ data: object }>(`/v1/models/count${query}`);
    expect(data).toEqual({ count: (await listed(query)).length });
  }
});

test("lists pages whose links lead through all models, each once", async () => {
  const all = await listed("?category=chat");
  const ids: string[] = [];
  let path: string | null = "/v1/models?category=chat&limit=3";
  let pages = 0;
  while (path !== null) {
    const page: Page = await gateway.get<Page>(path);
    expect(page.total_count).toBe(all.length);
    ids.push(...page.data.map(({ id }) => id));
    path = page.links.next;
    pages++;
  }
  expect(ids).toEqual(all);
  expect(pages).toBe(Math.ceil(all.length / 3));
  const beyond = await gateway.get<Page>("/v1/models?offset=1000");
  expect(beyond).toMatchObject({ data: [], links: { next: null }, total_count: 8 });
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
