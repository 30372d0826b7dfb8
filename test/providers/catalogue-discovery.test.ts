import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { ProvidersModelLists } from "../../src/inference/models/model-lists.ts";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import type { ProviderConfig } from "../../src/platform/config/providers.ts";
import { askModelList } from "../../src/providers/catalogue/ask-model-list.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";
import { createModelIndex } from "../../src/providers/catalogue/model-index.ts";
import {
  type ModelLists,
  readStoredLists,
  storeLists,
} from "../../src/providers/catalogue/model-list-cache.ts";
import {
  type DiscoveredModel,
  MAX_LISTED_MODELS,
  readModelList,
} from "../../src/providers/catalogue/read-model-list.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";

const NOW = new Date("2026-11-20T12:00:00Z");
const provider = (type: string, baseUrl = "https://host.example/v1"): ProviderConfig => ({
  id: type,
  type,
  baseUrl,
});

const one = (type: string, model: Record<string, unknown>) =>
  readModelList(type, { data: [model] })?.[0];

const usableIn = (models: readonly DiscoveredModel[] = []) =>
  models.filter(({ unusable }) => unusable === undefined).map(({ name }) => name);

const build = (from: ProviderConfig, listed: readonly DiscoveredModel[] | undefined) =>
  buildCatalogue({
    providers: [from],
    models: [],
    sandbox: false,
    now: NOW,
    ...(listed !== undefined && { discovered: new Map([[from.id, listed]]) }),
  });

test("Google's list tells the limits of what chats or embeds, and is asked for with its own header", async () => {
  let asked: { url: string; key: string | null; bearer: string | null } | undefined;
  const models = [
    {
      name: "models/gemini-9-flash",
      inputTokenLimit: 1_048_576,
      outputTokenLimit: 65_536,
      supportedGenerationMethods: ["generateContent", "countTokens"],
      thinking: true,
    },
    {
      name: "models/gemini-embedding-9",
      inputTokenLimit: 2_048,
      supportedGenerationMethods: ["embedContent"],
    },
    { name: "models/veo-9", supportedGenerationMethods: ["predictLongRunning"] },
    { name: "models/nothing" },
    { supportedGenerationMethods: ["generateContent"] },
    7,
  ];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const { url, headers } = request;
      asked = { url, key: headers.get("x-goog-api-key"), bearer: headers.get("authorization") };
      return Response.json({ models, nextPageToken: "more" });
    },
  });
  const google = { ...provider("google", `http://127.0.0.1:${server.port}/v1beta`), apiKey: "k" };
  const list = await askModelList(createHttpClient({ clock: systemClock }), google);
  await server.stop(true);
  expect(asked).toEqual({ url: `${google.baseUrl}/models?pageSize=1000`, key: "k", bearer: null });
  expect(list).toEqual([
    {
      name: "gemini-9-flash",
      category: "chat",
      contextLength: 1_048_576,
      maxOutputTokens: 65_536,
      capabilities: ["reasoning"],
      created: 0,
    },
    {
      name: "gemini-embedding-9",
      category: "embedding",
      contextLength: 2_048,
      capabilities: [],
      created: 0,
    },
  ]);
});

test("Cohere's list is in the first version of its interface, and tells limits and abilities", async () => {
  let asked: { url: string; bearer: string | null } | undefined;
  const models = [
    {
      name: "command-z-01-2027",
      endpoints: ["generate", "chat"],
      context_length: 256_000,
      features: ["tools", "json_mode", "vision", "reasoning", "strict_tools"],
    },
    { name: "embed-v9.0", endpoints: ["embed"], context_length: 128_000 },
    { name: "command-old", endpoints: ["chat"], is_deprecated: true },
    { name: "rerank-v9", endpoints: ["rerank"] },
    7,
  ];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch({ url, headers }) {
      asked = { url, bearer: headers.get("authorization") };
      return Response.json({ models });
    },
  });
  const origin = `http://127.0.0.1:${server.port}`;
  const cohere = { ...provider("cohere", `${origin}/v2`), apiKey: "k" };
  const list = await askModelList(createHttpClient({ clock: systemClock }), cohere);
  await server.stop(true);
  expect(asked).toEqual({ url: `${origin}/v1/models?page_size=1000`, bearer: "Bearer k" });
  expect(list).toEqual([
    {
      name: "command-z-01-2027",
      category: "chat",
      contextLength: 256_000,
      capabilities: ["function_calling", "vision", "json_mode", "reasoning"],
      created: 0,
    },
    {
      name: "embed-v9.0",
      category: "embedding",
      contextLength: 128_000,
      capabilities: [],
      created: 0,
    },
  ]);
});

