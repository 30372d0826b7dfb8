import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { createBatch, endedBatch, linesOf, requestLine } from "../support/batches.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

let gateway: ChatGateway;
let storeId: string;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: { GATEWAY_FILE_SEARCH_COST_USD: "0.0025" },
    models: { two: ["primary/two-a", "secondary/two-b"] },
  });
  storeId = await vectorStoreOf(gateway, { "harbour.txt": "The harbour opens at six." });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const search: Behaviour = {
  do: "complete",
  toolCalls: [{ name: "file_search", arguments: '{"query":"harbour"}' }],
};
const say = (content: string): Behaviour => ({ do: "complete", content });
const unavailable: Behaviour = { do: "error", status: 503 };
const rejected: Behaviour = { do: "error", status: 400 };

let keys = 0;
const newKey = () => ({ "idempotency-key": `steps-${keys++}` });

const respond = (slug: string, body: Json = {}, init?: RequestInit) => {
  const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
  const asked = { model: `test/${slug}`, input: "hello", tools, ...body };
  return gateway.request("POST", "/v1/responses", asked, init);
};

const servedOf = (slug: string) =>
  gateway.upstream.served.filter(({ model }) => model === slug).map((one) => one as Json);

/** All charges of a model, in order. */
async function chargesOf(slug: string) {
  const rows = await gateway.sql`SELECT request_id FROM transactions
    WHERE model = ${`test/${slug}`} AND type = 'usage' ORDER BY created_at`;
  const bills = await Promise.all(rows.map(({ request_id }) => billOf(gateway, request_id)));
  return bills.map((bill) => bill!);
}

const storedSteps = async () =>
  (await gateway.sql`SELECT count(*)::int AS count FROM answer_steps`)[0]!.count as number;

const promptTokensOf = (served: readonly Json[]) =>
  served.reduce((sum, { usageReported }) => sum + (usageReported?.prompt_tokens ?? 0), 0);

describe("a whole answer with tools under an idempotency key", () => {
  test("goes on from its steps after a passing failure, and is one charge with all of them", async () => {
    const slug = gateway.modelThat(search, unavailable, search, say("At six."));
    const headers = newKey();
    const failed = await respond(slug, {}, { headers });
    await expectError(failed, 502, "provider_error");
    expect(await chargesOf(slug)).toEqual([]);
    expect(await storedSteps()).toBe(1);
    const answered = await respond(slug, {}, { headers });
    expect(answered.status).toBe(200);
    const body = (await answered.json()) as Json;
    expect(body.output.map(({ type }: Json) => type)).toEqual([
      "file_search_call",
      "file_search_call",
      "message",
    ]);
    const served = servedOf(slug);
    // The first step is not asked for again: its answer is in the messages of the second.
    expect(served.map(({ requestBody }) => requestBody.messages.length)).toEqual([1, 3, 3, 5]);
    const [bill, ...more] = await chargesOf(slug);
    expect(more).toEqual([]);
    expect(bill).toMatchObject({ status: 200, quantities: { file_searches: 2 } });
    expect(bill!.promptTokens).toBe(promptTokensOf(served));
    expect(body.usage.cost).toBe(Number(bill!.chargeNano) / 1e9);
    expect(await storedSteps()).toBe(0);
    const replayed = await respond(slug, {}, { headers });
    expect(await replayed.json()).toEqual(body);
    expect(servedOf(slug)).toHaveLength(4);
  });

  test("keeps an answer that failed for good, which another call of the key is given", async () => {
    const slug = gateway.modelThat(search, rejected);
    const headers = newKey();
    const first = await respond(slug, {}, { headers });
    const body = (await first.json()) as Json;
    expect(body.status).toBe("failed");
    const again = await respond(slug, {}, { headers });
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(await again.json()).toEqual(body);
    expect(await chargesOf(slug)).toHaveLength(1);
    expect(await storedSteps()).toBe(0);
  });

  test("is charged for its steps when its client leaves, and for the rest by the call that goes on", async () => {
    const slug = gateway.modelThat(search, { do: "stall" });
    const headers = newKey();
    const gone = new AbortController();
    const asked = respond(slug, {}, { headers, signal: gone.signal });
    await gateway.upstream.until(() => servedOf(slug).length === 2);
    gone.abort();
    await asked.catch(() => undefined);
    const [left] = await until("the charge", async () => {
      const charges = await chargesOf(slug);
      return charges.length > 0 && charges;
    });
    expect(left).toMatchObject({ status: 499, quantities: { file_searches: 1 } });
    gateway.upstream.behave(slug, say("At six."));
    const answered = await respond(slug, {}, { headers });
    const body = (await answered.json()) as Json;
    expect(body.output).toMatchObject([{ type: "file_search_call" }, { type: "message" }]);
    const [, rest, ...more] = await chargesOf(slug);
    expect(more).toEqual([]);
    const last = servedOf(slug).at(-1)!;
    expect(last.requestBody.messages).toHaveLength(3);
    expect(rest).toMatchObject({
      status: 200,
      quantities: null,
      promptTokens: last.usageReported.prompt_tokens,
    });
    expect(body.usage.cost).toBe(Number(rest!.chargeNano) / 1e9);
  });

  test("begins again at another endpoint if that of its steps does not answer, and pays for those alone", async () => {
    gateway.upstream.enqueue("two-a", search);
    gateway.upstream.behave("two-a", unavailable);
    gateway.upstream.enqueue("two-b", search);
    gateway.upstream.behave("two-b", say("At six."));
    const headers = newKey();
    await expectError(await respond("two", {}, { headers }), 502, "provider_error");
    const answered = await respond("two", {}, { headers });
    expect(answered.headers.get("x-gateway-provider")).toBe("secondary");
    const [bill, ...more] = await chargesOf("two");
    expect(more).toEqual([]);
    expect(bill!.promptTokens).toBe(promptTokensOf(servedOf("two-b")));
    expect(await storedSteps()).toBe(0);
  });

  test("does not go on from the steps of another request under the same key", async () => {
    const slug = gateway.modelThat(search, unavailable, say("Well."));
    const headers = newKey();
    await expectError(await respond(slug, {}, { headers }), 502, "provider_error");
    const other = await respond(slug, { input: "goodbye" }, { headers });
    expect(((await other.json()) as Json).output).toMatchObject([{ type: "message" }]);
    expect(servedOf(slug).at(-1)!.requestBody.messages).toHaveLength(1);
  });

  test("stays under its key, charged once, if only its client leaves", async () => {
    const slug = gateway.modelThat(search, say("At six."));
    const headers = newKey();
    const gone = new AbortController();
    let asked: Promise<unknown> | undefined;
    // What is stored of the answer waits, so that the answer is whole and its client leaves before its charge.
    await gateway.sql.begin(async (transaction) => {
      await transaction`LOCK TABLE response_contents IN ACCESS EXCLUSIVE MODE`;
      asked = respond(slug, {}, { headers, signal: gone.signal }).catch(() => undefined);
      await gateway.upstream.until(() => servedOf(slug).length === 2);
      await until("the answer waits to be stored", async () => {
        const [row] = await transaction`SELECT count(*)::int AS count FROM pg_locks
          WHERE relation = 'response_contents'::regclass AND NOT granted`;
        return row!.count > 0;
      });
      gone.abort();
      await asked;
    });
    const [bill] = await until("the charge", async () => {
      const charges = await chargesOf(slug);
      return charges.length > 0 && charges;
    });
    expect(bill).toMatchObject({ status: 499, quantities: { file_searches: 1 } });
    const again = await respond(slug, {}, { headers });
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    const body = (await again.json()) as Json;
    expect(body.output).toMatchObject([{ type: "file_search_call" }, { type: "message" }]);
    expect(servedOf(slug)).toHaveLength(2);
    expect(await chargesOf(slug)).toHaveLength(1);
    const stored = await gateway.request("GET", `/v1/responses/${body.id}`);
    expect(stored.status).toBe(200);
  });
});

