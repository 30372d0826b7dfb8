import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import {
  chatLine,
  createBatch,
  endedBatch,
  type Json,
  linesOf,
  readBatch,
  requestLine,
} from "../support/batches.ts";
import { pdfOf } from "../support/documents.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/* Lines whose provider answers requests in batches go to it, and cost what its batches do. */

const TIMEOUT_MS = 60_000;
const MODEL = "test/batched";
const LIVE = "test/live";
const MISTRAL = "test/mistral";

let upstream: Upstream;
let gateway: FilesGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  const terms = {
    ...{ category: "chat", context_length: 8_000, max_output_tokens: 100 },
    ...{ input_cost_per_token: 1.5e-7, output_cost_per_token: 6e-7 },
  };
  const endpoint = { provider: "upstream", model: "gpt-4o-mini" };
  gateway = await startFilesGateway("disk", {
    configuration: {
      providers: [
        {
          ...{ id: "upstream", type: "openai-compatible", api_key: "sk-upstream" },
          ...{ base_url: upstream.baseUrl, batches: true },
        },
        {
          ...{ id: "mistral", type: "mistral", api_key: "sk-upstream" },
          ...{ base_url: upstream.baseUrl, batches: true },
        },
      ],
      models: [
        { ...terms, id: MODEL, endpoints: [endpoint] },
        {
          ...{ ...terms, id: MISTRAL },
          endpoints: [{ provider: "mistral", model: "mistral-small-latest" }],
        },
        { ...terms, id: LIVE, endpoints: [{ ...endpoint, batches: false }] },
        {
          ...{ ...terms, id: "test/dear", context_length: 100_000, max_output_tokens: 50_000 },
          ...{ input_cost_per_token: 0, output_cost_per_token: 0.01, endpoints: [endpoint] },
        },
        {
          ...{ id: "test/vectors", category: "embedding", context_length: 8_000 },
          ...{ input_cost_per_token: 1e-7, output_cost_per_token: 0 },
          endpoints: [{ provider: "upstream", model: "text-embedding-3-small" }],
        },
      ],
    },
  });
});
afterEach(() => upstream.reset());
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const line = (id: string, more: Json = {}) => chatLine(id, { model: MODEL, ...more });
const linesNamed = (count: number, more: Json = {}) =>
  Array.from({ length: count }, (_, at) => line(`line-${at}`, more)).join("");

/** By request id. */
async function chargesOf(answers: readonly Json[]): Promise<Map<string, bigint>> {
  const ids = answers.map(({ response }) => response.request_id as string);
  const rows = await gateway.sql<{ request_id: string; charge: bigint }[]>`
    SELECT request_id, -amount_nano AS charge FROM transactions
    WHERE type = 'usage' AND request_id = ANY (${gateway.sql.array(ids)}::text[])`;
  return new Map(rows.map((row) => [row.request_id, BigInt(row.charge)]));
}

async function left(batchId: string): Promise<number> {
  const [row] = await gateway.sql<{ rows: number }[]>`SELECT
    (SELECT count(*)::int FROM provider_batches WHERE batch_id = ${batchId})
      + (SELECT count(*)::int FROM provider_batch_lines WHERE batch_id = ${batchId})
      + (SELECT count(*)::int FROM holds) AS rows`;
  return row!.rows;
}

/** Waits until a batch of the provider exists and `rows` of it, its lines and their holds are stored. */
async function untilAtProvider(batchId: string, rows: number): Promise<void> {
  await until("its lines are at the provider", async () => {
    const { batches } = upstream.batches.records;
    return batches.length === 1 && (await left(batchId)) === rows;
  });
}

async function expectNothingLeft(batchId: string): Promise<void> {
  await until("nothing is left of what was handed over", async () => (await left(batchId)) === 0);
  await expectBooksClosed(gateway);
  const { batches, files } = upstream.batches.records;
  const unremoved = files.filter(({ isDeleted }) => !isDeleted).map(({ filename }) => filename);
  expect({ unremoved, batches: batches.length }).toEqual({
    unremoved: [],
    batches: batches.length,
  });
}

