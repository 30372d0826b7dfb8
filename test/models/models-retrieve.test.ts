import { afterAll, beforeAll, expect, test } from "bun:test";
import { sendRaw } from "../support/raw-http.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

const retrieved = async (path: string) =>
  (await gateway.get<{ id: string }>(`/v1/models/${path}`)).id;

test("answers with the detail shape: the model of the list, its output limit and its abilities", async () => {
  const { data } = await gateway.get<{ data: object[] }>("/v1/models");
  expect(await gateway.get<object>("/v1/models/acme/quill-4o-mini")).toEqual({
    ...data[0],
    endpoints: [
      {
        provider: "acme",
        model: "quill-4o-mini",
        context_length: 128_000,
        max_output_tokens: 16_384,
        pricing: (data[0] as { pricing: object }).pricing,
        capabilities: ["streaming", "function_calling", "vision", "json_mode"],
      },
    ],
    max_output_tokens: 16_384,
    supports_streaming: true,
    supports_function_calling: true,
    supports_vision: true,
    supports_json_mode: true,
  });
  expect(await gateway.get<object>("/v1/models/zenith/programmer")).toMatchObject({
    supports_streaming: true,
    supports_function_calling: false,
    supports_vision: false,
    supports_json_mode: false,
  });
});

test("takes an id raw and percent-encoded, in either case of the digits", async () => {
  for (const path of ["acme/quill-4o", "acme%2Fquill-4o", "acme%2fquill%2d4o"]) {
    expect(await retrieved(path)).toBe("acme/quill-4o");
  }
});

test.each(["gw", "x", "gw:80", "127.0.0.1:3000", "gateway.example.com"])(
  "takes an id under whatever name the gateway is known: %s",
  async (host) => {
    for (const name of ["acme/quill-4o", "acme%2Fquill-4o"]) {
      const response = await sendRaw(gateway, {
        method: "GET",
        path: `/v1/models/${name}`,
        host,
        headers: [["authorization", `Bearer ${gateway.secretKey}`]],
      });
      expect(response.status).toBe(200);
      expect(await response.json()).toMatchObject({ id: "acme/quill-4o" });
    }
  },
);

test("takes an id of more than one slash, raw, encoded and mixed", async () => {
  for (const path of [
    "zenith/author/nested-x",
    "zenith%2Fauthor%2Fnested-x",
    "zenith/author%2Fnested-x",
  ]) {
    expect(await retrieved(path)).toBe("zenith/author/nested-x");
  }
});

test("takes a slug that one active model has", async () => {
  expect(await retrieved("programmer")).toBe("zenith/programmer");
  expect(await retrieved("author/nested-x")).toBe("zenith/author/nested-x");
});

test("finds a model whose slug is the name of an endpoint", async () => {
  expect(await retrieved("zenith/search")).toBe("zenith/search");
  expect(await retrieved("zenith%2Fsearch")).toBe("zenith/search");
});

test("shows a model that is not available, and says so", async () => {
  expect(await gateway.get<object>("/v1/models/acme/quill-2")).toMatchObject({
    id: "acme/quill-2",
    is_active: false,
  });
});
