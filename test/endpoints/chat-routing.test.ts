import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

const KEYS = ["sk-first-0123456789", "sk-second-0123456789", "sk-third-0123456789"];
const TERMS = { context_length: 128_000, max_output_tokens: 4_096, category: "chat" };
const DEAR = { input_cost_per_token: 3e-6, output_cost_per_token: 15e-6 };
const CHEAP = { input_cost_per_token: 2.9e-7, output_cost_per_token: 1e-6 };
const PROVIDERS = ["alpha", "beta", "gamma"];

let gateway: TestGateway;
let upstream: Upstream;

beforeAll(async () => {
  upstream = await startUpstream();
  const place = { type: "openai-compatible", base_url: `http://provider.test:${upstream.port}/v1` };
  const providers = PROVIDERS.map((id) => ({
    id,
    type: "openai-compatible",
    base_url: upstream.baseUrl,
    api_key: KEYS[0],
    data_collection: id === "gamma" ? "deny" : "allow",
  }));
  const keyed = { id: "keyed", api_keys: KEYS.map((key) => ({ key })) };
  const model = (slug: string, endpoints: object[]) => ({
    id: `test/${slug}`,
    ...TERMS,
    ...DEAR,
    endpoints,
  });
  const three = (slug: string, extra: (id: string) => object = () => ({})) =>
    model(
      slug,
      PROVIDERS.map((id) => ({
        provider: id,
        model: `${slug}-${id}`,
        ...(id === "beta" && CHEAP),
        ...extra(id),
      })),
    );
  gateway = await startTestGateway({
    configuration: {
      providers: [...providers, { ...place, base_url: upstream.baseUrl, ...keyed }],
      models: [
        three("plain"),
        three("failing"),
        three("weighted", (id) => ({ weight: id === "alpha" ? 0 : 1 })),
        three("warm", () => ({ cached_input_cost_per_token: 1e-7 })),
        model("keyed", [{ provider: "keyed", model: "keyed" }]),
        model("keyed-limited", [{ provider: "keyed", model: "keyed-limited" }]),
      ],
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await gateway.stop();
});
afterEach(() => expectBooksClosed(gateway));

const chat = (slug: string, body: object = {}) =>
  gateway.request("POST", "/v1/chat/completions", {
    model: `test/${slug}`,
    messages: [{ role: "user", content: "hello" }],
    route_explain: true,
    ...body,
  });

const explained = (response: Response) => response.headers.get("x-gateway-route-explain");

describe("provider", () => {
  const CASES: [string, object, string, string][] = [
    [
      "nothing",
      {},
      "alpha",
      "planned: alpha, beta, gamma; tried: alpha=ok; not needed: beta, gamma",
    ],
    [
      "only",
      { only: ["gamma", "beta", "unknown"] },
      "beta",
      "planned: beta, gamma; tried: beta=ok; not needed: gamma; skipped: alpha=not_in_only",
    ],
    [
      "ignore",
      { ignore: ["alpha"] },
      "beta",
      "planned: beta, gamma; tried: beta=ok; not needed: gamma; skipped: alpha=ignored",
    ],
    [
      "sort",
      { sort: "price" },
      "beta",
      "planned: beta, alpha, gamma; tried: beta=ok; sorted by: price; not needed: alpha, gamma",
    ],
    [
      "max_price at the price itself",
      { max_price: { prompt: 0.29, completion: 1 } },
      "beta",
      "planned: beta; tried: beta=ok; skipped: alpha=above_max_price, gamma=above_max_price",
    ],
    [
      "data_collection",
      { data_collection: "deny" },
      "gamma",
      "planned: gamma; tried: gamma=ok; skipped: alpha=may_collect_data, beta=may_collect_data",
    ],
    [
      "order without fallbacks",
      { order: ["gamma", "beta"], allow_fallbacks: false },
      "gamma",
      "planned: gamma, beta; tried: gamma=ok; not needed: beta; skipped: alpha=no_fallbacks",
    ],
    [
      "sort without fallbacks",
      { sort: "price", allow_fallbacks: false },
      "beta",
      "planned: beta; tried: beta=ok; sorted by: price; skipped: alpha=no_fallbacks, gamma=no_fallbacks",
    ],
    [
      "nulls",
      { order: null, only: null, ignore: null, sort: null, max_price: null, data_collection: null },
      "alpha",
      "planned: alpha, beta, gamma; tried: alpha=ok; not needed: beta, gamma",
    ],
  ];
  test.each(CASES)("%s", async (_, provider, serving, route) => {
    for (const stream of [false, true]) {
      const response = await chat("plain", { provider, stream });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-provider")).toBe(serving);
      const places = route.replace(/\b(alpha|beta|gamma)\b/g, "$1/plain-$1");
      expect(explained(response)).toBe(places);
      await response.text();
    }
  });

  test.each([
    ["order", { order: ["delta"], allow_fallbacks: false }],
    ["only", { only: ["delta"] }],
    ["ignore", { ignore: PROVIDERS }],
    ["max_price", { max_price: { prompt: 0.1 } }],
    ["data_collection", { only: ["alpha"], data_collection: "deny" }],
  ])("%s that leaves none is 400, and costs nothing", async (member, provider) => {
    const { error } = await expectError(await chat("plain", { provider }), 400, "invalid_body");
    expect(error.param).toBe(`provider.${member}`);
    expect(error.message).toContain("test/plain");
  });

  test("holds for a long body too", async () => {
    const messages = [{ role: "user", content: "word ".repeat(20_000) }];
    const response = await chat("plain", { messages, provider: { only: ["gamma"] } });
    expect(response.headers.get("x-gateway-provider")).toBe("gamma");
  });

  test("holds for embeddings too: a preference that leaves none is 400", async () => {
    const body = { model: "sandbox/embed", input: "hello", provider: { ignore: ["sandbox"] } };
    const response = await gateway.request("POST", "/v1/embeddings", body);
    expect((await expectError(response, 400, "invalid_body")).error.param).toBe("provider.ignore");
  });
});

describe("weights", () => {
  const talk = (name: string, turns = 1) => ({
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: name },
      ...Array.from({ length: turns - 1 }, () => [
        { role: "assistant", content: "yes" },
        { role: "user", content: "and?" },
      ]).flat(),
    ],
  });

  test("share out conversations, and keep each at its endpoint", async () => {
    const seen: Record<string, number> = {};
    for (let at = 0; at < 30; at++) {
      const first = await chat("weighted", talk(`talk ${at}`));
      const provider = first.headers.get("x-gateway-provider")!;
      seen[provider] = (seen[provider] ?? 0) + 1;
      const later = await chat("weighted", { ...talk(`talk ${at}`, 3), stream: at % 2 === 0 });
      expect(later.headers.get("x-gateway-provider")).toBe(provider);
      expect(explained(later)).toContain("sorted by: weight");
      await later.text();
    }
    expect(Object.keys(seen).toSorted()).toEqual(["beta", "gamma"]);
  });

  test("keep a conversation with a long first message, whatever its later turns", async () => {
    const long = (at: number, turns: number) => talk(`${"word ".repeat(20_000)}${at}`, turns);
    for (let at = 0; at < 4; at++) {
      const first = await chat("weighted", long(at, 1));
      const later = await chat("weighted", long(at, 2));
      const provider = first.headers.get("x-gateway-provider");
      expect(later.headers.get("x-gateway-provider")).toBe(provider);
    }
  });

  test("keep a session together, whatever its messages", async () => {
    for (let session = 0; session < 6; session++) {
      const served = new Set<string | null>();
      for (let at = 0; at < 4; at++) {
        const response = await chat("weighted", {
          ...talk(`turn ${at}`),
          session_id: `s${session}`,
        });
        served.add(response.headers.get("x-gateway-provider"));
      }
      expect(served.size).toBe(1);
    }
  });
});

describe("a conversation whose first endpoint fails", () => {
  const turn = (name: string, body: object = {}) =>
    chat("warm", { messages: [{ role: "user", content: name }], ...body });
  const providerOf = (response: Response) => response.headers.get("x-gateway-provider");

  test("stays where it went on, whose cache has its prompt, until that fails too", async () => {
    for (const stream of [false, true]) {
      const name = `talk ${stream}`;
      upstream.enqueue("warm-alpha", { do: "error", status: 500 });
      const moved = await turn(name, { stream });
      expect(providerOf(moved)).toBe("beta");
      await moved.text();
      const later = await turn(name, { stream });
      expect(explained(later)).toBe(
        "planned: beta/warm-beta, alpha/warm-alpha, gamma/warm-gamma; tried: beta/warm-beta=ok; not needed: alpha/warm-alpha, gamma/warm-gamma",
      );
      await later.text();
      expect(providerOf(await turn(`another ${name}`))).toBe("alpha");
      const ordered = await turn(name, { provider: { order: ["alpha"] } });
      expect(providerOf(ordered)).toBe("alpha");
      upstream.enqueue("warm-beta", { do: "error", status: 500 });
      expect(providerOf(await turn(name))).toBe("alpha");
      expect(providerOf(await turn(name))).toBe("alpha");
    }
  });
});

describe("several keys of one provider", () => {
  const keysUsed = (model: string) =>
    upstream.servedOf(model).map(({ headers }) => headers.authorization?.replace("Bearer ", ""));

  test("share out its calls", async () => {
    for (let at = 0; at < 24; at++) {
      const messages = [{ role: "user", content: `talk ${at}` }];
      expect((await chat("keyed", { messages })).status).toBe(200);
    }
    expect([...new Set(keysUsed("keyed"))].toSorted()).toEqual(KEYS.toSorted());
  });

  test("a limited one is left alone for as long as the provider says, and the others go on", async () => {
    upstream.enqueue("keyed-limited", { do: "rate-limited", retryAfter: { seconds: 60 } });
    for (let at = 0; at < 6; at++) {
      const response = await chat("keyed-limited", { session_id: "one" });
      expect(response.status).toBe(200);
      const route = explained(response)!;
      expect(route).toMatch(
        at === 0 ? /=rate_limited, keyed\/keyed-limited#\d=ok/ : /unhealthy: keyed/,
      );
      for (const key of KEYS) expect(route).not.toContain(key);
    }
    const used = keysUsed("keyed-limited");
    expect(used.filter((key) => key === used[0])).toHaveLength(1);
    expect(used).toHaveLength(7);
  });

  test("a refused one is left alone, and the next one answers", async () => {
    upstream.reset();
    upstream.enqueue("keyed", { do: "error", status: 401 });
    for (let at = 0; at < 3; at++) {
      expect((await chat("keyed", { session_id: "other" })).status).toBe(200);
    }
    const used = keysUsed("keyed");
    expect(used).toHaveLength(4);
    expect(used.filter((key) => key === used[0])).toHaveLength(1);
  });
});
