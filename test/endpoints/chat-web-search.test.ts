import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { chargeNanoUsd, usdNumber } from "../../src/lib/money.ts";
import { type AskedOf, type AskedUpstream, startAskedUpstream } from "../support/asked-upstream.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { htmlPage, type SearchUpstream, startSearchUpstream } from "../support/search-upstream.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

/** The plugin `web`, `web_search_options` and the suffix `:online`, through the whole gateway. */

type Fields = Record<string, unknown>;
interface Message {
  readonly role: string;
  readonly content: string;
}

const SEARCH_KEY = "search-secret-0123456789";
const SEARCH_FEMTO = 3_000_001_000_000n;
const FEE = 400n;
const USAGE = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
const TOKENS_FEMTO = 100n * 1_000_000_000n + 10n * 2_000_000_000n;
const NANO = 1_000_000n;

let provider: AskedUpstream<AskedOf & { body: Fields }>;
let searches: SearchUpstream;
let gateway: TestGateway;
let bare: TestGateway;
/** What the model says; its streams come in pieces of three characters. */
let said: string;
let failures = 0;

const model = (slug: string, providers: readonly string[], upstreamModel = slug) => ({
  id: `test/${slug}`,
  category: "chat",
  context_length: 128_000,
  max_output_tokens: 1_000,
  input_cost_per_token: 1e-6,
  output_cost_per_token: 2e-6,
  capabilities: ["streaming", "function_calling", "vision"],
  endpoints: providers.map((id) => ({ provider: id, model: upstreamModel })),
});

beforeAll(async () => {
  provider = startAskedUpstream(async (request) => ({
    body: (request.method === "POST" ? await request.json() : {}) as Fields,
  }));
  searches = startSearchUpstream();
  const configuration = {
    providers: ["house", "other"].map((id) => ({
      ...{ id, type: "openai-compatible", base_url: `${provider.origin}/v1` },
      api_key: "sk-operator-0123456789",
    })),
    models: [
      model("chat", ["house"]),
      model("failing", ["house", "other"]),
      model("gpt-9-search-preview", ["house"]),
    ],
  };
  gateway = await startTestGateway({
    configuration,
    environment: {
      GATEWAY_SEARCH_BACKEND: "searxng",
      GATEWAY_SEARCH_URL: searches.url,
      GATEWAY_SEARCH_API_KEY: SEARCH_KEY,
      // Not a whole number of nano-USD with the fee.
      GATEWAY_WEB_SEARCH_COST_USD: "0.003000001",
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
  });
  bare = await startTestGateway({ configuration: { ...configuration, sandbox: false } });
});
beforeEach(() => {
  said = "Kettles boil water.";
  failures = 0;
  provider.asked.length = 0;
  provider.answer = answer;
  searches.searches.length = 0;
  searches.answer = () => results("one", "two");
  searches.page = (path) => htmlPage(`The page ${path}`);
});
afterEach(() => expectBooksClosed(gateway));
afterAll(async () => {
  await gateway.stop();
  await bare.stop();
  await provider.stop();
  await searches.stop();
});

const pageUrl = (name: string) => `${searches.url}/pages/${name}`;
const results = (...names: string[]) =>
  Response.json({
    results: names.map((name) => ({ url: pageUrl(name), title: `Title ${name}`, content: "S" })),
  });

function answer({ method, body }: { method: string; body: Fields }): Response {
  if (method === "GET") return Response.json({ data: [] });
  if (failures-- > 0) return Response.json({ error: { message: "oops" } }, { status: 503 });
  const head = { id: "c", created: 1, model: body.model };
  if (body.stream !== true) {
    const message = { role: "assistant", content: said };
    return Response.json({
      ...head,
      object: "chat.completion",
      choices: [{ index: 0, message, finish_reason: "stop" }],
      usage: USAGE,
    });
  }
  const chunk = (delta: object, finish: string | null, usage: object | null = null) =>
    `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }], usage })}\n\n`;
  const pieces = said.match(/[\s\S]{1,3}/g) ?? [];
  const text = [
    chunk({ role: "assistant", content: "" }, null),
    ...pieces.map((content) => chunk({ content }, null)),
    chunk({}, "stop", USAGE),
    "data: [DONE]\n\n",
  ].join("");
  return new Response(text, { headers: { "content-type": "text/event-stream" } });
}

const chat = (body: Fields = {}, init: RequestInit & { key?: string } = {}) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    {
      model: "test/chat",
      messages: [{ role: "user", content: "What do kettles do?" }],
      max_tokens: 50,
      plugins: [{ id: "web" }],
      ...body,
    },
    init,
  );