test(
  "a line goes into the batch without the fields that its provider does not support",
  async () => {
    const { id } = await createBatch(gateway, chatLine("a", { model: MISTRAL, store: true, n: 1 }));
    expect((await endedBatch(gateway, id)).status).toBe("completed");
    const [request] = upstream.batches.records.batches[0]!.requests;
    expect(request!.body).toMatchObject({ model: "mistral-small-latest" });
    expect(request!.body).not.toHaveProperty("store");
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "lines go to the provider in one batch, at half the price to the nano-USD, and others are called",
  async () => {
    const lines = [
      line("one", { user: "somebody", metadata: { tags: ["night"] } }),
      line("two", { max_tokens: 7 }),
      chatLine("live", { model: LIVE }),
      line("echoed", { model: "no/such" }),
    ].join("");
    const { id } = await createBatch(gateway, lines);
    const ended = await endedBatch(gateway, id);
    expect(ended).toMatchObject({
      status: "completed",
      request_counts: { total: 4, completed: 3, failed: 1 },
    });
    const answers = await linesOf(gateway, ended.output_file_id);
    expect(answers.map(({ custom_id }) => custom_id)).toEqual(["one", "two", "live"]);
    const charges = await chargesOf(answers);
    for (const { custom_id, response, error } of answers) {
      expect(error).toBeNull();
      const { body, status_code, request_id } = response;
      expect(status_code).toBe(200);
      expect(body).toMatchObject({
        object: "chat.completion",
        model: custom_id === "live" ? LIVE : MODEL,
      });
      const { prompt_tokens, completion_tokens, cost } = body.usage;
      // 150 and 600 nano-USD a token, and the fee of 4 %.
      const usual = BigInt(prompt_tokens) * 150n + BigInt(completion_tokens) * 600n;
      const [share, whole] = custom_id === "live" ? [1n, 1n] : [1n, 2n];
      const scaled = usual * share * 10_400n;
      const expected = (scaled * 2n + 10_000n * whole) / (2n * 10_000n * whole);
      expect(charges.get(request_id)).toBe(expected);
      expect(cost).toBe(Number(expected) / 1e9);
    }
    const { batches } = upstream.batches.records;
    expect(batches.map(({ requests }) => requests.map((one) => one.id))).toEqual([["1", "2"]]);
    expect(upstream.served.filter(({ batchId }) => batchId === undefined)).toHaveLength(1);
    const requests = (await (
      await gateway.request("GET", "/v1/requests?user=somebody")
    ).json()) as Json;
    expect(requests.data).toMatchObject([
      { id: answers[0]!.response.request_id, model: MODEL, provider: "upstream", status: 200 },
    ]);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "embeddings go to it too",
  async () => {
    const url = "/v1/embeddings";
    const body = (input: string) => ({ model: "test/vectors", input, encoding_format: "base64" });
    const lines = requestLine("a", body("night"), url) + requestLine("b", body("day"), url);
    const { id } = await createBatch(gateway, lines, { endpoint: url });
    const ended = await endedBatch(gateway, id);
    const answers = await linesOf(gateway, ended.output_file_id);
    expect(answers.map(({ response }) => response.body.object)).toEqual(["list", "list"]);
    expect(typeof answers[0]!.response.body.data[0].embedding).toBe("string");
    expect(upstream.served.every(({ batchId }) => batchId !== undefined)).toBe(true);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "a batch that is cancelled: what was answered is charged, the rest is given back",
  async () => {
    upstream.batches.plan({ outcome: "never", answered: 3 });
    const { id } = await createBatch(gateway, linesNamed(10));
    await until("it is at the provider", () => upstream.batches.records.batches.length === 1);
    await until("its lines are held", async () => (await left(id)) > 10);
    const asked = await gateway.request("POST", `/v1/batches/${id}/cancel`);
    expect(await asked.json()).toMatchObject({ status: "cancelling" });
    const ended = await endedBatch(gateway, id);
    expect(ended).toMatchObject({
      status: "cancelled",
      request_counts: { total: 10, completed: 3, failed: 7 },
    });
    const answers = await linesOf(gateway, ended.output_file_id);
    expect((await chargesOf(answers)).size).toBe(3);
    const uncalled = await linesOf(gateway, ended.error_file_id);
    expect(new Set(uncalled.map(({ error }) => error.code))).toEqual(new Set(["batch_cancelled"]));
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "a batch whose window is over: what was answered is charged, the rest is given back",
  async () => {
    upstream.batches.plan({ outcome: "never", answered: 2 });
    const { id } = await createBatch(gateway, linesNamed(5));
    await untilAtProvider(id, 11);
    await gateway.sql`UPDATE batches SET expires_at = now(), due_at = now() WHERE id = ${id}`;
    const ended = await endedBatch(gateway, id);
    expect(ended).toMatchObject({
      status: "expired",
      request_counts: { total: 5, completed: 2, failed: 3 },
    });
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "what the provider refuses or leaves unanswered is called at the usual price",
  async () => {
    for (const plan of [
      { create: "refuse" },
      { outcome: "failed" },
      { outcome: "expired", answered: 2 },
    ] as const) {
      upstream.reset();
      upstream.batches.plan(plan);
      const { id } = await createBatch(gateway, linesNamed(4));
      const ended = await endedBatch(gateway, id);
      expect(ended).toMatchObject({
        status: "completed",
        request_counts: { total: 4, completed: 4, failed: 0 },
      });
      const live = upstream.served.filter(({ batchId }) => batchId === undefined);
      expect(live).toHaveLength("answered" in plan ? 2 : 4);
      expect((await chargesOf(await linesOf(gateway, ended.output_file_id))).size).toBe(4);
      await expectNothingLeft(id);
    }
  },
  TIMEOUT_MS,
);

test(
  "a batch that its creation did not answer for is found; one that shows after its lines went again is cancelled",
  async () => {
    const overdue = () => gateway.sql`WITH aged AS (
        UPDATE provider_batches SET ordered_at = ordered_at - interval '15 seconds')
      UPDATE batches SET due_at = now() WHERE due_at IS NOT NULL`;
    const { records } = upstream.batches;
    upstream.batches.plan({ create: "cut", createTimes: 1 });
    const found = await createBatch(gateway, linesNamed(3));
    await until("it is made", () => records.batches.length === 1);
    await until("it may be there", async () => (await left(found.id)) === 7);
    await overdue();
    expect((await endedBatch(gateway, found.id)).request_counts.completed).toBe(3);
    expect(records.batches).toHaveLength(1);
    await expectNothingLeft(found.id);

    upstream.reset();
    upstream.batches.plan({ create: "cut", createTimes: 1 });
    const lost = await createBatch(gateway, linesNamed(3));
    await until("it is made", () => records.batches.length === 1);
    const [stray] = records.batches.splice(0);
    await until("it may be there", async () => (await left(lost.id)) === 7);
    await overdue();
    await until("its lines are handed over again", () => records.batches.length === 1);
    stray!.id = "batch_stray";
    records.batches.push(stray!);
    const ended = await endedBatch(gateway, lost.id);
    expect(ended.request_counts).toEqual({ total: 3, completed: 3, failed: 0 });
    expect(await chargesOf(await linesOf(gateway, ended.output_file_id))).toHaveProperty("size", 3);
    await until("the stray is cancelled", () => stray!.isCancelled);
    await expectNothingLeft(lost.id);
  },
  TIMEOUT_MS,
);

test(
  "lines at providers leave half of the credit to calls",
  async () => {
    const credits = (await (await gateway.request("GET", "/v1/credits")).json()) as Json;
    // A third of the credit each, at 0.0052 USD a token.
    const max_tokens = Math.floor(credits.balance_usd / 3 / 0.0052);
    expect(max_tokens).toBeWithin(200, 50_000);
    const { id } = await createBatch(gateway, linesNamed(3, { model: "test/dear", max_tokens }));
    const ended = await endedBatch(gateway, id);
    expect(ended.request_counts).toEqual({ total: 3, completed: 3, failed: 0 });
    const { batches } = upstream.batches.records;
    expect(batches.map(({ requests }) => requests.length)).toEqual([1, 1, 1]);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "a key that is deleted while its lines are at the provider pays for what was answered",
  async () => {
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      { name: "short" },
      { key: gateway.managementKey },
    );
    const key = (await created.json()) as Json;
    upstream.batches.plan({ outcome: "never" });
    const { id } = await createBatch(gateway, linesNamed(3), { key: key.key });
    await untilAtProvider(id, 7);
    const path = `/v1/keys/${key.id}`;
    const deleted = await gateway.request("DELETE", path, undefined, {
      key: gateway.managementKey,
    });
    expect(deleted.status).toBe(200);
    upstream.batches.plan({});
    const ended = await endedBatch(gateway, id);
    expect(ended.request_counts).toEqual({ total: 3, completed: 3, failed: 0 });
    const answers = await linesOf(gateway, ended.output_file_id);
    expect((await chargesOf(answers)).size).toBe(3);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "where there is not money for all lines at a time the others wait until the first are charged",
  async () => {
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      // Of a line 0.00004 USD are held, and some 0.00001 charged.
      { name: "poor", daily_budget_usd: 0.0002 },
      { key: gateway.managementKey },
    );
    const key = (await created.json()) as Json;
    const { id } = await createBatch(gateway, linesNamed(8), { key: key.key });
    await until("some are at the provider", async () => (await left(id)) > 1);
    const ended = await endedBatch(gateway, id);
    expect(ended.request_counts).toEqual({ total: 8, completed: 8, failed: 0 });
    const { batches } = upstream.batches.records;
    expect(batches.length).toBeGreaterThan(1);
    expect(batches.flatMap(({ requests }) => requests)).toHaveLength(8);
    await expectNothingLeft(id);
    expect((await readBatch(gateway, id)).status).toBe("completed");
  },
  TIMEOUT_MS,
);

/** What is awaited of a batch here comes at once. */
async function hurry(batchId: string): Promise<void> {
  await gateway.sql`UPDATE batches SET due_at = clock_timestamp()
    WHERE id = ${batchId} AND due_at IS NOT NULL`;
}

const unremoved = () => upstream.batches.records.files.filter(({ isDeleted }) => !isDeleted);

test(
  "a batch that its provider never ends is given up, and nothing is held for it any more",
  async () => {
    upstream.batches.plan({ outcome: "never", ignoresCancel: true });
    const { id } = await createBatch(gateway, linesNamed(3));
    await untilAtProvider(id, 7);
    expect((await gateway.request("POST", `/v1/batches/${id}/cancel`)).status).toBe(200);
    await until("it is cancelled", () => upstream.batches.records.batches[0]!.isCancelled);
    await gateway.sql`UPDATE batches SET cancelling_at = now() - interval '7 hours' WHERE id = ${id}`;
    const ended = await endedBatch(gateway, id);
    expect(ended).toMatchObject({ status: "cancelled", request_counts: { total: 3, failed: 3 } });
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "a batch that finds no room at its provider leaves no files there, however often it is tried",
  async () => {
    const failure = { code: "token_limit_exceeded", message: "Enqueued token limit reached" };
    for (const plan of [{ create: "busy" }, { outcome: "failed", failure }] as const) {
      upstream.reset();
      upstream.batches.plan(plan);
      const { id } = await createBatch(gateway, linesNamed(2));
      await until("it was tried twice", async () => {
        await hurry(id);
        return upstream.batches.records.files.length >= 2;
      });
      await until("nothing is left there", () => unremoved().length === 0);
      upstream.batches.plan({});
      await until("it has ended", async () => {
        await hurry(id);
        return (await readBatch(gateway, id)).status === "completed";
      });
      expect(upstream.served.every(({ batchId }) => batchId !== undefined)).toBe(true);
      await expectNothingLeft(id);
    }
  },
  TIMEOUT_MS,
);

test(
  "a batch has time to show at its provider from the call that creates it on",
  async () => {
    upstream.batches.plan({ stall: "upload" });
    const { id } = await createBatch(gateway, linesNamed(2));
    await until("its file is there", () => upstream.batches.records.files.length === 1);
    await gateway.sql`UPDATE provider_batches SET ordered_at = ordered_at - interval '1 minute'
      WHERE batch_id = ${id}`;
    upstream.batches.plan({ create: "cut", createTimes: 1 });
    await until("it is there", () => upstream.batches.records.batches.length === 1);
    await until("its creator waits for it", async () => {
      const [row] = await gateway.sql<{ state: string; is_fresh: boolean }[]>`
        SELECT state, ordered_at > now() - interval '30 seconds' AS is_fresh
        FROM provider_batches WHERE batch_id = ${id}`;
      return row?.state === "ordered" && row.is_fresh;
    });
    await gateway.sql`UPDATE provider_batches SET ordered_at = ordered_at - interval '15 seconds'
      WHERE batch_id = ${id}`;
    await hurry(id);
    expect(await endedBatch(gateway, id)).toMatchObject({ request_counts: { completed: 2 } });
    expect(upstream.batches.records.batches).toHaveLength(1);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "what many batches in vain were ordered for is called",
  async () => {
    upstream.batches.plan({ upload: "cut" });
    const { id } = await createBatch(gateway, linesNamed(2));
    await until("it is ordered", async () => {
      const lost = await gateway.sql`INSERT INTO provider_batches
        SELECT p.id || '_' || n, batch_id, provider_id, provider_key, model, provider_model, kind, terms, 'lost', requests
        FROM provider_batches p, generate_series(1, 10) n WHERE batch_id = ${id} AND state = 'ordered'`;
      return lost.count === 10;
    });
    await until("it has ended", async () => {
      await gateway.sql`UPDATE provider_batches SET ordered_at = now() - interval '1 minute'
        WHERE batch_id = ${id} AND state = 'ordered'`;
      await hurry(id);
      return (await readBatch(gateway, id)).status === "completed";
    });
    expect(upstream.batches.records.files).toHaveLength(1);
    expect(upstream.served.filter(({ batchId }) => batchId === undefined)).toHaveLength(2);
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "a batch has no more inputs of embeddings than its provider takes",
  async () => {
    upstream.batches.plan({ outcome: "never" });
    const url = "/v1/embeddings";
    const input = new Array(2_048).fill("a");
    const lines = Array.from({ length: 25 }, (_, at) =>
      requestLine(`line-${at}`, { model: "test/vectors", input }, url),
    );
    const { id } = await createBatch(gateway, lines.join(""), { endpoint: url });
    const inputs = () =>
      upstream.batches.records.batches.map(({ requests }) => requests.length * input.length);
    await until("all are there", () => inputs().length === 2);
    expect(inputs()).toEqual([24 * 2_048, 2_048]);
    await gateway.request("POST", `/v1/batches/${id}/cancel`);
    expect((await endedBatch(gateway, id)).request_counts).toMatchObject({ failed: 25 });
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);

test(
  "documents that are read for lines to be called keep no others from their provider",
  async () => {
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      { name: "slow", rate_limit_rpm: 4 },
      { key: gateway.managementKey },
    );
    const { key } = (await created.json()) as Json;
    const file_data = `data:application/pdf;base64,${Buffer.from(pdfOf(["At six."])).toString("base64")}`;
    const content = [{ type: "file", file: { filename: "a.pdf", file_data } }];
    const messages = [{ role: "user", content }];
    const parsed = { messages, plugins: [{ id: "file-parser" }] };
    const lines = linesNamed(5, parsed) + line("last");
    const { id } = await createBatch(gateway, lines, { key });
    await until("the last one is there", () => upstream.batches.records.batches.length === 1);
    await gateway.request("POST", `/v1/batches/${id}/cancel`);
    expect(await endedBatch(gateway, id)).toMatchObject({ status: "cancelled" });
    await expectNothingLeft(id);
  },
  TIMEOUT_MS,
);