test("a line of a batch goes on from its steps after a passing failure, and is answered and charged once", async () => {
  const slug = gateway.modelThat(search, unavailable, say("At six."));
  const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
  const url = "/v1/responses";
  const line = requestLine("a", { model: `test/${slug}`, input: "hello", tools }, url);
  const { id } = await createBatch(gateway, line, { endpoint: url });
  const ended = await endedBatch(gateway, id);
  expect(ended).toMatchObject({ status: "completed", request_counts: { completed: 1, failed: 0 } });
  const [answer] = await linesOf(gateway, ended.output_file_id);
  const { body } = answer!.response;
  expect(body.status).toBe("completed");
  expect(body.output).toMatchObject([{ type: "file_search_call" }, { type: "message" }]);
  const served = servedOf(slug);
  expect(served.map(({ requestBody }) => requestBody.messages.length)).toEqual([1, 3, 3]);
  const [bill, ...more] = await chargesOf(slug);
  expect(more).toEqual([]);
  expect(body.usage.cost).toBe(Number(bill!.chargeNano) / 1e9);
  const left = await gateway.sql`SELECT 1 FROM answer_steps WHERE key_id = ${id}`;
  expect(left).toHaveLength(0);
});

test("a response that failed after its first step tells what it is charged for, whole and streamed", async () => {
  for (const stream of [false, true]) {
    const slug = gateway.modelThat(search, unavailable);
    const response = await respond(slug, { stream });
    const text = await response.text();
    const body = stream
      ? (responseEvents(text).find(({ type }) => type === "response.failed") as Json).response
      : (JSON.parse(text) as Json);
    expect(body.status).toBe("failed");
    const [bill, ...more] = await until("the charge", async () => {
      const charges = await chargesOf(slug);
      return charges.length > 0 && charges;
    });
    expect(more).toEqual([]);
    expect(bill!.chargeNano).toBeGreaterThan(0n);
    expect(body.usage).toMatchObject({
      input_tokens: bill!.promptTokens,
      output_tokens: bill!.completionTokens,
      cost: Number(bill!.chargeNano) / 1e9,
    });
  }
});