const sentMessages = (at = 0) => provider.asked[at]!.body.messages as readonly Message[];
const withSearch = chargeNanoUsd(TOKENS_FEMTO + SEARCH_FEMTO, FEE);
const withoutSearch = chargeNanoUsd(TOKENS_FEMTO, FEE);

interface Annotation {
  readonly type: string;
  readonly url_citation: {
    readonly url: string;
    readonly title: string;
    readonly content: string;
    readonly start_index: number;
    readonly end_index: number;
  };
}

describe("a chat with the plugin", () => {
  test.each([false, true])(
    "shows nothing of a page that a guardrail blocks (stream: %p)",
    async (stream) => {
      const made = await gateway.request(
        "POST",
        "/v1/guardrails",
        {
          name: `pages ${stream}`,
          rules: [{ type: "pattern", pattern: "nightfall", on: ["output"] }],
        },
        { key: gateway.managementKey },
      );
      expect(made.status).toBe(201);
      searches.page = () => htmlPage("About project nightfall");
      const response = await chat({ stream, guardrail: `pages ${stream}` });
      const text = await response.text();
      expect(text).toContain("content_policy_violation");
      expect(text).not.toContain("nightfall");
    },
  );

  test("is searched for once, gets the pages, cites them, and is billed for tokens and search", async () => {
    said = `They boil water ([127.0.0.1](${pageUrl("two")})). See ${pageUrl("two")} too, not ${pageUrl("one")}s.`;
    const response = await chat({
      messages: [
        { role: "system", content: "Be short." },
        { role: "user", content: "Hello" },
        { role: "assistant", content: "Hi" },
        { role: "user", content: [{ type: "text", text: "What do kettles do?" }] },
      ],
    });
    expect(response.status).toBe(200);
    expect(searches.searches.map(({ query }) => query.q)).toEqual(["What do kettles do?"]);
    const [system, ...others] = sentMessages();
    expect(others.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(system).toMatchObject({ role: "system" });
    const [own, introduction, json] = system!.content.split("\n\n") as [string, string, string];
    expect(own).toBe("Be short.");
    expect(introduction).toContain(new Date().toISOString().slice(0, 4));
    const framed = JSON.parse(json) as { results: { url: string; title: string; text: string }[] };
    expect(framed.results.map(({ url }) => url)).toEqual([pageUrl("one"), pageUrl("two")]);
    expect(framed.results[1]!.text).toStartWith("The page /pages/two");
    expect(provider.asked[0]!.body.plugins).toBeUndefined();

    const body = (await response.json()) as {
      choices: { message: { content: string; annotations: Annotation[] } }[];
      usage: Fields;
    };
    const { content, annotations } = body.choices[0]!.message;
    expect(content).toBe(said);
    expect(annotations.map(({ type }) => type)).toEqual(Array(3).fill("url_citation"));
    const cited = annotations.map(({ url_citation: { url, title, start_index, end_index } }) => ({
      url,
      title,
      text: said.slice(start_index, end_index),
    }));
    expect(cited).toEqual([
      { url: pageUrl("two"), title: "Title two", text: `[127.0.0.1](${pageUrl("two")})` },
      { url: pageUrl("two"), title: "Title two", text: pageUrl("two") },
      { url: pageUrl("one"), title: "Title one", text: "" },
    ]);
    expect(annotations[0]!.url_citation.content).toStartWith("The page /pages/two");

    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ chargeNano: withSearch, quantities: { web_searches: 1 } });
    expect(body.usage.cost).toBe(usdNumber(withSearch));
    expect(Number(response.headers.get("x-gateway-cost"))).toBe(usdNumber(withSearch));
  });

  test("is streamed with its annotations before the end, and billed the same", async () => {
    said = `Read [it](${pageUrl("one")}).`;
    const response = await chat({ stream: true, stream_options: { include_usage: true } });
    const stream = await readStream(response);
    expect(stream).toMatchObject({ content: said, finishReason: "stop", isDone: true });
    const deltas = stream.chunks.flatMap(({ choices }) => choices);
    const at = deltas.findIndex(({ delta }) => delta.annotations !== undefined);
    expect(at).toBe(deltas.length - 2);
    const annotations = deltas[at]!.delta.annotations as Annotation[];
    const [one, two] = annotations.map(({ url_citation }) => url_citation);
    expect(said.slice(one!.start_index, one!.end_index)).toBe(`[it](${pageUrl("one")})`);
    expect(two).toMatchObject({ url: pageUrl("two"), start_index: 0, end_index: 0 });
    expect(stream.usage).toMatchObject({ ...USAGE, cost: usdNumber(withSearch) });
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ chargeNano: withSearch, quantities: { web_searches: 1 } });
  });

  test.each([false, true])(
    "goes on, uncharged for the search, where that fails (stream: %p)",
    async (stream) => {
      searches.answer = () => new Response("no", { status: 429 });
      const response = await chat({ stream });
      expect(response.status).toBe(200);
      expect(await response.text()).not.toContain("url_citation");
      expect(sentMessages()[0]!.content).toStartWith("The web search failed");
      const bill = await billOfResponse(gateway, response);
      expect(bill).toMatchObject({ chargeNano: withoutSearch, quantities: null });
      const logged = gateway.logLines.filter((line) => line.includes("web search failed"));
      expect(logged.length).toBeGreaterThan(0);
      expect(gateway.logLines.join("\n")).not.toContain(SEARCH_KEY);
      expect(logged.join("\n")).not.toContain("kettles");
    },
  );

  test("is kept in the response cache with its annotations, unless the search failed", async () => {
    const headers = { "x-gateway-cache": "on" };
    const cached = (stream: boolean) =>
      chat({ stream, messages: [{ role: "user", content: "Cached kettles?" }] }, { headers });
    const marks: (string | null)[] = [];
    searches.answer = () => new Response("no", { status: 503 });
    for (const stream of [false, true, false, true]) {
      if (marks.length === 2) searches.answer = () => results("one");
      const response = await cached(stream);
      const text = await response.text();
      expect(text.includes("url_citation")).toBe(marks.length >= 2);
      marks.push(response.headers.get("x-gateway-cache"));
    }
    expect(marks.map((mark) => mark === "hit")).toEqual([false, false, false, true]);
    expect(searches.searches).toHaveLength(3);
  });

  test("is searched for once however many candidates are tried", async () => {
    failures = 1;
    const response = await chat({ model: "test/failing" });
    expect(response.status).toBe(200);
    expect(provider.asked).toHaveLength(2);
    expect(searches.searches).toHaveLength(1);
    expect(sentMessages(1)).toEqual(sentMessages(0));
    expect((await billOfResponse(gateway, response)).chargeNano).toBe(withSearch);
  });

  test("costs nothing where no provider answers", async () => {
    failures = 100;
    const response = await chat();
    await expectError(response, 502, "provider_error");
    const id = response.headers.get("x-gateway-request-id")!;
    expect(await billOf(gateway, id)).toBeUndefined();
  });

  test("is refused before the search where no money covers it", async () => {
    const poor = await gateway.addOrganization({ creditUsd: 0.003 });
    const response = await chat({}, { key: poor.secretKey });
    await expectError(response, 402, "insufficient_credits");
    expect(searches.searches).toEqual([]);
    expect(provider.asked).toEqual([]);
  });

  test("never costs more than was held, whatever the pages hold", async () => {
    searches.answer = () => results(...Array.from({ length: 12 }, (_, at) => `p${at}`));
    searches.page = () => htmlPage('\\"\u0001 \u{1f600}漢字'.repeat(2_000));
    await chat({ plugins: [{ id: "web", max_results: 10 }] });
    const [system] = sentMessages();
    const { results: given } = JSON.parse(system!.content.split("\n\n")[1]!) as {
      results: unknown[];
    };
    expect(given).toHaveLength(10);
    expect(Buffer.byteLength(system!.content)).toBeLessThan(512 + 10 * 4_501);
  });

  test("ends its search where the client leaves, and is charged nothing", async () => {
    searches.answer = () => new Promise<Response>(() => {});
    for (const stream of [false, true]) {
      const controller = new AbortController();
      const before = searches.searches.length;
      const leaving = chat({ stream }, { signal: controller.signal });
      await until("it is searched for", () => searches.searches.length > before);
      controller.abort();
      await expect(leaving).rejects.toMatchObject({ name: "AbortError" });
    }
    await expectBooksClosed(gateway);
    expect(provider.asked).toEqual([]);
  });

  test("pays for the search alone where the organization's own provider key serves it", async () => {
    const owner = await gateway.addOrganization({ creditUsd: 1 });
    const key = owner.managementKey;
    const own = { provider: "house", key: "sk-own-0123456789abcdef" };
    expect((await gateway.request("POST", "/v1/provider_keys", own, { key })).status).toBe(201);
    const response = await chat({}, { key: owner.secretKey });
    const bill = await billOfResponse(gateway, response);
    expect(bill.chargeNano).toBe(chargeNanoUsd(SEARCH_FEMTO, FEE));
    expect(bill.details).toMatchObject({ list_price_usd: Number(TOKENS_FEMTO / NANO) / 1e9 });
    const without = await chat({ plugins: [] }, { key: owner.secretKey });
    expect((await billOfResponse(gateway, without)).chargeNano).toBe(0n);
    // A budget that counts the provider's bill counts the search besides.
    const body = { name: "counting", budget_includes_byok: true, daily_budget_usd: 1 };
    const made = await gateway.request("POST", "/v1/keys", body, { key });
    const { id, key: counting } = (await made.json()) as { id: string; key: string };
    expect((await chat({}, { key: counting })).status).toBe(200);
    const shown = await gateway.request("GET", `/v1/keys/${id}`, undefined, { key });
    const spentNano = chargeNanoUsd(TOKENS_FEMTO, 0n) + chargeNanoUsd(SEARCH_FEMTO, FEE);
    expect(await shown.json()).toMatchObject({ usage_today_usd: usdNumber(spentNano) });
  });
});