describe("prices of a provider's own list are read exactly", () => {
  test("OpenRouter's are texts in USD for a token", () => {
    const pricing = {
      prompt: "0.00000015",
      completion: "0.0000006",
      request: "0",
      image: "0",
      web_search: "0.01",
      internal_reasoning: "0.0000006",
      input_cache_read: "0.000000075",
      input_cache_write: "0.0000001875",
    };
    expect(one("openrouter", { id: "acme/new-1", context_length: 9, pricing })).toMatchObject({
      name: "acme/new-1",
      contextLength: 9,
      prices: { input: "150000000", output: "600000000", cachedInput: "75000000" },
    });
    expect(one("openrouter", { id: "acme/new-1", pricing })?.unmeteredKind).toBeUndefined();
  });

  test("Together's and DeepInfra's are numbers in USD for a million tokens", () => {
    const pricing = { hourly: 0, input: 0.88, output: 0.07, base: 0, finetune: 0 };
    expect(one("together", { id: "a/b", type: "chat", pricing })?.prices).toEqual({
      input: String(femtoFromUsd("0.88") / 1_000_000n),
      output: String(femtoFromUsd("0.07") / 1_000_000n),
    });
    const metadata = {
      context_length: 163_840,
      max_tokens: 16_384,
      pricing: { input_tokens: 0.26999999999999996, output_tokens: 0.4, cache_read_tokens: 0.13 },
    };
    expect(one("deepinfra", { id: "a/b", metadata })).toMatchObject({
      contextLength: 163_840,
      maxOutputTokens: 16_384,
      // What does not come out even is rounded up.
      prices: { input: "270000000", output: "400000000", cachedInput: "130000000" },
    });
  });

  test("what a model answers with, in OpenRouter's words, tells its category", () => {
    const category = (...outputs: string[]) =>
      one("openrouter", { id: "a/b", architecture: { output_modalities: outputs } })?.category;
    expect(category("text")).toBe("chat");
    expect(category("embeddings")).toBe("embedding");
    expect(category("speech")).toBe("audio");
    expect(category("transcription")).toBe("audio");
    expect(category("text", "image")).toBe("image");
  });

  test("a bare array is a list too", () => {
    const list = [{ id: "a/b", type: "chat", pricing: { input: 1, output: 1 } }];
    expect(readModelList("together", list)?.length).toBe(1);
  });

  test("a kind of use with a price that is not metered is named", () => {
    const pricing = { prompt: "0.1", completion: "0.2", request: "0.005" };
    expect(one("openrouter", { id: "a/b", pricing })?.unmeteredKind).toBe("request");
    const reasoning = { prompt: "0.1", completion: "0.2", internal_reasoning: "0.3" };
    expect(one("openrouter", { id: "a/b", pricing: reasoning })?.unmeteredKind).toBe(
      "internal_reasoning",
    );
  });

  test.each(["-1", "abc", "", "1e400", "2", "NaN", null, {}, [], true].map((price) => [price]))(
    "%j is no price",
    (prompt) => {
      const pricing = { prompt, completion: "0.2" };
      expect(one("openrouter", { id: "a/b", pricing })?.prices).toBeUndefined();
    },
  );

  test("a type without a known form has none, whatever its list says", () => {
    const pricing = { prompt: "0.0000001", completion: "0.0000001", input: 1, output: 1 };
    for (const type of ["openai", "openai-compatible", "nvidia", "constructor"]) {
      expect(one(type, { id: "a/b", pricing })?.prices).toBeUndefined();
    }
  });
});

describe("the context length is read as each server tells it", () => {
  test.each([
    ["vLLM", { max_model_len: 32_768 }, 32_768],
    ["llama.cpp", { meta: { n_ctx_train: 131_072 } }, 131_072],
    [
      "llama.cpp that says what it runs with",
      { meta: { n_ctx: 4096, n_ctx_train: 131_072 } },
      4096,
    ],
    ["Groq", { context_window: 131_072 }, 131_072],
    ["LM Studio", { max_context_length: 8192, loaded_context_length: 4096 }, 4096],
  ])("%s", (_server, members, expected) => {
    expect(one("openai-compatible", { id: "m", ...members })?.contextLength).toBe(expected);
  });

  test.each([0, -1, 1.5, "4096", Number.MAX_SAFE_INTEGER, null, Number.NaN])(
    "%p is none",
    (length) => {
      expect(one("openai-compatible", { id: "m", max_model_len: length })?.contextLength).toBe(
        undefined,
      );
    },
  );
});

