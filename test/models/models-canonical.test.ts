import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/** Femto-USD of an input token; an output token costs four times as much. */
const AT_OPENAI = 150_000_000n;
const AT_BACKUP = 40_000_000n;
const FEE = 10_400n;

let upstream: Upstream;
let gateway: TestGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  const { baseUrl: base_url } = upstream;
  const built = (type: string) => ({ id: type, type, base_url, api_key: "k" });
  gateway = await startTestGateway({
    configuration: {
      providers: [
        built("openai"),
        built("azure"),
        built("groq"),
        { id: "backup", type: "openai-compatible", base_url, api_key: "k" },
      ],
      models: [
        {
          id: "acme/two",
          context_length: 100_000,
          max_output_tokens: 1000,
          endpoints: [
            {
              provider: "backup",
              model: "cheap",
              input_cost_per_token: 4e-8,
              output_cost_per_token: 1.6e-7,
            },
            {
              provider: "openai",
              model: "gpt-4o-mini",
              input_cost_per_token: 1.5e-7,
              output_cost_per_token: 6e-7,
            },
          ],
        },
        { id: "quick", alias_of: "openai/gpt-4o-mini" },
        { id: "team/azure-only", alias_of: "azure/gpt-4o" },
      ],
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await gateway.stop();
});
afterEach(() => expectBooksClosed(gateway));

const chat = (model: string, rest: Record<string, unknown> = {}, key?: string) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { model, messages: [{ role: "user", content: "hello" }], max_tokens: 50, ...rest },
    key === undefined ? {} : { key },
  );

const calledBy = () => {
  const { model } = upstream.served.at(-1)!;
  return model;
};

describe("the model of an answer is the one that the name resolved to", () => {
  test.each([
    ["openai/gpt-4o", "openai/gpt-4o", "openai"],
    ["gpt-4o", "openai/gpt-4o", "openai"],
    ["azure/gpt-4o", "azure/gpt-4o", "azure"],
    ["quick", "openai/gpt-4o-mini", "openai"],
    ["groq/llama-3.3-70b-versatile", "groq/llama-3.3-70b-versatile", "groq"],
    ["meta-llama/llama-3.3-70b-instruct", "meta-llama/llama-3.3-70b-instruct", "groq"],
  ])("%s is %s at %s", async (name, id, provider) => {
    const response = await chat(name);
    expect(response.status).toBe(200);
    expect(((await response.json()) as { model: string }).model).toBe(id);
    expect(response.headers.get("x-gateway-model")).toBe(id);
    expect(response.headers.get("x-gateway-provider")).toBe(provider);
    expect(await billOfResponse(gateway, response)).toMatchObject({ model: id, provider });
  });
});

test("a canonical model falls back to another provider, and its provider's own name does not", async () => {
  upstream.behave("gpt-4.1-mini", { do: "error", status: 401 });
  const planned = async (model: string) =>
    (await chat(model, { route_explain: true })).headers.get("x-gateway-route-explain");
  expect(await planned("openai/gpt-4.1-mini")).toContain(
    "openai/gpt-4.1-mini, azure/gpt-4.1-mini;",
  );
  expect(await planned("azure/gpt-4.1-mini")).toStartWith("planned: azure/gpt-4.1-mini;");
});

describe("each endpoint has its own price", () => {
  const usage = { prompt_tokens: 20, completion_tokens: 10, total_tokens: 30 };
  const charge = (inputFemto: bigint) =>
    ((inputFemto * 20n + 4n * inputFemto * 10n) * FEE + 5_000_000_000n) / 10_000_000_000n;

  test("the one that served is charged at it, first or fallback", async () => {
    for (const [isFirst, provider, femto] of [
      [true, "backup", AT_BACKUP],
      [false, "openai", AT_OPENAI],
    ] as const) {
      upstream.behave("cheap", isFirst ? { do: "complete", usage } : { do: "error", status: 401 });
      upstream.behave("gpt-4o-mini", { do: "complete", usage });
      for (const stream of [false, true]) {
        const response = await chat("acme/two", { stream });
        expect(response.status).toBe(200);
        await response.text();
        const bill = await billOfResponse(gateway, response);
        expect(bill).toMatchObject({ provider, promptTokens: 20, chargeNano: charge(femto) });
      }
    }
  });

  test("what is held covers the dearest one", async () => {
    const messages = [{ role: "user", content: "x".repeat(10_000) }];
    const cheapest = (Number(AT_BACKUP) * 10_000 * 1.04) / 1e15;
    const key = await addSecretKey(gateway, {
      dailyBudgetNano: BigInt(Math.ceil(cheapest * 1.5 * 1e9)),
    });
    await expectError(await chat("acme/two", { messages }, key), 402, "budget_exhausted");
    upstream.behave("cheap", { do: "complete", usage });
    expect((await chat("backup/cheap", { messages }, key)).status).toBe(200);
    expect(calledBy()).toBe("cheap");
  });
});