test("a body that a thread reads is searched for by its last question", async () => {
  const filler = "x".repeat(300_000);
  const response = await chat({
    messages: [
      { role: "system", content: "Be short." },
      { role: "user", content: filler },
      { role: "user", content: "What do kettles do?" },
    ],
    plugins: [{ id: "web", max_results: 1, include_domains: ["127.0.0.1"] }],
  });
  expect(response.status).toBe(200);
  expect(searches.searches[0]!.query.q).toBe("What do kettles do? site:127.0.0.1");
  const [system, first] = sentMessages();
  expect(system!.content).toStartWith("Be short.\n\n");
  expect(system!.content).toContain(pageUrl("one"));
  expect(system!.content).not.toContain(pageUrl("two"));
  expect(first!.content).toBe(filler);
});

describe("a search is also asked for by", () => {
  test("the suffix of the model", async () => {
    const response = await chat({ model: "test/chat:online", plugins: undefined });
    expect(((await response.json()) as Fields).model).toBe("test/chat");
    expect(searches.searches).toHaveLength(1);
    await chat({ model: undefined, models: ["test/chat:online"], plugins: undefined });
    expect(searches.searches).toHaveLength(2);
  });

  test("web_search_options, with its options", async () => {
    const location = { type: "approximate", approximate: { country: "DE" } };
    const options = { search_context_size: "low", user_location: location };
    searches.answer = () => results("one", "two", "three", "four");
    await chat({ plugins: undefined, web_search_options: options });
    expect(sentMessages()[0]!.content).toContain(pageUrl("three"));
    expect(sentMessages()[0]!.content).not.toContain(pageUrl("four"));
    expect(provider.asked[0]!.body.web_search_options).toBeUndefined();
  });

  test("its own prompt", async () => {
    await chat({ plugins: [{ id: "web", search_prompt: "Look at this:" }] });
    expect(sentMessages()[0]!.content).toStartWith("Look at this:\n\n{");
  });
});

