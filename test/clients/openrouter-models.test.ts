import { afterAll, beforeAll, expect, test } from "bun:test";
import { OpenRouter } from "@openrouter/sdk";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

/** Every kind of built-in model; no provider of theirs is called. */
const KEYS = {
  OPENAI_API_KEY: "test",
  ANTHROPIC_API_KEY: "test",
  GEMINI_API_KEY: "test",
  MISTRAL_API_KEY: "test",
};

let gateway: TestGateway;
let client: OpenRouter;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: KEYS });
  client = new OpenRouter({ serverURL: `${gateway.baseUrl}/v1`, apiKey: gateway.secretKey });
});
afterAll(() => gateway.stop());

type Listed = Awaited<ReturnType<OpenRouter["models"]["list"]>>["result"]["data"][number];

async function listed(limit: number): Promise<Listed[]> {
  const models: Listed[] = [];
  for await (const { result } of await client.models.list({ limit })) models.push(...result.data);
  return models;
}

test("OpenRouter's SDK validates every model of the list, over all its pages", async () => {
  const models = await listed(50);
  const { data } = await client.models.count();
  expect(models.length).toBeGreaterThan(100);
  expect(new Set(models.map(({ id }) => id)).size).toBe(data.count);
});

test("OpenRouter's fields tell what a model takes, answers and costs", async () => {
  const models = new Map((await listed(500)).map((model) => [model.id, model]));
  expect(models.get("openai/gpt-4o-mini")).toMatchObject({
    canonicalSlug: "openai/gpt-4o-mini",
    contextLength: 128_000,
    architecture: { modality: "text+image->text", tokenizer: "GPT" },
    topProvider: { contextLength: 128_000, maxCompletionTokens: 16_384 },
    pricing: { prompt: "0.00000015", completion: "0.0000006" },
    supportedParameters: expect.arrayContaining([
      "logprobs",
      "seed",
      "tools",
      "structured_outputs",
    ]),
  });
  const modalities = (id: string) => models.get(id)?.architecture.modality;
  expect(modalities("sandbox/embed")).toBe("text->embeddings");
  expect(modalities("sandbox/image")).toBe("text->image");
  expect(modalities("sandbox/tts")).toBe("text->speech");
  expect(modalities("sandbox/stt")).toBe("audio->transcription");
});

test("a parameter is listed for the models whose providers have it, and for no others", async () => {
  const having = (name: string) => async () =>
    (await listed(500)).filter(({ supportedParameters }) =>
      (supportedParameters as string[]).includes(name),
    );
  const authors = (models: Listed[]) => new Set(models.map(({ id }) => id.split("/")[0]));
  expect(authors(await having("logit_bias")())).toEqual(new Set(["openai"]));
  expect(authors(await having("min_p")())).toEqual(new Set());
  const reasoning = await having("reasoning")();
  expect(authors(reasoning)).toContain("anthropic");
  for (const { id } of reasoning) {
    const { capabilities } = (await (await gateway.request("GET", `/v1/models/${id}`)).json()) as {
      capabilities: string[];
    };
    expect({ id, reasons: capabilities.includes("reasoning") }).toEqual({ id, reasons: true });
  }
});