describe("a key that may use", () => {
  const refused = async (response: Response) => expectError(response, 403, "model_not_allowed");

  test("a canonical model may use it by every name of it, and nothing else", async () => {
    const key = await addSecretKey(gateway, { allowedModels: ["openai/gpt-4o"] });
    for (const name of ["openai/gpt-4o", "gpt-4o", "azure/gpt-4o", "team/azure-only"]) {
      expect((await chat(name, {}, key)).status).toBe(200);
    }
    for (const name of ["quick", "openai/gpt-4o-mini", "azure/gpt-4o-mini", "acme/two"]) {
      await refused(await chat(name, {}, key));
    }
    await refused(await chat("openai/gpt-4o", { models: ["openai/gpt-4o", "quick"] }, key));
  });

  test("one provider's endpoint may use that alone, by whatever name", async () => {
    const key = await addSecretKey(gateway, { allowedModels: ["azure/gpt-4o"] });
    for (const name of ["azure/gpt-4o", "team/azure-only"]) {
      const response = await chat(name, {}, key);
      expect(response.headers.get("x-gateway-provider")).toBe("azure");
    }
    for (const name of ["openai/gpt-4o", "gpt-4o", "azure/gpt-4o-mini"]) {
      await refused(await chat(name, {}, key));
    }
  });

  test("an alias may use what it stands for", async () => {
    const key = await addSecretKey(gateway, { allowedModels: ["team/azure-only"] });
    expect((await chat("azure/gpt-4o", {}, key)).status).toBe(200);
    await refused(await chat("openai/gpt-4o", {}, key));
    const quick = await addSecretKey(gateway, { allowedModels: ["quick"] });
    expect((await chat("azure/gpt-4o-mini", {}, quick)).status).toBe(200);
  });

  test("a model of the file's own may not use another model of the same endpoint", async () => {
    const key = await addSecretKey(gateway, { allowedModels: ["acme/two"] });
    expect((await chat("acme/two", {}, key)).status).toBe(200);
    expect((await chat("backup/cheap", {}, key)).status).toBe(200);
    await refused(await chat("openai/gpt-4o-mini", {}, key));
  });
});

describe("a model that is not there is 404 with what may be meant", () => {
  const messageFor = async (name: string): Promise<string> => {
    return (await expectError(await chat(name), 404, "model_not_found")).error.message;
  };

  test("the nearest ids", async () => {
    expect(await messageFor("openai/gpt-4o-mimi")).toContain("openai/gpt-4o-mini");
    expect(await messageFor("gpt4o-mini")).toContain("openai/gpt-4o-mini");
  });

  test("the variable that would enable its provider", async () => {
    expect(await messageFor("mistral/mistral-large-latest")).toContain("MISTRAL_API_KEY");
    expect(await messageFor("grok-4")).toContain("XAI_API_KEY");
    expect(await messageFor("claude-sonnet-4-5")).toContain("ANTHROPIC_API_KEY");
    expect(await messageFor("constructor/prototype")).not.toContain("API_KEY");
  });

  test("also where it is read, raw and encoded", async () => {
    for (const name of ["openai/gpt-4o-mimi", "openai%2Fgpt-4o-mimi"]) {
      const response = await gateway.request("GET", `/v1/models/${name}`);
      const { error } = await expectError(response, 404, "model_not_found");
      expect(error.message).toContain("openai/gpt-4o-mini");
    }
  });
});

test("a model that is no chat is refused as such, by each of its names", async () => {
  for (const name of ["openai/whisper-1", "text-embedding-3-small", "openai/gpt-image-2"]) {
    await expectError(await chat(name), 400, "unsupported_model");
  }
});

test("the description of a model lists its endpoints with their prices, raw and encoded", async () => {
  for (const name of ["openai/gpt-4o", "openai%2Fgpt-4o", "gpt-4o"]) {
    const response = await gateway.request("GET", `/v1/models/${name}`);
    expect(await response.json()).toMatchObject({
      id: "openai/gpt-4o",
      endpoints: [
        { provider: "openai", model: "gpt-4o", pricing: { prompt: "0.0000025" } },
        { provider: "azure", model: "gpt-4o", pricing: { prompt: "0.0000025" } },
      ],
    });
  }
  const pinned = await gateway.request("GET", "/v1/models/azure%2Fgpt-4o");
  expect(await pinned.json()).toMatchObject({
    id: "azure/gpt-4o",
    canonical_id: "openai/gpt-4o",
    endpoints: [{ provider: "azure" }],
  });
  const listed = await gateway.request("GET", "/v1/models?provider=azure");
  const { data } = (await listed.json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toContain("openai/gpt-4o");
});