test("models that search themselves get the options in the place of a search", async () => {
  const options = { search_context_size: "high" };
  for (const at of [gateway, bare]) {
    const response = await at.request("POST", "/v1/chat/completions", {
      model: "test/gpt-9-search-preview",
      messages: [{ role: "user", content: "What do kettles do?" }],
      web_search_options: options,
    });
    expect(response.status).toBe(200);
    expect(provider.asked.at(-1)!.body.web_search_options).toEqual(options);
  }
  expect(searches.searches).toEqual([]);
});

test("a plugin that is switched off does nothing", async () => {
  const response = await chat({ plugins: [{ id: "web", enabled: false }] });
  expect(response.status).toBe(200);
  expect(searches.searches).toEqual([]);
  expect(sentMessages()).toHaveLength(1);
});

test("without a search backend each way to ask is refused, and the settings are named", async () => {
  for (const [body, param] of [
    [{ plugins: [{ id: "web" }] }, "plugins.0"],
    [{ model: "test/chat:online" }, "plugins.0"],
    [{ web_search_options: {} }, "web_search_options"],
  ] as const) {
    const response = await bare.request("POST", "/v1/chat/completions", {
      ...{ model: "test/chat", messages: [{ role: "user", content: "Hello" }] },
      ...body,
    });
    const { error } = await expectError(response, 400, "unsupported_parameter");
    expect(error).toMatchObject({
      param,
      message: expect.stringContaining("GATEWAY_SEARCH_BACKEND"),
    });
  }
});

