import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectError } from "../../support/error-envelope.ts";
import { billOf, expectBooksClosed } from "../../support/ledger-checks.ts";
import { readStream } from "../../support/stream-reader.ts";
import type { Behaviour } from "../../upstream/behaviours.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ON = { headers: { "x-gateway-cache": "on" } };
const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;
const outcomeOf = (response: Response) => response.headers.get("x-gateway-cache");
const idOf = (response: Response) => response.headers.get("x-gateway-request-id")!;

/** Asks for a whole answer and reads it. */
async function ask(slug: string, body: Record<string, unknown> = {}, init: RequestInit = ON) {
  const response = await gateway.chat(slug, body, init);
  const completion = (await response.json()) as {
    id: string;
    choices: { message: Record<string, unknown>; finish_reason: string }[];
    usage: { cost: number; prompt_tokens: number };
  };
  return { response, completion };
}

describe("an equal request", () => {
  test("gets the answer of the first one for nothing, under an id of its own", async () => {
    const slug = gateway.modelThat(
      { do: "complete", content: "first" },
      { do: "complete", content: "second" },
    );
    const miss = await ask(slug);
    expect(outcomeOf(miss.response)).toBe("miss");
    const hit = await ask(slug);
    expect(hit.response.status).toBe(200);
    expect(outcomeOf(hit.response)).toBe("hit");
    expect(hit.completion.choices).toEqual(miss.completion.choices);
    expect(hit.completion.usage).toEqual({ ...miss.completion.usage, cost: 0 });
    expect(hit.completion.id).not.toBe(miss.completion.id);
    expect(hit.completion.id).toContain(idOf(hit.response).slice(4));
    const { headers } = hit.response;
    expect(headers.get("x-gateway-cost")).toBe("0");
    expect(headers.get("x-gateway-cache-savings")).toBe(
      miss.response.headers.get("x-gateway-cost"),
    );
    for (const name of [
      "x-gateway-cache-key",
      "x-gateway-model",
      "x-gateway-provider",
      "content-type",
    ]) {
      expect(headers.get(name)).toBe(miss.response.headers.get(name));
    }
    expect(callsOf(slug)).toBe(1);
    const bill = await billOf(gateway, idOf(hit.response));
    expect(bill).toMatchObject({
      chargeNano: 0n,
      model: `test/${slug}`,
      status: 200,
      promptTokens: 0,
    });
    expect(bill!.details).toMatchObject({
      cache: "hit",
      cache_savings_usd: miss.completion.usage.cost,
    });
  });

  test("is found by what decides about the answer: the order of members and who asks decide nothing", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug, { temperature: 0.5, seed: 7, user: "ada", metadata: { run: 1 } });
    const again = [
      { seed: 7, temperature: 0.5, user: "grace" },
      { seed: 7, temperature: 0.5, session_id: "s", trace: { a: 1 }, stop: null },
      { seed: 7, temperature: 0.5, stream: false, stream_options: null },
    ];
    for (const body of again) expect(outcomeOf((await ask(slug, body)).response)).toBe("hit");
    const others = [
      { seed: 8, temperature: 0.5 },
      { seed: 7, temperature: 0.6 },
      { seed: 7, temperature: 0.5, max_tokens: 10 },
      { seed: 7, temperature: 0.5, messages: [{ role: "user", content: "Hello" }] },
      { seed: 7, temperature: 0.5, provider: { allow_fallbacks: false } },
      { seed: 7, temperature: 0.5, tools: [{ type: "function", function: { name: "f" } }] },
    ];
    for (const body of others) expect(outcomeOf((await ask(slug, body)).response)).toBe("miss");
    expect(callsOf(slug)).toBe(1 + others.length);
  });

  test("without the header neither finds nor leaves an answer", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    for (const init of [{}, ON, {}]) {
      const { response } = await ask(slug, {}, init);
      expect(outcomeOf(response)).toBe(init === ON ? "miss" : null);
    }
    expect(callsOf(slug)).toBe(3);
    expect(outcomeOf((await ask(slug)).response)).toBe("hit");
  });
});

