import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConfigFile, ProviderEntry } from "../../src/platform/config/file-schema.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { runCliHere } from "./cli-runs.ts";

const EXAMPLES = join(import.meta.dir, "..", "fixtures", "litellm", "examples");
const ENVIRONMENT = {
  AZURE_API_BASE: "https://house.openai.azure.com",
  FAKE_OPENAI_API_BASE: "http://127.0.0.1:9",
  RECORDER_COHERE_BASE_URL: "http://127.0.0.1:9",
};

interface Example {
  /** The models that reach a provider, by the name that clients send. Several share the load. */
  readonly reached: Readonly<Record<string, readonly string[]>>;
  /** Beginnings of lines of the report. */
  readonly report: readonly string[];
  /** True if an operator has to add prices and a context length before the start, as the report says. */
  readonly lacksTerms?: true;
}

const TERMS = { input_cost_per_token: 1e-6, output_cost_per_token: 2e-6, context_length: 8_192 };

const CASES: Readonly<Record<string, Example>> = {
  adaptive_router_example: {
    reached: { fast: ["gpt-4o-mini"], smart: ["gpt-4o"] },
    report: [
      "left out: model_list[0] (smart-cheap-router): the provider auto_router has no type here",
      "left out: model_info.adaptive_router_preferences: ",
      "left out: general_settings.master_key: ",
    ],
  },
  aliases_config: {
    reached: { "text-davinci-003": ["zephyr"], "gpt-4": ["llama2"], "gpt-3.5-turbo": ["llama2"] },
    report: ["left out: litellm_params.temperature: make a preset"],
  },
  azure_config: {
    reached: { "gpt-4-team1": ["chatgpt-v-2"], "gpt-4-team2": ["gpt-4"] },
    lacksTerms: true,
    report: [
      "note: complete this before a start: model team/gpt-4-team1 (team/gpt-4-team1) is not",
      "left out: litellm_params.timeout: set GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS",
    ],
  },
  load_balancer: {
    reached: { "gpt-3.5-turbo": ["gpt-3.5-turbo"] },
    lacksTerms: true,
    report: [
      "note: complete this before a start: model team/gpt-3.5-turbo (team/gpt-3.5-turbo) is not",
      "left out: model_list[3] (mistral-7b-instruct): the provider mistralai has no type here",
      "left out: model_list[].tpm: write it below litellm_params",
      "left out: environment_variables: ",
    ],
  },
  oai_misc_config: {
    reached: {
      "gpt-5-mini-end-user-test": ["gpt-5-mini"],
      "bedrock/batch-us.anthropic.claude-haiku-4-5-20251001-v1:0": [
        "us.anthropic.claude-haiku-4-5-20251001-v1:0",
      ],
      "anthropic/claude-sonnet-4-5": ["claude-sonnet-4-5"],
      "groq/llama-3.1-8b-instant": ["llama-3.1-8b-instant"],
    },
    report: [
      "left out: litellm_params.s3_bucket_name: ",
      "left out: litellm_settings.default_team_settings: ",
      "left out: finetune_settings: ",
      "note: model_list[3] (groq/*): groq offers all of its models",
    ],
  },
  otel_test_config: {
    reached: {
      "fake-openai-endpoint": ["gpt-5-mini"],
      "fake-azure-endpoint": ["429"],
      "llava-hf": ["llava-hf/llava-v1.6-vicuna-7b-hf"],
    },
    report: [
      "took: alias rerank-english-v3.0 of team/rerank-english-v3.0",
      "left out: litellm_params.tags: send metadata.tags in requests",
      "left out: guardrails: make guardrails by POST /v1/guardrails",
      "left out: router_settings.enable_tag_filtering: ",
    ],
  },
  pass_through_config: {
    reached: {
      "fake-openai-endpoint": ["fake"],
      "claude-sonnet-4-5-20250929": ["claude-sonnet-4-5-20250929"],
      "claude-special-alias": ["claude-haiku-4-5-20251001"],
      "claude-sonnet-4-6": ["claude-sonnet-4-6"],
      "openai/gpt-4o-mini": ["gpt-4o-mini"],
    },
    report: [
      "left out: general_settings.custom_auth: ",
      "left out: general_settings.pass_through_endpoints: ",
    ],
  },
};

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };

