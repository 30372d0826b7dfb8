import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";

const folder = mkdtempSync(join(tmpdir(), "discovery-"));
const gateways: TestGateway[] = [];
const servers: { stop(force: boolean): unknown }[] = [];
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.stop();
  for (const server of servers.splice(0)) server.stop(true);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A provider that answers by path; chat completions are answered everywhere. */
function provider(answers: Record<string, (request: Request) => Response | Promise<Response>>) {
  const asked: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      asked.push(`${request.method} ${pathname}`);
      const answer = answers[pathname];
      if (answer !== undefined) return answer(request);
      if (pathname !== "/v1/chat/completions") return new Response("no", { status: 404 });
      const { model } = (await request.json()) as { model: string };
      const message = { role: "assistant", content: `I am ${model}` };
      return Response.json({
        id: "x",
        object: "chat.completion",
        model,
        choices: [{ index: 0, message, finish_reason: "stop" }],
        usage: { prompt_tokens: 10, completion_tokens: 4, total_tokens: 14 },
      });
    },
  });
  servers.push(server);
  return { baseUrl: `http://127.0.0.1:${server.port}/v1`, asked };
}

let used = 0;
async function gatewayWith(
  providers: object[],
  rest: { models?: object[]; environment?: Record<string, string> } = {},
): Promise<TestGateway> {
  const gateway = await startTestGateway({
    configuration: { providers, models: rest.models ?? [], sandbox: false },
    environment: {
      DATA_DIR: join(folder, String(used++)),
      GATEWAY_MODEL_LISTS_SECONDS: "3600",
      ...rest.environment,
    },
  });
  gateways.push(gateway);
  return gateway;
}

const local = (baseUrl: string) => ({ id: "box", type: "openai-compatible", base_url: baseUrl });

async function idsOf(gateway: TestGateway): Promise<string[]> {
  const response = await gateway.request("GET", "/v1/models");
  const { data } = (await response.json()) as { data: { id: string }[] };
  return data.map(({ id }) => id);
}

const detail = async (gateway: TestGateway, id: string) =>
  (await (await gateway.request("GET", `/v1/models/${id}`)).json()) as Record<string, unknown>;

const chat = (gateway: TestGateway, model: string) =>
  gateway.request("POST", "/v1/chat/completions", {
    model,
    messages: [{ role: "user", content: "hi" }],
  });

test("a local server's models are offered without a line of configuration, at no cost", async () => {
  const { baseUrl } = provider({
    "/v1/models": () => Response.json({ data: [{ id: "qwen-7b", max_model_len: 16_384 }] }),
  });
  const gateway = await gatewayWith([local(baseUrl)]);
  await until("the models are listed", async () => (await idsOf(gateway)).includes("box/qwen-7b"));
  expect(await detail(gateway, "box/qwen-7b")).toMatchObject({
    context_length: 16_384,
    pricing: { prompt: "0", completion: "0" },
  });
  const response = await chat(gateway, "box/qwen-7b");
  expect(response.status).toBe(200);
  expect(await billOfResponse(gateway, response)).toMatchObject({
    chargeNano: 0n,
    promptTokens: 10,
  });
  await expectBooksClosed(gateway);
});

describe("the context length that a model list does not tell is asked of the server", () => {
  test("Ollama", async () => {
    const { baseUrl } = provider({
      "/v1/models": () =>
        Response.json({ data: [{ id: "llama3:8b" }, { id: "odd" }, { id: "set" }] }),
      "/api/show": async (request) => {
        const { model } = (await request.json()) as { model: string };
        const info = model === "odd" ? {} : { "llama.context_length": 65_536 };
        return Response.json({
          model_info: { "general.architecture": "llama", ...info },
          ...(model === "set" && {
            parameters: 'stop "<|eot|>"\nnum_ctx                        16384\ntemperature 1',
            capabilities: ["completion", "tools", "thinking"],
          }),
        });
      },
    });
    const gateway = await gatewayWith([local(baseUrl)]);
    await until("the models are listed", async () => (await idsOf(gateway)).length === 3);
    expect(await detail(gateway, "box/llama3:8b")).toMatchObject({ context_length: 65_536 });
    expect(await detail(gateway, "box/odd")).toMatchObject({ context_length: 8192 });
    expect(await detail(gateway, "box/set")).toMatchObject({
      context_length: 16_384,
      capabilities: ["streaming", "function_calling", "reasoning", "json_mode"],
    });
  });

  test("LM Studio", async () => {
    const { baseUrl } = provider({
      "/v1/models": () => Response.json({ data: [{ id: "phi-4" }] }),
      "/api/v0/models": () => Response.json({ data: [{ id: "phi-4", max_context_length: 4096 }] }),
    });
    const gateway = await gatewayWith([local(baseUrl)]);
    await until("the models are listed", async () => (await idsOf(gateway)).length === 1);
    expect(await detail(gateway, "box/phi-4")).toMatchObject({ context_length: 4096 });
  });
});