describe("a list is hostile input", () => {
  test("names that no id could hold are unusable, and of two of a name the first stands", () => {
    const ids = ["ok", "", " x", "a b", "a\nb", "../x", "x".repeat(201), 5, null, "ok", "@cf/x"];
    expect(usableIn(readModelList("groq", { data: ids.map((id) => ({ id })) }))).toEqual([
      "ok",
      "@cf/x",
    ]);
  });

  test("no more than its bound is read", () => {
    const data = Array.from({ length: MAX_LISTED_MODELS + 10 }, (_, i) => ({ id: `m${i}` }));
    expect(readModelList("groq", { data })?.length).toBe(MAX_LISTED_MODELS);
  });

  test("whatever it holds, reading it does not throw, and what is read survives being kept", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("openrouter", "together", "deepinfra", "sambanova", "groq"),
        fc.array(
          fc.record(
            {
              id: fc.oneof(fc.string(), fc.constant("a/b")),
              pricing: fc.anything(),
              metadata: fc.anything(),
              context_length: fc.anything(),
              created: fc.anything(),
              architecture: fc.anything(),
              supported_parameters: fc.anything(),
              type: fc.anything(),
            },
            { requiredKeys: [] },
          ),
        ),
        (type, data) => {
          const models = readModelList(type, { data })!;
          expect(JSON.parse(JSON.stringify(models))).toEqual(models);
        },
      ),
    );
  });

  test.each([null, 5, "x", {}, { data: {} }, { models: [] }])("%j is no list", (answer) => {
    expect(readModelList("groq", answer)).toBeUndefined();
  });

  test("__proto__ and the like are names like any other", async () => {
    const listed = readModelList("deepinfra", {
      data: ["constructor", "a/toString"].map((id) => ({
        id,
        metadata: { context_length: 10, pricing: { input_tokens: 1, output_tokens: 1 } },
      })),
    })!;
    const { models } = await build(provider("deepinfra"), listed);
    expect(models.map(({ id }) => id).sort()).toEqual(["a/tostring", "deepinfra/constructor"]);
  });
});