/** Answers of a chat in the wire formats of the examples' providers, by the path of the request. */
const ANSWERS: readonly (readonly [RegExp, object])[] = [
  [
    /\/chat\/completions$/,
    {
      ...{ id: "chatcmpl-1", object: "chat.completion", created: 1, usage },
      choices: [
        { index: 0, message: { role: "assistant", content: "Hello." }, finish_reason: "stop" },
      ],
    },
  ],
  [
    /\/(?:messages|invoke)$/,
    {
      ...{ id: "msg_1", type: "message", role: "assistant", stop_reason: "end_turn" },
      content: [{ type: "text", text: "Hello." }],
      usage: { input_tokens: 10, output_tokens: 5 },
    },
  ],
  [
    /\/converse$/,
    {
      output: { message: { role: "assistant", content: [{ text: "Hello." }] } },
      stopReason: "end_turn",
      usage: { inputTokens: 10, outputTokens: 5, totalTokens: 15 },
    },
  ],
  [
    /\/api\/chat$/,
    {
      ...{ created_at: "2026-11-25T17:00:00Z", message: { role: "assistant", content: "Hello." } },
      ...{ done: true, done_reason: "stop", prompt_eval_count: 10, eval_count: 5 },
    },
  ],
];

/** The models that chats have asked for. */
let asked: string[] = [];
const stub = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const answer = ANSWERS.find(([path]) => path.test(pathname))?.[1];
    if (answer === undefined) return Response.json({ error: "not found" }, { status: 404 });
    const { model } = (await request.json()) as { model?: string };
    // Azure and Bedrock have the model in the path.
    const inPath = /\/(?:deployments|model)\/([^/]+)\//.exec(pathname)?.[1];
    const name = inPath === undefined ? model! : decodeURIComponent(inPath);
    asked.push(name);
    return Response.json({ model: name, ...answer });
  },
});
const folder = mkdtempSync(join(tmpdir(), "gateway-examples-"));
afterAll(() => {
  void stub.stop(true);
  rmSync(folder, { recursive: true });
});

/** Returns the provider at the stub, with a key in place of the variable of its key. */
function atStub({ api_key_env: _, ...provider }: ProviderEntry): ProviderEntry {
  const root = `http://127.0.0.1:${stub.port}`;
  const hasVersion = !["azure", "bedrock"].includes(provider.type);
  const aws = {
    region: "us-east-1",
    access_key_id: "AKIA0123456789012345",
    secret_access_key: "s",
  };
  return {
    ...provider,
    base_url: hasVersion ? `${root}/v1` : root,
    ...(provider.type === "bedrock" ? { aws } : { api_key: "sk-of-the-stub-12345678" }),
  };
}

describe.each(Object.entries(CASES))(
  "LiteLLM's example %s",
  (name, { reached, report, lacksTerms }) => {
    let gateway: TestGateway;
    let stdout: string;

    beforeAll(async () => {
      const output = join(folder, `${name}.json`);
      const file = join(EXAMPLES, `${name}.yaml`);
      const run = await runCliHere(ENVIRONMENT, "import", "litellm", file, "--output", output);
      expect(run.exitCode, run.stderr).toBe(0);
      stdout = run.stdout;
      const config = JSON.parse(readFileSync(output, "utf8")) as ConfigFile;
      const models = config.models!.map((model) =>
        lacksTerms && model.alias_of === undefined ? { ...model, ...TERMS } : model,
      );
      const providers = config.providers!.map(atStub);
      gateway = await startTestGateway({ configuration: { providers, models, sandbox: false } });
    });
    afterAll(() => gateway?.stop());

    test("serves a chat with each name by the provider's model", async () => {
      for (const [model, expected] of Object.entries(reached)) {
        asked = [];
        const response = await gateway.request("POST", "/v1/chat/completions", {
          model,
          messages: [{ role: "user", content: "Hi" }],
        });
        expect(response.status, `${model}: ${await response.text()}`).toBe(200);
        expect(asked).toHaveLength(1);
        expect(expected).toContain(asked[0]!);
      }
    });

    test("has a report of each part that has no counterpart", () => {
      const lines = stdout.split("\n");
      for (const line of report) {
        expect(
          lines.filter((one) => one.startsWith(line)),
          line,
        ).toHaveLength(1);
      }
    });
  },
);