test("a hosted provider's new model is offered at its list's price, without a restart", async () => {
  const listed = [{ name: "meta-llama/Llama-9-8B-Instruct", input: 0.07, output: 0.3 }];
  const { baseUrl } = provider({
    "/v1/models": () =>
      Response.json({
        data: listed.map(({ name: id, input: input_tokens, output: output_tokens }) => ({
          id,
          metadata: { context_length: 1000, pricing: { input_tokens, output_tokens } },
        })),
      }),
  });
  const gateway = await gatewayWith(
    [{ id: "deepinfra", type: "deepinfra", base_url: baseUrl, api_key: "k" }],
    { environment: { GATEWAY_MODEL_LISTS_SECONDS: "1" } },
  );
  const id = "meta-llama/llama-9-8b-instruct";
  await until("the models are listed", async () => (await idsOf(gateway)).includes(id));
  const response = await chat(gateway, id);
  expect(response.status).toBe(200);
  // (10 × 0.07 + 4 × 0.3) USD a million, and 4 %.
  expect((await billOfResponse(gateway, response)).chargeNano).toBe(1_976n);
  listed[0]!.input = 7;
  listed.push({ name: "acme/other", input: 1, output: 1 });
  await until("the models are listed", async () => (await idsOf(gateway)).includes("acme/other"));
  const dearer = await billOfResponse(gateway, await chat(gateway, id));
  expect(dearer.chargeNano).toBe(74_048n);
  const found = await gateway.request("GET", "/v1/models/search?q=acme");
  expect(await found.json()).toMatchObject({ data: [{ id: "acme/other" }] });
  await expectBooksClosed(gateway);
});

test("a provider that stays silent holds nothing up, and one that failed has its reason logged", async () => {
  const silent = provider({ "/v1/models": () => new Promise<Response>(() => {}) });
  const broken = provider({ "/v1/models": () => new Response("<html>", { status: 200 }) });
  const refusing = provider({ "/v1/models": () => new Response("no", { status: 401 }) });
  const gateway = await gatewayWith([
    { ...local(silent.baseUrl), id: "silent" },
    { ...local(broken.baseUrl), id: "broken" },
    { ...local(refusing.baseUrl), id: "refusing" },
    { ...local("http://127.0.0.1:1/v1"), id: "down" },
  ]);
  const logged = () => gateway.logLines.join("");
  // Its answer is not given up yet.
  expect(logged()).not.toContain("provider silent does not list");
  await until("it is logged", () =>
    ["broken", "refusing", "down"].every((id) => logged().includes(`provider ${id} does not list`)),
  );
  expect(logged()).toContain("its answer is not JSON");
  expect(logged()).toContain("GET /v1/models with 401");
  expect(logged()).toContain(
    "provider silent offers no models: its own list of models has not been read",
  );
});

test("the next start knows what the last one read, also where the provider is away", async () => {
  const { baseUrl, asked } = provider({
    "/v1/models": () => Response.json({ data: [{ id: "qwen-7b", max_model_len: 16_384 }] }),
  });
  const environment = { DATA_DIR: join(folder, "kept") };
  const first = await gatewayWith([local(baseUrl)], { environment });
  await until("the lists are kept", () =>
    Bun.file(join(folder, "kept", "model-lists.json")).exists(),
  );
  expect(asked).toContain("GET /v1/models");
  await first.stop();
  gateways.splice(0);
  servers.splice(0).forEach((server) => void server.stop(true));
  const second = await gatewayWith([local(baseUrl)], { environment });
  expect(await idsOf(second)).toEqual(["box/qwen-7b"]);
});

test("a list that is too long is not read to its end", async () => {
  let sentBytes = 0;
  const piece = new Uint8Array(64 * 1024).fill(32);
  const { baseUrl } = provider({
    "/v1/models": () =>
      new Response(
        new ReadableStream({
          pull(controller) {
            sentBytes += piece.length;
            controller.enqueue(piece);
          },
        }),
      ),
  });
  const gateway = await gatewayWith([local(baseUrl)]);
  await until("it is logged", () => gateway.logLines.join("").includes("is longer than"));
  expect(sentBytes).toBeLessThan(32 * 1024 * 1024);
});

test("with 0 seconds no provider is asked", async () => {
  const { baseUrl, asked } = provider({});
  const gateway = await gatewayWith([local(baseUrl)], {
    environment: { GATEWAY_MODEL_LISTS_SECONDS: "0" },
  });
  await Bun.sleep(100);
  expect(asked).toEqual([]);
  expect(await idsOf(gateway)).toEqual([]);
});