describe("what a provider lists", () => {
  const llama: DiscoveredModel = {
    name: "meta-llama/Llama-3.3-70B-Instruct",
    category: "chat",
    contextLength: 131_072,
    prices: { input: "230000000", output: "400000000" },
    capabilities: ["function_calling"],
    created: 0,
  };

  test("joins the canonical model with its own price", async () => {
    const { models, reports } = await build(provider("deepinfra"), [llama]);
    expect(models[0]).toMatchObject({
      id: "meta-llama/llama-3.3-70b-instruct",
      capabilities: ["streaming", "function_calling"],
      prices: { inputTokenFemto: 230_000_000n, outputTokenFemto: 400_000_000n },
    });
    expect(reports[0]).toMatchObject({ models: 1 });
    expect(reports[0]?.reason).toBeUndefined();
  });

  test.each<[string, Partial<DiscoveredModel>, string]>([
    ["without prices", { prices: undefined }, "has a price for it"],
    ["at a price of 0", { prices: { input: "0", output: "0" } }, "has a price for it"],
    ["without a context length", { contextLength: undefined }, "context length"],
    ["with a fee that is not metered", { unmeteredKind: "request" }, "price of request"],
    ["of images", { category: "image" }, "category image"],
  ])("%s is left out, with the reason", async (_title, change, reason) => {
    const { models, reports } = await build(provider("deepinfra"), [{ ...llama, ...change }]);
    expect(models).toEqual([]);
    expect(reports[0]!.leftOut).toEqual([
      { name: llama.name, reason: expect.stringContaining(reason) },
    ]);
    expect(reports[0]!.reason).toContain(reason);
  });

  test("does not change what the price list says, unless that is borrowed", async () => {
    const listed = (name: string) => [{ ...llama, name }];
    const priceOf = async (type: string, name: string) =>
      createModelIndex(await build(provider(type), listed(name))).resolve(`${type}/${name}`)?.prices
        .inputTokenFemto;
    expect(await priceOf("groq", "llama-3.3-70b-versatile")).toBe(femtoFromUsd("0.00000059"));
    expect(await priceOf("sambanova", "Meta-Llama-3.3-70B-Instruct")).toBe(230_000_000n);
  });

  test("sizes what the price list prices, under its own name or that of a version", async () => {
    const listed = readModelList("mistral", {
      data: [
        { id: "mistral-saba-latest", max_context_length: 32_768, max_output_tokens: 4_000 },
        { id: "magistral-small-2509", max_context_length: 131_072 },
        { id: "magistral-small-of-mine", max_context_length: 131_072 },
        { id: "mistral-unheard-of", max_context_length: 131_072 },
        { id: "mistral-ocr-latest", max_context_length: 131_072 },
      ],
    })!;
    const before = await build(provider("mistral"), undefined);
    const { models, reports } = await build(provider("mistral"), listed);
    const known = new Set(before.models.map(({ id }) => id));
    expect(models.filter(({ id }) => !known.has(id))).toMatchObject([
      {
        id: "mistral/mistral-saba-latest",
        contextLength: 32_768,
        maxOutputTokens: 4_000,
        endpoints: [{ provider: "mistral", model: "mistral-saba-latest" }],
      },
      {
        id: "mistral/magistral-small-2509",
        prices: { inputTokenFemto: 500_000_000n, outputTokenFemto: 1_500_000_000n },
      },
    ]);
    const leftOut = new Map(reports[0]!.leftOut.map(({ name, reason }) => [name, reason]));
    expect(leftOut.has("mistral-saba-latest")).toBeFalse();
    for (const name of ["magistral-small-of-mine", "mistral-unheard-of"]) {
      expect(leftOut.get(name)).toContain("has a price for it");
    }
    expect(leftOut.get("mistral-ocr-latest")).toContain("per page");
  });

  test("of a local server costs nothing, under the provider's name alone", async () => {
    const local = { ...provider("openai-compatible", "http://127.0.0.1:11434/v1"), id: "box" };
    const listed = readModelList("openai-compatible", {
      data: [{ id: "openai/gpt-4o", max_model_len: 4096 }, { id: "llama3:8b" }],
    })!;
    const { models } = await build(local, listed);
    expect(models).toMatchObject([
      { id: "box/openai/gpt-4o", contextLength: 4096, prices: { inputTokenFemto: 0n } },
      { id: "box/llama3:8b", contextLength: 8192, prices: { outputTokenFemto: 0n } },
    ]);
  });

  test("that ranks is one of a local server's, and left out of a hosted one's", async () => {
    const listed = readModelList("openai-compatible", {
      data: [{ id: "BAAI/bge-reranker-v2-m3", max_model_len: 8192 }],
    })!;
    const local = { ...provider("openai-compatible", "http://127.0.0.1:8000/v1"), id: "box" };
    expect((await build(local, listed)).models).toMatchObject([
      {
        id: "box/BAAI/bge-reranker-v2-m3",
        ...{ category: "rerank", contextLength: 8192, maxOutputTokens: 0, capabilities: [] },
        prices: { inputTokenFemto: 0n },
      },
    ]);
    const hosted = { ...provider("openai-compatible"), id: "vendor" };
    expect((await build(hosted, listed)).models).toEqual([]);
  });

  test("of a hosted server of unknown kind is left out", async () => {
    const hosted = { ...provider("openai-compatible"), id: "vendor" };
    const { models, reports } = await build(hosted, [{ ...llama, prices: undefined }]);
    expect(models).toEqual([]);
    expect(reports[0]!.reason).toContain("price");
  });

  test("gives no other way to a local model that the file sells", async () => {
    const local = { ...provider("openai-compatible", "http://10.0.0.7/v1"), id: "box" };
    const entry = {
      id: "acme/llama",
      source: "file /models/0",
      input_cost_per_token: 1e-6,
      output_cost_per_token: 1e-6,
      endpoints: [{ provider: "box", model: "llama" }],
    };
    const { models } = await buildCatalogue({
      providers: [local],
      models: [entry],
      sandbox: false,
      now: NOW,
      discovered: new Map([
        [
          "box",
          [
            { name: "llama", category: "chat", contextLength: 777, capabilities: [], created: 0 },
            { name: "llama:latest", category: "chat", capabilities: [], created: 0 },
          ],
        ],
      ]),
    });
    expect(models.map(({ id }) => id)).toEqual(["acme/llama"]);
  });

  test("tells the context length of a local model that the file names", async () => {
    const local = { ...provider("openai-compatible", "http://10.0.0.7/v1"), id: "box" };
    const { models } = await buildCatalogue({
      providers: [local],
      models: [{ id: "box/llama", source: "file /models/0" }],
      sandbox: false,
      now: NOW,
      discovered: new Map([["box", [{ ...llama, name: "llama", contextLength: 777 }]]]),
    });
    expect(models).toMatchObject([{ id: "box/llama", contextLength: 777, maxOutputTokens: 777 }]);
  });
});

