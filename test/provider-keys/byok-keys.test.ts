import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { payloadFaults } from "../support/event-payload.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

const OPERATORS_KEY = "sk-operator-0123456789";
const PRICES = { input_cost_per_token: 1e-6, output_cost_per_token: 2e-6 };

/** A provider that looks at keys, and notes with which it was called. */
function startProvider() {
  const taken = new Set([OPERATORS_KEY]);
  const calls: string[] = [];
  let usage = USAGE;
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const key = request.headers.get("authorization")?.replace("Bearer ", "") ?? "";
      const { pathname } = new URL(request.url);
      if (pathname.endsWith("/models")) {
        return taken.has(key) ? Response.json({ data: [] }) : refused(key);
      }
      calls.push(key);
      if (!taken.has(key)) return refused(key);
      const { stream, model } = (await request.json()) as { stream?: boolean; model: string };
      return stream ? streamed(model) : Response.json(completion(model, usage));
    },
  });
  return {
    taken,
    calls,
    reportUsage: (reported: typeof USAGE) => {
      usage = reported;
    },
    baseUrl: `http://127.0.0.1:${server.port}/v1`,
    stop: () => server.stop(true),
  };
}

const refused = (key: string) =>
  Response.json({ error: { message: `Incorrect API key provided: ${key}` } }, { status: 401 });
const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };

function completion(model: string, usage: typeof USAGE) {
  const message = { role: "assistant", content: "Hello." };
  return {
    id: "c",
    object: "chat.completion",
    created: 1,
    model,
    choices: [{ index: 0, message, finish_reason: "stop" }],
    usage,
  };
}

