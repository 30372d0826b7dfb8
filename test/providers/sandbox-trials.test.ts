import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sandboxSearch } from "../../src/inference/tools/web-search/sandbox-search.ts";
import { DEFAULT_SEARCH } from "../../src/inference/tools/web-search/search-options.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse } from "../support/ledger-checks.ts";

/** What can be tried on a gateway that nothing is configured of. */

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const hello = (content = "What is new in Postgres?") => ({ role: "user", content });
const chat = (body: object) =>
  gateway.request("POST", "/v1/chat/completions", {
    ...{ model: "sandbox/chat", messages: [hello()] },
    ...body,
  });

describe("the sandbox's search", () => {
  test("answers the plugin web with results that say whose they are, the same each time", async () => {
    const annotated = async () => {
      const response = await chat({ plugins: [{ id: "web", max_results: 2 }] });
      expect(response.status).toBe(200);
      const { choices } = await response.clone().json();
      // 0.0001 USD with the fee of 4 %.
      expect(Number((await billOfResponse(gateway, response)).chargeNano)).toBeGreaterThan(104_000);
      return choices[0].message.annotations;
    };
    const annotations = await annotated();
    expect(annotations).toHaveLength(2);
    for (const { url_citation: cited } of annotations) {
      expect(new URL(cited.url).hostname).toBe("sandbox.invalid");
      expect(cited.title).toContain("Sandbox result");
      expect(cited.content).toContain("not found on the web");
    }
    expect(await annotated()).toEqual(annotations);
  });

  test("answers the tool web_search of responses", async () => {
    const response = await gateway.request("POST", "/v1/responses", {
      ...{ model: "sandbox/chat", input: "What is new?", tools: [{ type: "web_search" }] },
    });
    expect(response.status).toBe(200);
    const { output } = (await response.json()) as { output: { type: string; status: string }[] };
    const [call, message] = output;
    expect(call).toMatchObject({ type: "web_search_call", status: "completed" });
    expect(JSON.stringify(message)).toContain("sandbox search");
  });

  test("keeps to domains and numbers of results", async () => {
    const { signal } = new AbortController();
    const found = (options: object) =>
      sandboxSearch.find("boats", { ...DEFAULT_SEARCH, ...options }, signal);
    expect(await found({ maxResults: 1 })).toHaveLength(1);
    expect(await found({ allowed: [{ host: "example.com", path: "" }] })).toEqual([]);
    expect(await found({ blocked: [{ host: "sandbox.invalid", path: "" }] })).toEqual([]);
    expect((await found({})).every(({ text }) => text !== undefined)).toBe(true);
  });
});

test("a guardrail of the type moderation decides by the sandbox's model", async () => {
  const rules = [{ type: "moderation", on: ["input"], action: "block" }];
  const made = await gateway.request(
    ...(["POST", "/v1/guardrails", { name: "kind", rules }] as const),
    { key: gateway.managementKey },
  );
  expect(made.status).toBe(201);
  const refused = await chat({ guardrail: "kind", messages: [hello("I like violence.")] });
  await expectError(refused, 400, "content_policy_violation");
  expect((await chat({ guardrail: "kind" })).status).toBe(200);
});

describe("cached tokens of sandbox/chat", () => {
  const turns = [
    hello("A long question about the boats in the harbour. ".repeat(20)),
    { role: "assistant", content: "They are red." },
    hello("And the cars?"),
  ];
  const usageOf = async (messages: object[]) => (await (await chat({ messages })).json()).usage;

  test("are those before the last answer, cost half, and are the same each time", async () => {
    const first = await usageOf(turns.slice(0, 1));
    expect(first.prompt_tokens_details.cached_tokens).toBe(0);
    const second = await usageOf(turns);
    const cached = second.prompt_tokens_details.cached_tokens;
    expect(cached).toBe(first.prompt_tokens);
    const { prompt_tokens: prompt, completion_tokens: completion, cost } = second;
    const usd = (prompt - cached) * 1e-7 + cached * 5e-8 + completion * 4e-7;
    expect(cost).toBeCloseTo(usd * 1.04, 9);
    expect(await usageOf(turns)).toEqual(second);
  });

  test("are none of a short prompt", async () => {
    const { prompt_tokens_details: details } = await usageOf([hello(), ...turns.slice(1)]);
    expect(details.cached_tokens).toBe(0);
  });
});

test("without the sandbox there is neither its search nor its moderation", async () => {
  const other = await startTestGateway({
    environment: { OPENAI_API_KEY: "sk-0123456789" },
    configuration: { sandbox: false },
  });
  try {
    const body = { model: "openai/gpt-4o-mini", messages: [hello()], plugins: [{ id: "web" }] };
    const refused = await other.request("POST", "/v1/chat/completions", body);
    const { error } = await expectError(refused, 400, "unsupported_parameter");
    expect(error.message).toContain("GATEWAY_SEARCH_BACKEND");
    const rules = [{ type: "moderation", on: ["input"], action: "block" }];
    const guardrail = await other.request(
      ...(["POST", "/v1/guardrails", { name: "kind", rules }] as const),
      { key: other.managementKey },
    );
    expect(guardrail.status).toBe(400);
  } finally {
    await other.stop();
  }
});