describe("names that are paths, as llama.cpp and vLLM have them by default", () => {
  const box: ProviderConfig = {
    ...provider("openai-compatible", "http://10.0.0.7/v1"),
    id: "box",
  };
  const offered = async (...names: string[]) => {
    const listed = readModelList(box.type, { data: names.map((id) => ({ id })) });
    const catalogue = await build(box, listed);
    return { catalogue, leftOut: catalogue.reports[0]!.leftOut };
  };

  test.each([
    ["/models/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M.gguf"],
    ["/srv/search/audio/llama-3/", "llama-3"],
    ["./llama.gguf", "llama.gguf"],
    ["../llama", "llama"],
    ["~/llama", "llama"],
    ["models/7B/llama.gguf", "llama.gguf"],
    ["C:\\models\\llama 3\\llama.gguf", "llama.gguf"],
  ])("%s is offered by its base name, and called by its path", async (path, name) => {
    const { catalogue } = await offered(path);
    expect(catalogue.models).toMatchObject([
      { id: `box/${name}`, name, category: "chat", endpoints: [{ provider: "box", model: path }] },
    ]);
  });

  test("a relative one keeps the name that it had", async () => {
    const { catalogue } = await offered("models/7B/llama.gguf");
    const resolved = createModelIndex(catalogue).resolve("box/models/7B/llama.gguf");
    expect(resolved?.endpoints[0]?.model).toBe("models/7B/llama.gguf");
  });

  test("names of a vendor are none", async () => {
    const { catalogue } = await offered("Qwen/Qwen3-8B");
    expect(catalogue.models.map(({ id }) => id)).toEqual(["box/Qwen/Qwen3-8B"]);
  });

  test("of two with one base name the second is left out, and so is one whose name no id can hold", async () => {
    const { catalogue, leftOut } = await offered(
      "/a/llama",
      "/b/llama",
      "/c/mistral",
      "mistral",
      "a b",
    );
    expect(catalogue.models.map(({ id }) => id).toSorted()).toEqual(["box/llama", "box/mistral"]);
    expect(leftOut.map(({ name }) => name).toSorted()).toEqual(["/b/llama", "/c/mistral", "a b"]);
  });

  test("are kept with their list", async () => {
    const folder = mkdtempSync(join(tmpdir(), "model-lists-"));
    const models = readModelList(box.type, { data: [{ id: "/a/llama" }, { id: "a b" }] })!;
    const kept = new Map([["box", { models, readAtMs: NOW.getTime() }]]);
    await storeLists(folder, [box], kept);
    expect(await readStoredLists(folder, [box], NOW.getTime())).toEqual(kept);
    rmSync(folder, { recursive: true });
  });
});

describe("kept lists", () => {
  const folder = mkdtempSync(join(tmpdir(), "model-lists-"));
  afterEach(() => {
    for (const file of readdirSync(folder)) rmSync(join(folder, file));
  });
  const groq = provider("groq");
  const models: DiscoveredModel[] = [
    { name: "m", category: "chat", contextLength: 1, capabilities: ["vision"], created: 5 },
    {
      name: "n",
      category: "chat",
      prices: { input: "1", output: "2" },
      capabilities: [],
      created: 0,
    },
  ];
  const kept = new Map([["groq", { models, readAtMs: NOW.getTime() }]]);

  test("are read by the next start, for the same provider at the same address", async () => {
    await storeLists(folder, [groq], kept);
    expect(await readStoredLists(folder, [groq], NOW.getTime() + 1000)).toEqual(kept);
    expect(readdirSync(folder)).toEqual(["model-lists.json"]);
    for (const other of [provider("groq", "https://other.example/v1"), { ...groq, id: "x" }]) {
      expect((await readStoredLists(folder, [other], NOW.getTime())).size).toBe(0);
    }
  });

  test("are forgotten after a week", async () => {
    await storeLists(folder, [groq], kept);
    const later = NOW.getTime() + 8 * 86_400_000;
    expect((await readStoredLists(folder, [groq], later)).size).toBe(0);
  });

  test.each(["", "{", "[]", "null", '{"version":2}', '{"version":1,"lists":5}'])(
    "%j holds none",
    async (text) => {
      writeFileSync(join(folder, "model-lists.json"), text);
      expect((await readStoredLists(folder, [groq], NOW.getTime())).size).toBe(0);
    },
  );

  test("with a price that is none hold none", async () => {
    const broken = { ...models[1], prices: { input: "-1", output: "2" } } as DiscoveredModel;
    await storeLists(folder, [groq], new Map([["groq", { models: [broken], readAtMs: 0 }]]));
    expect((await readStoredLists(folder, [groq], 1)).size).toBe(0);
  });
});

