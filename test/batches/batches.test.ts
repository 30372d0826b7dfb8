import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import {
  CHATS,
  chatLine,
  createBatch,
  endedBatch,
  type Json,
  linesOf,
  readBatch,
  requestLine,
} from "../support/batches.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  getContent,
  startFilesGateway,
  uploaded,
} from "../support/files-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

const TIMEOUT_MS = 60_000;

let upstream: Upstream;
let gateway: FilesGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  const provider = { id: "upstream", type: "openai-compatible", base_url: upstream.baseUrl };
  const models = ["recovering"].map((slug) => ({
    ...{ id: `test/${slug}`, category: "chat", context_length: 8_000, max_output_tokens: 100 },
    ...{ input_cost_per_token: 1e-6, output_cost_per_token: 1e-6 },
    endpoints: [{ provider: "upstream", model: slug }],
  }));
  gateway = await startFilesGateway("disk", {
    configuration: { providers: [{ ...provider, api_key: "sk-upstream" }], models },
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const total = (batch: Json) => Object.values(batch.request_counts as Record<string, number>);
const charges = async (keyId?: string) => {
  const rows = await gateway.sql<{ request_id: string }[]>`
    SELECT request_id FROM transactions WHERE type = 'usage'
      ${keyId === undefined ? gateway.sql`` : gateway.sql`AND key_id = ${keyId}`}`;
  return rows.map((row) => row.request_id);
};
const eventsOf = (batchId: string) =>
  gateway.sql`SELECT type, data FROM outbox WHERE data->>'batch_id' = ${batchId}`;
const kept = async () => {
  const [row] = await gateway.sql<{ kept: number }[]>`SELECT
    (SELECT count(*)::int FROM batch_lines) + (SELECT count(*)::int FROM batch_contents)
      + (SELECT count(*)::int FROM file_uses) + (SELECT count(*)::int FROM idempotency_records) AS kept`;
  return row!.kept;
};

describe("a batch", () => {
  test(
    "is answered line by line, each charged once to the key that made it, and leaves two files",
    async () => {
      const before = new Set(await charges());
      const lines = [
        chatLine("one"),
        "\n",
        chatLine("two", { model: "no/such" }),
        chatLine("three", { temperature: "hot" }),
        chatLine('q"uote', { max_tokens: 5 }),
      ].join("");
      const batch = await createBatch(gateway, lines, { metadata: { name: "first" } });
      expect(batch.expires_at - batch.created_at).toBeWithin(86_395, 86_406);
      expect(batch).toMatchObject({
        object: "batch",
        endpoint: "/v1/chat/completions",
        completion_window: "24h",
        status: "validating",
        errors: null,
        output_file_id: null,
        error_file_id: null,
        request_counts: { total: 0, completed: 0, failed: 0 },
        metadata: { name: "first" },
        expires_at: expect.any(Number),
        completed_at: null,
      });
      const ended = await endedBatch(gateway, batch.id);
      expect(ended).toMatchObject({
        status: "completed",
        request_counts: { total: 4, completed: 2, failed: 2 },
        expired_at: null,
        cancelled_at: null,
      });
      const times = [
        ended.created_at,
        ended.in_progress_at,
        ended.finalizing_at,
        ended.completed_at,
      ];
      expect(times).toEqual(times.toSorted());
      expect([...(await eventsOf(batch.id))]).toEqual([
        {
          type: "batch.completed",
          data: {
            batch_id: batch.id,
            key_id: expect.stringMatching(/^key_/),
            endpoint: "/v1/chat/completions",
            request_counts: { total: 4, completed: 2, failed: 2 },
            output_file_id: ended.output_file_id,
            error_file_id: ended.error_file_id,
          },
        },
      ]);
      const answers = await linesOf(gateway, ended.output_file_id);
      expect(answers.map(({ custom_id }) => custom_id)).toEqual(["one", 'q"uote']);
      for (const { id, error, response, custom_id } of answers) {
        expect(id).toStartWith("batch_req_");
        expect(error).toBeNull();
        expect(response.status_code).toBe(200);
        expect(response.body).toMatchObject({ object: "chat.completion", model: "sandbox/chat" });
        if (custom_id === "one") {
          expect(response.body.choices[0].message.content).toContain("hello one");
        }
      }
      const newCharges = (await charges()).filter((id) => !before.has(id));
      expect(newCharges.sort()).toEqual(
        answers.map(({ response }) => response.request_id as string).sort(),
      );
      const refused = await linesOf(gateway, ended.error_file_id);
      expect(refused).toMatchObject([
        {
          custom_id: "two",
          error: null,
          response: { status_code: 404, body: { error: { code: "model_not_found" } } },
        },
        {
          custom_id: "three",
          response: { status_code: 400, body: { error: { code: "invalid_body" } } },
        },
      ]);
      const file = await gateway.request("GET", `/v1/files/${ended.output_file_id}`);
      expect(await file.json()).toMatchObject({
        purpose: "batch_output",
        status: "processed",
        filename: `${batch.id}_output.jsonl`,
      });
      await expectBooksClosed(gateway);
      await until("nothing is kept besides the files", async () => (await kept()) === 0);
    },
    TIMEOUT_MS,
  );

  test(
    "serves embeddings and responses, answers above a megabyte among them",
    async () => {
      const texts = Array.from({ length: 600 }, (_, n) => `text ${n}`);
      const embeddings = await createBatch(
        gateway,
        requestLine("many", { model: "sandbox/embed", input: texts }, "/v1/embeddings") +
          requestLine("one", { model: "sandbox/embed", input: "text" }, "/v1/embeddings"),
        { endpoint: "/v1/embeddings" },
      );
      const responses = await createBatch(
        gateway,
        requestLine("r", { model: "sandbox/chat", input: "hi", store: true }, "/v1/responses"),
        { endpoint: "/v1/responses" },
      );
      const ended = await endedBatch(gateway, embeddings.id);
      expect(total(ended)).toEqual([2, 2, 0]);
      const content = await (await getContent(gateway, ended.output_file_id)).text();
      expect(content.length).toBeGreaterThan(1_048_576);
      const [many, one] = content
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Json);
      expect(many!.response.body.data).toHaveLength(600);
      expect(one!.response.body.data).toHaveLength(1);
      const [answer] = await linesOf(
        gateway,
        (await endedBatch(gateway, responses.id)).output_file_id,
      );
      const { id } = answer!.response.body;
      expect((await gateway.request("GET", `/v1/responses/${id}`)).status).toBe(200);
    },
    TIMEOUT_MS,
  );

  test.each([
    ["/v1/moderations", { input: "text" }],
    ["/v1/rerank", { query: "text", documents: ["one"] }],
  ])("puts its lines through %s", async (endpoint, body) => {
    const line = requestLine("a", { model: "no/such", ...body }, endpoint);
    const ended = await endedBatch(gateway, (await createBatch(gateway, line, { endpoint })).id);
    const [refused] = await linesOf(gateway, ended.error_file_id);
    expect(refused!.response.body.error.code).toBe("model_not_found");
  });

  test(
    "takes over answers that were charged and not written into it, short and above a megabyte",
    async () => {
      const key = await addSecretKey(gateway, {});
      const [row] = await gateway.sql<{ id: string }[]>`
        SELECT id FROM api_keys ORDER BY created_at DESC LIMIT 1`;
      await gateway.sql.unsafe(`
        CREATE FUNCTION refuse_line() RETURNS trigger LANGUAGE plpgsql
          AS $$ BEGIN RAISE EXCEPTION 'no line is written'; END $$;
        CREATE TRIGGER refuse_line BEFORE INSERT ON batch_lines
          FOR EACH ROW EXECUTE FUNCTION refuse_line();`);
      const texts = Array.from({ length: 600 }, (_, n) => `text ${n}`);
      const batch = await createBatch(
        gateway,
        requestLine("many", { model: "sandbox/embed", input: texts }, "/v1/embeddings") +
          requestLine("one", { model: "sandbox/embed", input: "text" }, "/v1/embeddings"),
        { endpoint: "/v1/embeddings", key },
      );
      await until("both are charged", async () => (await charges(row!.id)).length === 2);
      expect((await readBatch(gateway, batch.id)).request_counts.completed).toBe(0);
      await until("the owner has given it up once", async () => {
        const [{ attempts }] = await gateway.sql<[{ attempts: number }]>`
          SELECT attempts FROM batches WHERE id = ${batch.id}`;
        return attempts > 0;
      });
      // Of the long one alone, written before its charge.
      const [{ pieces }] = await gateway.sql<[{ pieces: number }]>`
        SELECT count(*)::int AS pieces FROM batch_contents WHERE batch_id = ${batch.id}`;
      expect(pieces).toBeGreaterThan(4);
      await gateway.sql.unsafe(
        `DROP TRIGGER refuse_line ON batch_lines; DROP FUNCTION refuse_line`,
      );
      const ended = await endedBatch(gateway, batch.id);
      expect(total(ended)).toEqual([2, 2, 0]);
      const answers = await linesOf(gateway, ended.output_file_id);
      expect(answers.map(({ response }) => response.body.data.length)).toEqual([600, 1]);
      const charged = await charges(row!.id);
      expect(answers.map(({ response }) => response.request_id).sort()).toEqual(charged.sort());
    },
    TIMEOUT_MS,
  );

  test(
    "calls again what a provider fails, and gives a lasting failure as the line's error",
    async () => {
      upstream.enqueue("recovering", { do: "error", status: 500 });
      upstream.behave("recovering", { do: "complete" });
      const key = await addSecretKey(gateway, {});
      const batch = await createBatch(gateway, chatLine("a", { model: "test/recovering" }), {
        key,
      });
      expect(total(await endedBatch(gateway, batch.id))).toEqual([1, 1, 0]);
    },
    TIMEOUT_MS,
  );

  test(
    "has the answer that an earlier try was charged for, also where the key is switched off since",
    async () => {
      upstream.behave("recovering", { do: "error", status: 500, firstDelayMs: 100 });
      const key = await addSecretKey(gateway, {});
      const [row] = await gateway.sql<{ id: string }[]>`
        SELECT id FROM api_keys ORDER BY created_at DESC LIMIT 1`;
      const body = { model: "test/recovering", messages: [{ role: "user", content: "once" }] };
      const batch = await createBatch(gateway, requestLine("a", body), { key });
      const calls = () => upstream.servedOf("recovering").length;
      const before = calls();
      await until("the line is called", () => calls() > before);
      await until("the first try has failed", async () => {
        const claims =
          await gateway.sql`SELECT 1 FROM idempotency_records WHERE key_id = ${batch.id}`;
        return claims.length === 0;
      });
      upstream.behave("recovering", { do: "complete" });
      // The same request, moved to the key of the line, stands for a try whose charge was answered too late.
      const headers = { "idempotency-key": "late" };
      await gateway.request("POST", CHATS, body, { key, headers });
      await gateway.sql`UPDATE idempotency_records SET key_id = ${batch.id}, idempotency_key = '1'
        WHERE key_id = ${row!.id}`;
      await gateway.request("PATCH", `/v1/keys/${row!.id}`, { is_active: false });
      const ended = await endedBatch(gateway, batch.id);
      expect(total(ended)).toEqual([1, 1, 0]);
      const [answer] = await linesOf(gateway, ended.output_file_id);
      expect(await charges(row!.id)).toEqual([answer!.response.request_id]);
    },
    TIMEOUT_MS,
  );

  test(
    "whose key has no money left, or is switched off, ends with that as the errors of its lines",
    async () => {
      const key = await addSecretKey(gateway, { dailyBudgetNano: 1n });
      const batch = await createBatch(gateway, chatLine("a") + chatLine("b"), { key });
      const ended = await endedBatch(gateway, batch.id);
      expect(ended).toMatchObject({ status: "completed", output_file_id: null });
      const codes = (await linesOf(gateway, ended.error_file_id)).map(
        ({ response }) => response.body.error.code,
      );
      expect(codes).toEqual(["budget_exhausted", "budget_exhausted"]);
    },
    TIMEOUT_MS,
  );
});

describe("a batch whose input is at fault fails, and calls nothing", () => {
  test.each([
    ["duplicate_custom_id", 2, chatLine("a") + chatLine("a")],
    ["mismatched_url", 1, requestLine("a", { input: "x" }, "/v1/embeddings")],
    ["unsupported_parameter", 1, chatLine("a", { stream: true })],
    ["unsupported_parameter", 1, chatLine("a", { metadata: { idempotency_key: "k" } })],
  ])("%s", async (code, line, lines) => {
    const before = (await charges()).length;
    const batch = await createBatch(gateway, lines);
    const ended = await endedBatch(gateway, batch.id);
    expect([...(await eventsOf(batch.id))]).toMatchObject([
      { type: "batch.failed", data: { error: { code }, output_file_id: null } },
    ]);
    expect(ended).toMatchObject({
      status: "failed",
      failed_at: expect.any(Number),
      errors: { object: "list", data: [{ code, line, message: expect.any(String) }] },
      request_counts: { total: 0, completed: 0, failed: 0 },
      output_file_id: null,
      error_file_id: null,
    });
    expect((await charges()).length).toBe(before);
  });

  test("more than 50,000 lines", async () => {
    const lines = Array.from({ length: 50_001 }, (_, n) => chatLine(String(n))).join("");
    const ended = await endedBatch(gateway, (await createBatch(gateway, lines)).id);
    expect(ended.errors.data).toMatchObject([{ code: "too_many_requests", line: null }]);
  });
});

describe("a batch that ends before its lines are called", () => {
  test(
    "because it is cancelled: lines that run end, the others have an error, and it cannot be cancelled again",
    async () => {
      const answering = Array.from({ length: 20 }, (_, n) =>
        chatLine(`${n}`, { model: "test/recovering" }),
      ).join("");
      upstream.behave("recovering", { do: "complete", firstDelayMs: 500 });
      const batch = await createBatch(gateway, answering);
      await until(
        "lines are called",
        async () => (await readBatch(gateway, batch.id)).request_counts.total === 20,
      );
      const cancelled = await gateway.request("POST", `/v1/batches/${batch.id}/cancel`);
      expect(await cancelled.json()).toMatchObject({ status: "cancelling" });
      const ended = await endedBatch(gateway, batch.id);
      expect(ended).toMatchObject({ status: "cancelled", cancelled_at: expect.any(Number) });
      expect([...(await eventsOf(batch.id))]).toEqual([]);
      const answers = await linesOf(gateway, ended.output_file_id);
      const errors = await linesOf(gateway, ended.error_file_id);
      expect(ended.request_counts).toEqual({
        total: 20,
        completed: answers.length,
        failed: errors.length,
      });
      expect(answers.length + errors.length).toBe(20);
      expect(errors.length).toBeGreaterThan(0);
      for (const { response, error } of errors) {
        expect({ response, code: error.code }).toEqual({ response: null, code: "batch_cancelled" });
      }
      const again = await gateway.request("POST", `/v1/batches/${batch.id}/cancel`);
      expect(await again.json()).toMatchObject({ status: "cancelled" });
      await expectBooksClosed(gateway);
    },
    TIMEOUT_MS,
  );

  test(
    "because its window is over",
    async () => {
      upstream.behave("recovering", { do: "error", status: 500 });
      const batch = await createBatch(gateway, chatLine("a", { model: "test/recovering" }));
      await until(
        "the line is called",
        async () => (await readBatch(gateway, batch.id)).status === "in_progress",
      );
      await gateway.sql.begin(async (sql) => {
        await sql`UPDATE batches SET expires_at = clock_timestamp() WHERE id = ${batch.id}`;
        await sql`INSERT INTO changes (kind, object_id) VALUES ('batch-work', ${batch.id})`;
        await sql`SELECT pg_notify('gateway_changes', ${`batch-work ${batch.id}`})`;
      });
      const ended = await endedBatch(gateway, batch.id);
      expect(ended).toMatchObject({
        status: "expired",
        expired_at: expect.any(Number),
        request_counts: { total: 1, completed: 0, failed: 1 },
      });
      expect(await linesOf(gateway, ended.error_file_id)).toMatchObject([
        { custom_id: "a", response: null, error: { code: "batch_expired" } },
      ]);
      const { error_file_id } = ended;
      expect([...(await eventsOf(batch.id))]).toMatchObject([
        { type: "batch.failed", data: { error: { code: "batch_expired" }, error_file_id } },
      ]);
    },
    TIMEOUT_MS,
  );
});

describe("creating a batch is refused", () => {
  const create = (body: Json, key = gateway.secretKey) =>
    gateway.request(
      "POST",
      "/v1/batches",
      { endpoint: "/v1/chat/completions", completion_window: "24h", ...body },
      { key },
    );

  test("for a file of another purpose, of no organization of the caller's, or for another endpoint", async () => {
    const other = await uploaded(gateway, "assistants", "text");
    await expectError(await create({ input_file_id: other.id }), 400, "invalid_body");
    const stranger = await gateway.addOrganization();
    const file = await uploaded(gateway, "batch", chatLine("a"), { key: stranger.secretKey });
    await expectError(await create({ input_file_id: file.id }), 404, "file_not_found");
    const own = await uploaded(gateway, "batch", chatLine("a"));
    const body = { input_file_id: own.id };
    await expectError(await create({ ...body, endpoint: "/v1/keys" }), 400, "invalid_body");
    await expectError(await create({ ...body, completion_window: "1h" }), 400, "invalid_body");
  });

  test("for a key that may not call the endpoint", async () => {
    const key = await addSecretKey(gateway, { scopes: ["files:read", "files:write"] });
    const file = await uploaded(gateway, "batch", chatLine("a"));
    await expectError(await create({ input_file_id: file.id }, key), 403, "missing_scope");
  });
});

test("batches are listed newest first, by pages", async () => {
  const first = await createBatch(gateway, chatLine("a"));
  const second = await createBatch(gateway, chatLine("a"));
  const list = async (query: string) =>
    (await gateway.request("GET", `/v1/batches?${query}`)).json() as Promise<Json>;
  const page = await list("limit=1");
  expect(page).toMatchObject({ object: "list", has_more: true, last_id: second.id });
  const next = await list(`limit=1&after=${second.id}`);
  expect(next.data.map(({ id }: Json) => id)).toEqual([first.id]);
  const unknown = await gateway.request("GET", `/v1/batches?after=batch_${"0".repeat(32)}`);
  await expectError(unknown, 400, "invalid_query");
  for (const { id } of [first, second]) await endedBatch(gateway, id);
});
