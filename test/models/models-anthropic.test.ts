import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

const HEADERS = { "anthropic-version": "2023-06-01" };
const ALL = [
  "acme/quill-4o-mini",
  "acme/quill-4o",
  "acme/quill-3.5",
  "acme/embedder",
  "zenith/programmer",
  "zenith/quill-4o",
  "zenith/search",
  "zenith/author/nested-x",
];

interface Page {
  readonly data: readonly { readonly id: string }[];
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
}

async function page(query: string): Promise<Omit<Page, "data"> & { ids: string[] }> {
  const response = await asked(`/v1/models?${query}`);
  expect(response.status).toBe(200);
  const { data, ...rest } = (await response.json()) as Page;
  return { ...rest, ids: data.map(({ id }) => id) };
}

const asked = (path: string) => gateway.request("GET", path, undefined, { headers: HEADERS });

test("a client of Anthropic's API gets its list, and its form of a model", async () => {
  expect(await page("")).toEqual({
    ids: ALL,
    has_more: false,
    first_id: ALL[0]!,
    last_id: ALL.at(-1)!,
  });
  const mini = {
    type: "model",
    id: "acme/quill-4o-mini",
    display_name: "Quill 4o mini",
    created_at: "2025-06-15T15:06:40.000Z",
    lifecycle: "active",
    max_input_tokens: 128_000,
    max_tokens: 16_384,
  };
  for (const path of ["acme/quill-4o-mini", "acme%2Fquill-4o-mini", "quill-4o-mini"]) {
    expect((await (await asked(`/v1/models/${path}`)).json()) as object).toEqual(mini);
  }
  const withdrawn = await (await asked("/v1/models/acme/quill-2")).json();
  expect(withdrawn as object).toMatchObject({ lifecycle: "retired" });
});

test("takes the key as x-api-key, and answers and refuses as Anthropic does", async () => {
  const keyed = (key: string, path: string) =>
    fetch(`${gateway.baseUrl}${path}`, { headers: { ...HEADERS, "x-api-key": key } });
  const listed = await keyed(gateway.secretKey, "/v1/models");
  expect(listed.status).toBe(200);
  expect(listed.headers.get("request-id")).toBe(listed.headers.get("x-request-id"));
  for (const [key, path, status, type] of [
    ["gateway_sk_none", "/v1/models", 401, "authentication_error"],
    [gateway.secretKey, "/v1/models/acme/none", 404, "not_found_error"],
    [gateway.secretKey, "/v1/models?limit=0", 400, "invalid_request_error"],
  ] as const) {
    const refused = await keyed(key, path);
    expect(refused.status).toBe(status);
    expect((await refused.json()) as object).toMatchObject({
      type: "error",
      error: { type, message: expect.any(String) },
      request_id: refused.headers.get("request-id"),
    });
  }
});

test("pages forwards behind after_id and backwards before before_id", async () => {
  const bounds = (ids: string[]) => ({ ids, first_id: ids[0]!, last_id: ids.at(-1)! });
  expect(await page("limit=3")).toEqual({ ...bounds(ALL.slice(0, 3)), has_more: true });
  expect(await page(`limit=3&after_id=${ALL[2]}`)).toEqual({
    ...bounds(ALL.slice(3, 6)),
    has_more: true,
  });
  expect(await page(`limit=3&after_id=${ALL[4]}`)).toEqual({
    ...bounds(ALL.slice(5)),
    has_more: false,
  });
  expect(await page(`limit=3&before_id=${ALL[5]}`)).toEqual({
    ...bounds(ALL.slice(2, 5)),
    has_more: true,
  });
  expect(await page(`limit=3&before_id=${ALL[3]}`)).toEqual({
    ...bounds(ALL.slice(0, 3)),
    has_more: false,
  });
  expect(await page(`after_id=${ALL.at(-1)}`)).toEqual({
    ids: [],
    has_more: false,
    first_id: null,
    last_id: null,
  });
});

test("refuses cursors that are no models, both at once, and those of the other form", async () => {
  for (const [query, param] of [
    ["after_id=acme/none", "after_id"],
    ["before_id=acme/quill-2", "before_id"],
    [`after_id=${ALL[0]}&before_id=${ALL[3]}`, "before_id"],
    ["offset=1", "offset"],
    ["limit=1001", "limit"],
  ] as const) {
    const response = await asked(`/v1/models?${query}`);
    expect({ query, status: response.status }).toEqual({ query, status: 400 });
    expect(await response.text()).toContain(param);
  }
  for (const param of ["after_id", "before_id"]) {
    const response = await gateway.request("GET", `/v1/models?${param}=${ALL[0]}`);
    expect((await expectError(response, 400, "invalid_query")).error.param).toBe(param);
  }
});