describe("lists are read in the background", () => {
  const model = (name: string): DiscoveredModel => ({
    name,
    category: "chat",
    capabilities: [],
    created: 0,
  });

  function reading(
    ask: (provider: ProviderConfig) => Promise<readonly DiscoveredModel[]>,
    onChange: () => void = () => {},
  ) {
    const clock = new VirtualClock();
    const changes: ModelLists[] = [];
    const unanswered: string[] = [];
    const errors: unknown[] = [];
    const lists = new ProvidersModelLists({
      providers: () => [provider("groq"), provider("together")],
      clock,
      intervalMs: 3_600_000,
      random: () => 0,
      readList: ask,
      saved: new Map(),
      save: async () => {},
      async onChanged(changed) {
        onChange();
        changes.push(changed);
      },
      onUnanswered: ({ id }, reason) => void unanswered.push(`${id}: ${reason}`),
      onError: (error) => void errors.push(error),
    });
    return { clock, lists, changes, unanswered, errors };
  }

  test("and again every hour, telling only of what changed", async () => {
    let asked = 0;
    const { clock, lists, changes } = reading(async ({ id }) => {
      asked++;
      return asked > 4 && id === "groq" ? [model("a"), model("b")] : [model("a")];
    });
    lists.start();
    await lists.settled();
    expect([asked, changes.length]).toEqual([2, 1]);
    clock.advance(3_600_000);
    await lists.settled();
    expect([asked, changes.length]).toEqual([4, 1]);
    clock.advance(3_600_000);
    await lists.settled();
    expect([asked, changes.length]).toEqual([6, 2]);
    expect(changes[1]!.get("groq")?.map(({ name }) => name)).toEqual(["a", "b"]);
    lists.stop();
    clock.advance(36_000_000);
    expect(asked).toBe(6);
  });

  test("one of them again when its provider has come back, beside the hourly reading", async () => {
    const asked: string[] = [];
    const { clock, lists, changes } = reading(async ({ id }) => {
      asked.push(id);
      return [model(asked.length > 2 ? "new" : "old")];
    });
    lists.start();
    lists.readAgain("groq");
    lists.readAgain("nobody");
    await lists.settled();
    expect(asked).toEqual(["groq", "together", "groq"]);
    expect(
      changes
        .at(-1)!
        .get("groq")
        ?.map(({ name }) => name),
    ).toEqual(["new"]);
    clock.advance(3_600_000);
    await lists.settled();
    expect(asked).toHaveLength(5);
    lists.stop();
    lists.readAgain("groq");
    await lists.settled();
    expect(asked).toHaveLength(5);
  });

  test("what a failing database did not take is brought again after a minute", async () => {
    const failure = new Error("no connection");
    let isDown = true;
    const { clock, lists, changes, errors } = reading(
      async () => [model("a")],
      () => {
        if (isDown) throw failure;
      },
    );
    lists.start();
    await lists.settled();
    expect([changes.length, errors]).toEqual([0, [failure]]);
    isDown = false;
    clock.advance(60_000);
    await lists.settled();
    expect([changes.length, errors.length]).toEqual([1, 1]);
    clock.advance(3_600_000);
    await lists.settled();
    expect(changes.length).toBe(1);
  });

  test("a provider that fails keeps its list, and is asked again after a minute, two, four", async () => {
    let asked = 0;
    let isDown = false;
    const { clock, lists, changes, unanswered } = reading(async ({ id }) => {
      asked++;
      if (isDown && id === "groq") throw new Error("no");
      return [model("a")];
    });
    lists.start();
    await lists.settled();
    isDown = true;
    clock.advance(3_600_000);
    await lists.settled();
    expect(unanswered).toEqual(["groq: no"]);
    for (const [minutes, expected] of [
      [1, 6],
      [1, 6],
      [1, 8],
      [3, 8],
      [1, 10],
    ] as const) {
      clock.advance(minutes * 60_000);
      await lists.settled();
      expect(asked).toBe(expected);
    }
    expect(changes.length).toBe(1);
    expect(lists.lists.get("groq")?.length).toBe(1);
  });
});
