import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY, type Receiver, startReceiver } from "./receiver.ts";

let gateway: ChatGateway;
let receiver: Receiver;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: { ...LOCAL_DELIVERY, GATEWAY_COMPLETION_SUCCESS_SAMPLE: "1" },
  });
  receiver = startReceiver();
});
afterAll(async () => {
  await receiver.stop();
  await gateway.stop();
});

const addHook = (events: readonly string[]) =>
  gateway.request("POST", "/v1/webhooks", { url: receiver.url, events });

/** The one event of a request. */
const eventOf = (response: Response) => {
  const requestId = response.headers.get("x-gateway-request-id")!;
  return until(
    `an event of ${requestId}`,
    () => receiver.received.find(({ event }) => event.data.request_id === requestId)?.event,
  );
};

describe("without a webhook that wants them", () => {
  test("completions emit nothing", async () => {
    const model = gateway.modelThat({ do: "complete" });
    expect((await gateway.chat(model)).status).toBe(200);
    expect((await gateway.chat("unknown")).status).toBe(404);
    const [count] = await gateway.sql`SELECT count(*)::int AS events FROM outbox`;
    expect(count!.events).toBe(0);
  });
});

describe("with one", () => {
  let hookId: string;
  beforeAll(async () => {
    const created = await addHook(["completion.success", "completion.error"]);
    hookId = (await created.json()).id;
  });

  test("a completion is reported with what it was charged, in the very next call after the webhook was made", async () => {
    const response = await gateway.chat(gateway.modelThat({ do: "complete" }));
    const { usage } = (await response.json()) as { usage: Record<string, number> };
    const { type, data } = await eventOf(response);
    expect(type).toBe("completion.success");
    expect(data).toEqual({
      request_id: response.headers.get("x-gateway-request-id"),
      key_id: expect.stringMatching(/^key_/),
      endpoint: "/v1/chat/completions",
      model: response.headers.get("x-gateway-model"),
      provider: "primary",
      status: 200,
      usage: {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        total_tokens: usage.total_tokens,
      },
      cost_usd: Number(response.headers.get("x-gateway-cost")),
      latency_ms: expect.any(Number),
    });
  });

  test("a stream is reported at its end", async () => {
    const response = await gateway.chat(gateway.modelThat({ do: "complete" }), { stream: true });
    expect(await response.text()).toEndWith("data: [DONE]\n\n");
    const { type, data } = await eventOf(response);
    expect({ type, status: data.status }).toEqual({ type: "completion.success", status: 200 });
    expect(data.cost_usd).toBeGreaterThan(0);
  });

  test("failures are reported with their status: 4xx before the provider, its own, and 5xx", async () => {
    const limited = await addSecretKey(gateway, { dailyBudgetNano: 0n });
    const scopeless = await addSecretKey(gateway, { scopes: ["embeddings"] });
    const spare = gateway.modelThat({ do: "complete" });
    const cases: [Response, number, string][] = [
      [await gateway.chat(spare, { messages: 5 }), 400, "invalid_body"],
      [await gateway.chat("unknown"), 404, "model_not_found"],
      [await gateway.chat(spare, {}, { key: limited }), 402, "budget_exhausted"],
      [await gateway.chat(spare, {}, { key: scopeless }), 403, "missing_scope"],
      [
        await gateway.chat(gateway.modelThat({ do: "error", status: 400 })),
        400,
        "provider_rejected",
      ],
      [await gateway.chat(gateway.modelThat({ do: "error", status: 500 })), 502, "provider_error"],
    ];
    for (const [response, status, code] of cases) {
      expect(response.status).toBe(status);
      const { type, data } = await eventOf(response);
      expect(type).toBe("completion.error");
      expect(data).toMatchObject({
        status,
        cost_usd: 0,
        error: { code, type: expect.any(String) },
      });
      expect(data.key_id).toStartWith("key_");
    }
  });

  test("every billed endpoint is reported by the same rule, with its path", async () => {
    const cases: [path: string, body: object][] = [
      ["/v1/chat/completions", { messages: [{ role: "user", content: "a" }] }],
      ["/v1/messages", { messages: [{ role: "user", content: "a" }], max_tokens: 5 }],
      ["/v1/responses", { input: "a" }],
      ["/v1/embeddings", { input: "a" }],
      ["/v1/moderations", { input: "a" }],
      ["/v1/rerank", { query: "a", documents: ["a"] }],
      ["/v1/images/generations", { prompt: "a" }],
      ["/v1/audio/speech", { input: "a", voice: "alloy" }],
    ];
    const models: Record<string, string> = {
      "/v1/embeddings": "sandbox/embed",
      "/v1/images/generations": "sandbox/image",
      "/v1/audio/speech": "sandbox/tts",
      "/v1/moderations": "sandbox/moderation",
      "/v1/rerank": "sandbox/rerank",
    };
    for (const [endpoint, body] of cases) {
      const failed = await gateway.request("POST", endpoint, { ...body, model: "unknown" });
      expect({ endpoint, status: failed.status }).toEqual({ endpoint, status: 404 });
      expect(await eventOf(failed)).toMatchObject({
        type: "completion.error",
        data: { endpoint, status: 404, model: null, cost_usd: 0 },
      });
      const model = models[endpoint] ?? "sandbox/chat";
      const answered = await gateway.request("POST", endpoint, { ...body, model });
      if (answered.status === 404) continue;
      expect({ endpoint, status: answered.status }).toEqual({ endpoint, status: 200 });
      await answered.arrayBuffer();
      expect(await eventOf(answered)).toMatchObject({
        type: "completion.success",
        data: { endpoint, status: 200 },
      });
    }
  });

  test("a test event of an error has the fields of a real one, no more and no fewer", async () => {
    const failed = await gateway.chat(gateway.modelThat({ do: "error", status: 500 }));
    const real = (await eventOf(failed)).data;
    const type = "completion.error";
    const tested = await gateway.request("POST", `/v1/webhooks/${hookId}/test`, { type });
    const { event_id: eventId } = await tested.json();
    const sample = receiver.received.find(({ id }) => id === eventId)!.event.data;
    expect(Object.keys(sample).sort()).toEqual([...Object.keys(real), "test"].sort());
    expect(Object.keys(sample.error as object).sort()).toEqual(
      Object.keys(real.error as object).sort(),
    );
  });

  test("a failure names the model where it was found, and the provider that was asked last", async () => {
    const limited = await addSecretKey(gateway, { dailyBudgetNano: 0n });
    const restricted = await addSecretKey(gateway, { allowedModels: ["test/other"] });
    const slow = await addSecretKey(gateway, { rateLimitRpm: 1 });
    const spare = gateway.modelThat({ do: "complete" });
    const broken = gateway.modelThat({ do: "error", status: 500 });
    const rejecting = gateway.modelThat({ do: "error", status: 400 });
    const model = (slug: string) => `test/${slug}`;
    await gateway.chat(spare, {}, { key: slow });
    const cases: [Response, status: number, model: string | null, provider: string | null][] = [
      [await gateway.chat("unknown"), 404, null, null],
      [await gateway.chat(spare, {}, { key: restricted }), 403, model(spare), null],
      [await gateway.chat(spare, {}, { key: slow }), 429, model(spare), null],
      [await gateway.chat(spare, {}, { key: limited }), 402, model(spare), null],
      [await gateway.chat(broken), 502, model(broken), "primary"],
      [await gateway.chat(broken, { stream: true }), 502, model(broken), "primary"],
      [
        await gateway.chat(broken, { models: [model(broken), model(rejecting)] }),
        400,
        model(rejecting),
        "primary",
      ],
    ];
    for (const [response, status, name, provider] of cases) {
      expect(response.status).toBe(status);
      const { data } = await eventOf(response);
      expect(data).toMatchObject({ status, model: name, provider });
    }
  });

  test("a stream that breaks is an error with what was charged of it, once", async () => {
    const model = gateway.modelThat({ do: "cut", afterEvents: 2 });
    const response = await gateway.chat(model, { stream: true });
    expect(await response.text()).not.toContain("[DONE]");
    const { type, data } = await eventOf(response);
    expect(type).toBe("completion.error");
    expect(data).toMatchObject({ status: 502, error: { code: "provider_error" } });
    expect(data.cost_usd).toBeGreaterThan(0);
    const events =
      await gateway.sql`SELECT 1 FROM outbox WHERE data->>'request_id' = ${String(data.request_id)}`;
    expect(events).toHaveLength(1);
  });

  test("a client that goes away is a 499 with what was charged for it", async () => {
    const leaving = new AbortController();
    const model = gateway.modelThat({
      do: "stall-after-events",
      events: 8,
      afterEvents: 5,
    });
    const response = await gateway.chat(model, { stream: true }, { signal: leaving.signal });
    await response.body!.getReader().read();
    leaving.abort();
    const { type, data } = await eventOf(response);
    expect(type).toBe("completion.error");
    expect(data).toMatchObject({ status: 499, error: { code: "client_closed_request" } });
  });

  test("none is emitted any more once it is deleted", async () => {
    await gateway.request("DELETE", `/v1/webhooks/${hookId}`);
    const answers = [
      await gateway.chat(gateway.modelThat({ do: "complete" })),
      await gateway.chat("unknown"),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 404]);
    // Events of earlier requests may still be on their way.
    const ids = answers.map(({ headers }) => headers.get("x-gateway-request-id")!);
    const events = await gateway.sql`SELECT 1 FROM outbox WHERE data->>'request_id' = ANY(${ids})`;
    expect(events).toHaveLength(0);
  });
});

test("the very next call after a webhook was deleted emits nothing for it, time after time", async () => {
  const model = gateway.modelThat({ do: "complete" });
  const ids: string[] = [];
  for (let round = 0; round < 8; round++) {
    const { id } = await (await addHook(["completion.success"])).json();
    // By this the gateway knows that somebody wants them.
    expect((await gateway.chat(model)).status).toBe(200);
    await gateway.request("DELETE", `/v1/webhooks/${id}`);
    ids.push((await gateway.chat(model)).headers.get("x-gateway-request-id")!);
  }
  const events = await gateway.sql`
    SELECT 1 FROM outbox WHERE data->>'request_id' = ANY(${ids})`;
  expect(events).toHaveLength(0);
});

test("the event of a completion stands or falls with its charge", async () => {
  await addHook(["completion.success"]);
  const response = await gateway.chat(gateway.modelThat({ do: "complete" }));
  const [row] = await gateway.sql<{ is_same: boolean }[]>`
    SELECT o.xid::text = t.xmin::text AS is_same FROM outbox o
    JOIN transactions t ON t.request_id = o.data->>'request_id'
    WHERE t.request_id = ${response.headers.get("x-gateway-request-id")}`;
  expect(row!.is_same).toBeTrue();
});