describe("streams", () => {
  const options = { stream: true, stream_options: { include_usage: true } };

  test.each([
    ["a stream", options, options],
    ["a whole answer", {}, options],
    ["a stream, for a whole answer", options, {}],
    ["a stream without usage, for one with it", { stream: true }, options],
  ])("%s is given again as it is asked for", async (_, first, then) => {
    const slug = gateway.modelThat({ do: "complete", content: "Grüße, ✓ a longer text" });
    await (await gateway.chat(slug, first, ON)).text();
    const response = await gateway.chat(slug, then, ON);
    expect(outcomeOf(response)).toBe("hit");
    expect(callsOf(slug)).toBe(1);
    if (then === options) {
      expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
      const stream = await readStream(response);
      expect(stream).toMatchObject({
        content: "Grüße, ✓ a longer text",
        finishReason: "stop",
        isDone: true,
        usage: { cost: 0 },
      });
      for (const { id } of stream.chunks) expect(id).toContain(idOf(response).slice(4));
    } else {
      const { choices, usage } = (await response.json()) as Awaited<
        ReturnType<typeof ask>
      >["completion"];
      expect(choices[0]).toMatchObject({
        message: { role: "assistant", content: "Grüße, ✓ a longer text" },
        finish_reason: "stop",
      });
      expect(usage).toMatchObject({ cost: 0 });
    }
  });

  test("that the client leaves, or that break, are not kept", async () => {
    const cut = gateway.modelThat({ do: "cut", afterEvents: 3 });
    const left = gateway.modelThat({ do: "stall-after-events", afterEvents: 2 });
    expect((await readStream(await gateway.chat(cut, options, ON))).isDone).toBeFalse();
    const leaving = new AbortController();
    const response = await gateway.chat(left, options, { ...ON, signal: leaving.signal });
    await response.body!.getReader().read();
    leaving.abort();
    for (const slug of [cut, left]) {
      gateway.upstream.behave(slug, { do: "complete" });
      expect(outcomeOf((await ask(slug)).response)).toBe("miss");
      expect(outcomeOf((await ask(slug)).response)).toBe("hit");
    }
  });
});

describe("not kept are", () => {
  const filtered = {
    choices: [
      { index: 0, message: { role: "assistant", content: "" }, finish_reason: "content_filter" },
    ],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };

  test.each([
    ["errors", { do: "error", status: 400 }, 400],
    ["answers that were filtered", { do: "frames", frames: [filtered] }, 200],
    ["refusals", { do: "refusal", content: "I cannot do that" }, 200],
    [
      "answers that the gateway cannot read again",
      { do: "complete", content: "x".repeat(300_000) },
      200,
    ],
  ] as [string, Behaviour, number][])("%s", async (_, first, status) => {
    const slug = gateway.modelThat(first, { do: "complete" });
    const response = await gateway.chat(slug, {}, ON);
    await response.text();
    expect(response.status).toBe(status);
    expect(outcomeOf(response)).toBe("miss");
    expect(outcomeOf((await ask(slug)).response)).toBe("miss");
    expect(outcomeOf((await ask(slug)).response)).toBe("hit");
  });

  test("answers that the money cut short", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const poor = await addSecretKey(gateway, { dailyBudgetNano: 300_000n });
    const lowered = await gateway.chat(slug, {}, { ...ON, key: poor });
    expect(lowered.status).toBe(200);
    expect(lowered.headers.get("x-gateway-max-tokens")).not.toBeNull();
    expect(outcomeOf((await ask(slug)).response)).toBe("miss");
  });

  test("answers that the provider stores", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    for (let call = 0; call < 2; call++) {
      expect(outcomeOf((await ask(slug, { store: true })).response)).toBeNull();
    }
    expect(callsOf(slug)).toBe(2);
  });
});

describe("what a stream brought is given whole as it was", () => {
  const BEHAVIOURS: readonly [string, Behaviour][] = [
    [
      "calls of tools",
      {
        do: "complete",
        toolCalls: [
          { name: "weather", arguments: '{"city":"Zürich"}' },
          { name: "time", arguments: "{}" },
        ],
      },
    ],
    ["reasoning", { do: "complete", reasoning: "because of this", content: "so", events: 5 }],
  ];
  test.each(BEHAVIOURS)("%s", async (_, behaviour) => {
    const whole = gateway.modelThat(behaviour);
    const streamed = gateway.modelThat(behaviour);
    const made = await ask(whole, {}, {});
    await (await gateway.chat(streamed, { stream: true }, ON)).text();
    const { response, completion } = await ask(streamed);
    expect(outcomeOf(response)).toBe("hit");
    const withoutIds = (value: unknown) =>
      JSON.parse(JSON.stringify(value).replaceAll(/call_\w+/g, "call"));
    expect(withoutIds(completion.choices)).toEqual(withoutIds(made.completion.choices));
    const again = await readStream(await gateway.chat(streamed, { stream: true }, ON));
    const { message } = completion.choices[0]!;
    expect(again.isDone).toBeTrue();
    expect(again.content).toBe((message.content as string | null) ?? "");
    expect(again.toolCalls.map(({ arguments: json }) => json)).toEqual(
      ((message.tool_calls ?? []) as { function: { arguments: string } }[]).map(
        (call) => call.function.arguments,
      ),
    );
    expect(callsOf(streamed)).toBe(1);
  });
});