function streamed(model: string): Response {
  const chunk = (delta: object, finish: string | null, usage: object | null = null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason: finish }], usage })}\n\n`;
  const text = chunk({ role: "assistant", content: "Hello." }, null) + chunk({}, "stop", USAGE);
  return new Response(`${text}data: [DONE]\n\n`, {
    headers: { "content-type": "text/event-stream" },
  });
}

let gateway: TestGateway;
let provider: ReturnType<typeof startProvider>;
let lastKey = 0;

beforeAll(async () => {
  provider = startProvider();
  gateway = await startTestGateway({
    environment: { GATEWAY_EGRESS_ALLOW: "127.0.0.0/8", GATEWAY_WEBHOOK_ALLOW_HTTP: "true" },
    configuration: {
      providers: [
        {
          id: "house",
          type: "openai-compatible",
          base_url: provider.baseUrl,
          api_key: OPERATORS_KEY,
        },
        { id: "unlocked", type: "openai-compatible", base_url: provider.baseUrl },
      ],
      models: ["chat", "other", "third"].map((slug) => ({
        id: `test/${slug}`,
        category: "chat",
        context_length: 8_192,
        max_output_tokens: 1_024,
        ...PRICES,
        endpoints: [{ provider: "house", model: slug }],
      })),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});
afterEach(() => expectBooksClosed(gateway));

interface Tenant {
  readonly id: string;
  readonly secretKey: string;
  readonly managementKey: string;
}

async function tenant(options: { creditUsd?: number; plan?: string } = {}): Promise<Tenant> {
  const { organization, secretKey, managementKey } = await gateway.addOrganization(options);
  return { id: organization.id, secretKey, managementKey };
}

/** A key that the provider takes, brought by the organization. */
async function bring(
  { managementKey }: Tenant,
  more: object = {},
): Promise<{ id: string; key: string }> {
  const key = `sk-own-${lastKey++}-0123456789abcdef`;
  provider.taken.add(key);
  const body = { provider: "house", key, ...more };
  const response = await gateway.request("POST", "/v1/provider_keys", body, { key: managementKey });
  expect(response.status).toBe(201);
  return { id: ((await response.json()) as { id: string }).id, key };
}

const chat = ({ secretKey }: Tenant, slug = "chat", body: object = {}) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    {
      model: `test/${slug}`,
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 50,
      ...body,
    },
    { key: secretKey },
  );

const listed = async ({ managementKey }: Tenant) => {
  const response = await gateway.request("GET", "/v1/provider_keys", undefined, {
    key: managementKey,
  });
  return ((await response.json()) as { data: Record<string, unknown>[] }).data;
};

describe("a provider key", () => {
  test("reads the files of its account, which the operator's key does not", async () => {
    const owner = await tenant();
    const file = { type: "file", file: { file_id: "file-1" } };
    const body = { messages: [{ role: "user", content: [file] }] };
    const calls = provider.calls.length;
    const { error } = await expectError(
      await chat(owner, "chat", body),
      400,
      "unsupported_parameter",
    );
    expect(error.param).toBe("messages.0.content.0");
    expect(provider.calls).toHaveLength(calls);
    const { key } = await bring(owner);
    expect((await chat(owner, "chat", body)).status).toBe(200);
    expect(provider.calls.slice(calls)).toEqual([key]);
  });

  test("is shown without its secret, stored sealed, and deleted", async () => {
    const owner = await tenant();
    const { id, key } = await bring(owner, { name: "Ours" });
    expect(await listed(owner)).toEqual([
      {
        id,
        provider: "house",
        name: "Ours",
        key_prefix: key.slice(0, 6),
        is_valid: true,
        created_at: expect.any(String),
      },
    ]);
    const [row] = await gateway.sql`SELECT secret, key_prefix FROM provider_keys WHERE id = ${id}`;
    expect(Buffer.from(row!.secret).includes(key)).toBeFalse();
    const removed = await gateway.request("DELETE", `/v1/provider_keys/${id}`, undefined, {
      key: owner.managementKey,
    });
    expect(await removed.json()).toEqual({ id, deleted: true });
    expect(await listed(owner)).toEqual([]);
    await chat(owner);
    expect(provider.calls.at(-1)).toBe(OPERATORS_KEY);
  });

  test("that the provider refuses is not stored, and not quoted, and is reported", async () => {
    const owner = await tenant();
    const key = "sk-refused-0123456789abcdef";
    const body = { provider: "house", key };
    const response = await gateway.request("POST", "/v1/provider_keys", body, {
      key: owner.managementKey,
    });
    const { error } = await expectError(response, 400, "invalid_provider_key");
    expect(error).toMatchObject({ param: "key" });
    expect(error.message).not.toContain(key);
    expect(await listed(owner)).toEqual([]);
    expect(gateway.logLines.join("")).not.toContain(key);
    const events = await gateway.sql`SELECT data FROM outbox
      WHERE organization_id = ${owner.id} AND type = 'provider_key.invalid'`;
    expect(events.map(({ data }) => data)).toEqual([{ provider_key_id: null, provider: "house" }]);
    expect(payloadFaults("provider_key.invalid", events[0]!.data)).toEqual([]);
  });

  test.each([
    [{ provider: "nobody", key: "sk-0123456789" }, "invalid_body", "provider"],
    [{ provider: "sandbox", key: "sk-0123456789" }, "invalid_body", "provider"],
    [{ provider: "house", key: "sk 0123456789" }, "invalid_body", "key"],
    // A server without keys takes any, and calls with an own key are not charged.
    [{ provider: "unlocked", key: OPERATORS_KEY }, "invalid_body", "base_url"],
    [
      { provider: "house", key: "sk-1", base_url: "http://10.0.0.1/v1" },
      "invalid_body",
      "base_url",
    ],
    [
      { provider: "house", key: "sk-1", base_url: "https://user:pw@example.com" },
      "invalid_body",
      "base_url",
    ],
    [
      { provider: "house", key: "sk-1", base_url: "https://169.254.169.254/v1" },
      "invalid_body",
      "base_url",
    ],
    [
      { provider: "house", key: "sk-1", base_url: "file:///etc/passwd" },
      "invalid_body",
      "base_url",
    ],
  ])("%j is 400", async (body, code, param) => {
    const response = await gateway.request("POST", "/v1/provider_keys", body, {
      key: gateway.managementKey,
    });
    expect((await expectError(response, 400, code)).error.param).toBe(param);
  });

  test("is not stored where the provider cannot be asked", async () => {
    const owner = await tenant();
    const body = { provider: "house", key: "sk-0123456789", base_url: "http://127.0.0.1:1/v1" };
    const response = await gateway.request("POST", "/v1/provider_keys", body, {
      key: owner.managementKey,
    });
    await expectError(response, 502, "provider_error");
    expect(await listed(owner)).toEqual([]);
  });

  test("belongs to its organization, and to keys that may manage it", async () => {
    const [owner, other] = [await tenant(), await tenant()];
    const { id } = await bring(owner);
    const foreign = await gateway.request("DELETE", `/v1/provider_keys/${id}`, undefined, {
      key: other.managementKey,
    });
    await expectError(foreign, 404, "provider_key_not_found");
    expect(await listed(other)).toEqual([]);
    const limited = await addSecretKey(gateway, { scopes: ["chat:completions"] });
    const unscoped = await gateway.request("GET", "/v1/provider_keys", undefined, { key: limited });
    expect(unscoped.status).toBe(403);
  });

  test("with an address of its own is called there", async () => {
    const elsewhere = startProvider();
    const owner = await tenant();
    const key = "sk-elsewhere-0123456789";
    elsewhere.taken.add(key);
    const body = { provider: "house", key, base_url: elsewhere.baseUrl };
    const added = await gateway.request("POST", "/v1/provider_keys", body, {
      key: owner.managementKey,
    });
    expect(added.status).toBe(201);
    expect((await chat(owner)).status).toBe(200);
    expect(elsewhere.calls).toEqual([key]);
    await elsewhere.stop();
  });
});

describe("calls with an organization's own key", () => {
  test.each([false, true])(
    "cost nothing here, and are recorded with their list price; streamed: %p",
    async (stream) => {
      const owner = await tenant({ creditUsd: 0 });
      const { id, key } = await bring(owner);
      const response = await chat(owner, "chat", { stream, route_explain: true });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-route-explain")).toBe(
        `planned: house/chat@${id}; tried: house/chat@${id}=ok`,
      );
      if (stream) expect((await readStream(response)).content).toBe("Hello.");
      else expect(((await response.json()) as { usage: { cost: number } }).usage.cost).toBe(0);
      expect(provider.calls.at(-1)).toBe(key);
      expect(await billOfResponse(gateway, response)).toMatchObject({
        chargeNano: 0n,
        provider: "house",
        model: "test/chat",
        promptTokens: 10,
        completionTokens: 5,
        details: { provider_key_id: id, list_price_usd: 0.00002 },
      });
    },
  );

  test("end at the operator's key, with its charge, once the own one is refused; one event reports it", async () => {
    const [owner, bystander] = [await tenant(), await tenant()];
    const [mine, theirs] = [await bring(owner), await bring(bystander)];
    provider.taken.delete(mine.key);
    const responses = await Promise.all(Array.from({ length: 5 }, () => chat(owner, "other")));
    for (const response of responses) {
      expect(response.status).toBe(200);
      expect(Number(response.headers.get("x-gateway-cost"))).toBeGreaterThan(0);
    }
    await until("the key is noted as refused", async () => !(await listed(owner))[0]!.is_valid);
    const events = await gateway.sql`SELECT data FROM outbox
      WHERE organization_id = ${owner.id} AND type = 'provider_key.invalid'`;
    expect(events.map(({ data }) => data)).toEqual([
      { provider_key_id: mine.id, provider: "house" },
    ]);
    expect(payloadFaults("provider_key.invalid", events[0]!.data)).toEqual([]);
    await until("calls leave the key alone", async () => {
      provider.calls.length = 0;
      expect((await chat(owner, "other")).status).toBe(200);
      return provider.calls.length === 1 && provider.calls[0] === OPERATORS_KEY;
    });
    const undisturbed = await chat(bystander, "other", { route_explain: true });
    expect(undisturbed.headers.get("x-gateway-route-explain")).toBe(
      `planned: house/other@${theirs.id}, house/other; tried: house/other@${theirs.id}=ok; not needed: house/other`,
    );
  });

  test("that fail do not open the operator's circuit", async () => {
    const owner = await tenant();
    const { key } = await bring(owner);
    provider.taken.delete(key);
    for (let at = 0; at < 15; at++) await chat(owner, "third");
    const bystander = await chat(await tenant(), "third", { route_explain: true });
    expect(bystander.headers.get("x-gateway-route-explain")).toBe(
      "planned: house/third; tried: house/third=ok",
    );
  });

  test("need no money, where the operator's need more than there is", async () => {
    const owner = await tenant({ creditUsd: 0.000001 });
    const { id, key } = await bring(owner);
    const response = await chat(owner, "chat", { max_tokens: 1_000, route_explain: true });
    expect(response.headers.get("x-gateway-route-explain")).toContain(`planned: house/chat@${id};`);
    expect(provider.calls.at(-1)).toBe(key);
    provider.taken.delete(key);
    await expectError(await chat(owner, "chat", { max_tokens: 1_000 }), 502, "provider_error");
  });

  describe("and a key whose budgets count them", () => {
    /** What a call of the tests costs by its list price. */
    const LIST_USD = 0.00002;
    const limited = async ({ managementKey }: Tenant, body: object) => {
      const response = await gateway.request(
        "POST",
        "/v1/keys",
        { name: crypto.randomUUID(), budget_includes_byok: true, ...body },
        { key: managementKey },
      );
      expect(response.status).toBe(201);
      const created = (await response.json()) as { id: string; key: string };
      expect(created).toMatchObject({ budget_includes_byok: true, ...body });
      return created;
    };
    const itself = async (key: string) => {
      const response = await gateway.request("GET", "/v1/key", undefined, { key });
      return (await response.json()) as Record<string, unknown>;
    };

    test.each([false, true])(
      "count against it by their list price, and are charged nothing; streamed: %p",
      async (stream) => {
        const owner = await tenant({ creditUsd: 0 });
        const { id } = await bring(owner);
        const key = await limited(owner, { daily_budget_usd: 1 });
        const response = await chat({ ...owner, secretKey: key.key }, "chat", { stream });
        expect(response.status).toBe(200);
        await response.text();
        expect(await billOfResponse(gateway, response)).toMatchObject({
          chargeNano: 0n,
          details: { provider_key_id: id, list_price_usd: LIST_USD },
        });
        expect(await itself(key.key)).toMatchObject({
          budget_includes_byok: true,
          usage_today_usd: LIST_USD,
          usage_month_usd: LIST_USD,
          remaining_today_usd: 1 - LIST_USD,
        });
      },
    );

    test("are 402 where it does not cover them, also many at once", async () => {
      const owner = await tenant();
      await bring(owner);
      // What is held of a call: bytes of the prompt, and 50 tokens of the answer.
      const key = await limited(owner, { monthly_budget_usd: 0.0006 });
      const payer = { ...owner, secretKey: key.key };
      const calls = await Promise.all(
        Array.from({ length: 40 }, (_, at) => chat(payer, "chat", { stream: at % 2 === 0 })),
      );
      for (const response of calls) {
        if (response.status !== 200) await expectError(response, 402, "budget_exhausted");
        else await response.text();
      }
      const served = calls.filter(({ status }) => status === 200).length;
      expect(served).toBeWithin(1, 31);
      const { usage_month_usd } = await itself(key.key);
      expect(usage_month_usd as number).toBeCloseTo(served * LIST_USD, 9);
      const [row] = await gateway.sql`SELECT credit_nano, posted_nano FROM accounts
        WHERE id = ${`org:${owner.id}`}`;
      expect(row!.posted_nano).toBe(0n);
    });

    test("report thresholds of its budget", async () => {
      const owner = await tenant({ creditUsd: 0 });
      await bring(owner);
      const { key, id } = await limited(owner, { daily_budget_usd: 0.0005 });
      const payer = { ...owner, secretKey: key };
      for (let at = 0; at < 13; at++) expect((await chat(payer)).status).toBe(200);
      const events = await gateway.sql`SELECT type, data FROM outbox
        WHERE organization_id = ${owner.id} AND data->>'key_id' = ${id} AND type LIKE 'budget.%'`;
      expect(events.map(({ type, data }) => [type, data.threshold_percent])).toEqual([
        ["budget.threshold", 50],
      ]);
    });

    test("count again from when that is switched on, and no more once it is switched off", async () => {
      const owner = await tenant({ creditUsd: 0 });
      await bring(owner);
      const { key, id } = await limited(owner, { daily_budget_usd: 1 });
      const change = async (budget_includes_byok: unknown) => {
        const body = { budget_includes_byok };
        const init = { key: owner.managementKey };
        return gateway.request("PATCH", `/v1/keys/${id}`, body, init);
      };
      expect(await (await change(false)).json()).toMatchObject({ budget_includes_byok: false });
      expect((await chat({ ...owner, secretKey: key })).status).toBe(200);
      expect(await itself(key)).toMatchObject({ usage_today_usd: 0 });
      expect((await change(true)).status).toBe(200);
      expect((await chat({ ...owner, secretKey: key })).status).toBe(200);
      expect(await itself(key)).toMatchObject({ usage_today_usd: LIST_USD });
      for (const odd of ["true", 1, null]) {
        const { error } = await expectError(await change(odd), 400, "invalid_body");
        expect(error.param).toBe("budget_includes_byok");
      }
    });

    test("that end at the operator's key are charged what the budget holds, whatever its provider reports", async () => {
      const owner = await tenant({ creditUsd: 10 });
      const { key: own } = await bring(owner);
      const { key } = await limited(owner, { daily_budget_usd: 0.001 });
      provider.taken.delete(own);
      provider.reportUsage({ prompt_tokens: 10, completion_tokens: 900, total_tokens: 910 });
      try {
        const response = await chat({ ...owner, secretKey: key }, "chat", {
          max_tokens: undefined,
        });
        expect(response.status).toBe(200);
        expect(provider.calls.at(-1)).toBe(OPERATORS_KEY);
        expect(await billOfResponse(gateway, response)).toMatchObject({ chargeNano: 1_000_000n });
        expect(await itself(key)).toMatchObject({ usage_today_usd: 0.001 });
      } finally {
        provider.reportUsage(USAGE);
      }
    });

    test("go on alone where the budget does not cover the operator's endpoint behind them", async () => {
      const owner = await tenant({ creditUsd: 0.000001 });
      const { key: own } = await bring(owner);
      const { key } = await limited(owner, { daily_budget_usd: 1 });
      expect((await chat({ ...owner, secretKey: key })).status).toBe(200);
      expect(provider.calls.at(-1)).toBe(own);
      expect(await itself(key)).toMatchObject({ usage_today_usd: LIST_USD });
    });
  });

  test("never fail for one organization because another's key was revoked, streamed or not", async () => {
    const [owner, bystander] = [await tenant(), await tenant()];
    const [revoked, good] = [await bring(owner), await bring(bystander)];
    provider.taken.delete(revoked.key);
    const both = Array.from({ length: 60 }, async (_, at) => {
      const stream = at % 2 === 0;
      const [, response] = await Promise.all([
        chat(owner, "third", { stream }).then((one) => one.text()),
        chat(bystander, "third", { stream, route_explain: true }),
      ]);
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-route-explain")).toContain(
        `tried: house/third@${good.id}=ok`,
      );
      const text = await response.text();
      expect(text).toContain("Hello.");
      if (stream) expect(text).toEndWith("data: [DONE]\n\n");
    });
    await Promise.all(both);
    await until("the key is noted as refused", async () => !(await listed(owner))[0]!.is_valid);
    expect((await listed(bystander))[0]!.is_valid).toBeTrue();
    expect((await chat(await tenant(), "third")).status).toBe(200);
  });

  test("are the only ones that the plan byok makes", async () => {
    const owner = await tenant({ plan: "byok", creditUsd: 0 });
    const before = await expectError(await chat(owner), 402, "insufficient_credits");
    expect(before.error.message).toContain("house");
    const { key } = await bring(owner);
    expect((await chat(owner)).status).toBe(200);
    expect(provider.calls.at(-1)).toBe(key);
    provider.taken.delete(key);
    await expectError(await chat(owner), 502, "provider_error");
    expect(provider.calls.at(-1)).toBe(key);
  });
});