describe("what is wrong is refused before anything is searched for:", () => {
  test.each<[string, string, Fields]>([
    ["unsupported_parameter", "plugins.0.id", { plugins: [{ id: "unknown" }] }],
    ["invalid_body", "plugins.1.id", { plugins: [{ id: "web" }, { id: "web" }] }],
    ["unsupported_parameter", "plugins.0.depth", { plugins: [{ id: "web", depth: 3 }] }],
    ["unsupported_parameter", "plugins.0.engine", { plugins: [{ id: "web", engine: "native" }] }],
    [
      "unsupported_parameter",
      "plugins.0.engine",
      { plugins: [{ id: "web", engine: { toString: 1 } }] },
    ],
    ["invalid_body", "plugins.0.max_results", { plugins: [{ id: "web", max_results: 0 }] }],
    ["invalid_body", "plugins.0.max_results", { plugins: [{ id: "web", max_results: 11 }] }],
    ["invalid_body", "plugins.0.max_results", { plugins: [{ id: "web", max_results: "5" }] }],
    ["invalid_body", "plugins.0.search_prompt", { plugins: [{ id: "web", search_prompt: 5 }] }],
    [
      "invalid_body",
      "plugins.0.search_prompt",
      { plugins: [{ id: "web", search_prompt: "x".repeat(4_001) }] },
    ],
    ["invalid_body", "plugins.0.enabled", { plugins: [{ id: "web", enabled: "no" }] }],
    ["invalid_body", "plugins.0.max_uses", { plugins: [{ id: "web", max_uses: 0 }] }],
    [
      "invalid_body",
      "plugins.0.include_domains.0",
      { plugins: [{ id: "web", include_domains: ["https://a.example"] }] },
    ],
    [
      "invalid_body",
      "web_search_options.search_context_size",
      { web_search_options: { search_context_size: "all" } },
    ],
    [
      "unsupported_parameter",
      "web_search_options.filters",
      { web_search_options: { filters: {} } },
    ],
    [
      "invalid_body",
      "plugins.0",
      {
        messages: [
          {
            role: "user",
            content: [{ type: "image_url", image_url: { url: "https://a.example/b.png" } }],
          },
        ],
      },
    ],
  ])("%s %s", async (code, param, body) => {
    const { error } = await expectError(await chat(body), 400, code);
    expect(error.param).toBe(param);
    expect(searches.searches).toEqual([]);
    expect(provider.asked).toEqual([]);
  });
});