describe("an answer is found", () => {
  test("by no other organization", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug);
    const { secretKey } = await gateway.addOrganization();
    const other = await gateway.chat(slug, {}, { ...ON, key: secretKey });
    expect(outcomeOf(other)).toBe("miss");
    expect(callsOf(slug)).toBe(2);
  });

  test("by another key of the organization, unless it may not use the model or the endpoint", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug);
    const key = await addSecretKey(gateway);
    expect(outcomeOf(await gateway.chat(slug, {}, { ...ON, key }))).toBe("hit");
    const elsewhere = await addSecretKey(gateway, { allowedModels: ["test/spare-79"] });
    await expectError(
      await gateway.chat(slug, {}, { ...ON, key: elsewhere }),
      403,
      "model_not_allowed",
    );
    const unscoped = await addSecretKey(gateway, { scopes: ["embeddings"] });
    await expectError(await gateway.chat(slug, {}, { ...ON, key: unscoped }), 403, "missing_scope");
  });

  test("without money, but within the rate of the key", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug);
    const poor = await addSecretKey(gateway, { dailyBudgetNano: 0n, rateLimitRpm: 2 });
    await expectError(
      await gateway.chat(slug, { seed: 1 }, { ...ON, key: poor }),
      402,
      "budget_exhausted",
    );
    expect(outcomeOf(await gateway.chat(slug, {}, { ...ON, key: poor }))).toBe("hit");
    const refused = await gateway.chat(slug, {}, { ...ON, key: poor });
    await expectError(refused, 429, "rate_limit_exceeded");
  });
});

test("an idempotent replay comes first, and a hit is replayed as it was", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await ask(slug);
  const init = { headers: { "x-gateway-cache": "on", "idempotency-key": crypto.randomUUID() } };
  const hit = await ask(slug, {}, init);
  expect(outcomeOf(hit.response)).toBe("hit");
  const replay = await ask(slug, {}, init);
  expect(replay.response.headers.get("x-gateway-idempotent-replay")).toBe("true");
  expect(replay.completion).toEqual(hit.completion);
  expect(await billOf(gateway, idOf(replay.response))).toBeUndefined();
});

test.each([
  [{ "x-gateway-cache": "off" }, "x-gateway-cache"],
  [{ "x-gateway-cache": "On" }, "x-gateway-cache"],
  ...["0", "86401", "1.5", "-1", "1e3", "", "x"].map((ttl): [Record<string, string>, string] => [
    { "x-gateway-cache": "on", "x-gateway-cache-ttl": ttl },
    "x-gateway-cache-ttl",
  ]),
  [
    { "x-gateway-cache": "on", "x-gateway-cache-single-flight": "yes" },
    "x-gateway-cache-single-flight",
  ],
])("%j is refused", async (headers, param) => {
  const slug = gateway.modelThat({ do: "complete" });
  const response = await gateway.chat(slug, {}, { headers });
  const { error } = await expectError(response, 400, "invalid_header");
  expect(error.param).toBe(param);
  expect(callsOf(slug)).toBe(0);
});

describe("a preset", () => {
  const long = [{ role: "user", content: "x".repeat(300_000) }];
  test.each([
    ["a short body", {}],
    ["a body that a thread reads", { messages: long }],
  ])("decides by what it holds, with %s", async (_, body) => {
    const slug = gateway.modelThat({ do: "complete", content: "short" });
    const manage = (method: string, path: string, fields: object) =>
      gateway.request(method, `/v1/presets${path}`, fields, { key: gateway.managementKey });
    const name = `preset ${crypto.randomUUID()}`;
    const made = await manage("POST", "", { name, system: "Be brief." });
    const { id } = (await made.json()) as { id: string };
    const outcome = async () => {
      const response = await gateway.chat(slug, { ...body, preset: name }, ON);
      await response.text();
      return outcomeOf(response);
    };
    expect([await outcome(), await outcome()]).toEqual(["miss", "hit"]);
    await manage("PATCH", `/${id}`, { system: "Be long." });
    expect([await outcome(), await outcome()]).toEqual(["miss", "hit"]);
    expect(callsOf(slug)).toBe(2);
  });
});
