import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const SEARCH_NANO = 2_500_000n;
const WITH_FEE = (SEARCH_NANO * 104n) / 100n;

let gateway: ChatGateway;
let storeId: string;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: { GATEWAY_FILE_SEARCH_COST_USD: "0.0025" },
    models: { two: ["primary/two-a", "secondary/two-b"] },
  });
  storeId = await vectorStoreOf(gateway, {
    "harbour.txt": "The harbour opens at six in the morning.",
    "ferry.txt": "The last ferry leaves the harbour at eleven.",
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const respond = (body: Json, init?: RequestInit & { key?: string }) => {
  const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
  return gateway.request("POST", "/v1/responses", { input: "hello", tools, ...body }, init);
};

async function wholeOf(response: Response): Promise<Json> {
  const body = (await response.json()) as Json;
  expect(response.status, JSON.stringify(body)).toBe(200);
  assertOpenResponses("ResponseResource", body);
  return body;
}

const search = (query: string, ...more: Json[]): Behaviour => ({
  do: "complete",
  toolCalls: [{ name: "file_search", arguments: JSON.stringify({ query }) }, ...(more as never[])],
});
const say = (content: string): Behaviour => ({ do: "complete", content });

/** Fails reads of the table as a server does whose disk is full. */
async function unreadableTable(table: string): Promise<{ mend(): Promise<void> }> {
  const away = `${table}_away`;
  await gateway.sql.unsafe(`ALTER TABLE ${table} RENAME TO ${away}`);
  await gateway.sql.unsafe(`CREATE FUNCTION unreadable() RETURNS SETOF ${away} LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '53100'; END $$`);
  await gateway.sql.unsafe(`CREATE VIEW ${table} AS SELECT * FROM unreadable()`);
  return {
    async mend() {
      await gateway.sql.unsafe(`DROP VIEW ${table}`);
      await gateway.sql.unsafe("DROP FUNCTION unreadable()");
      await gateway.sql.unsafe(`ALTER TABLE ${away} RENAME TO ${table}`);
    },
  };
}

/** The bodies that the upstream was sent for a model, in order. */
const sentTo = (model: string): Json[] =>
  gateway.upstream.served
    .filter((served) => served.model === model)
    .map(({ requestBody }) => requestBody as Json);

describe("a response whose tools the gateway runs", () => {
  test("searches, answers from what was found, cites it, and is one charge with the sum", async () => {
    const slug = gateway.modelThat(
      search("when does the harbour open"),
      say("At six (harbour.txt)."),
    );
    const response = await respond({ model: `test/${slug}` });
    const body = await wholeOf(response);
    const [call, message] = body.output as Json[];
    expect(call).toMatchObject({
      type: "file_search_call",
      status: "completed",
      queries: ["when does the harbour open"],
      results: null,
    });
    expect(message!.content[0]).toMatchObject({
      text: "At six (harbour.txt).",
      annotations: [{ type: "file_citation", filename: "harbour.txt", index: 19 }],
    });
    const [first, second] = sentTo(slug);
    expect(first!.tools[0].function.name).toBe("file_search");
    expect(second!.messages.slice(1)).toMatchObject([
      { role: "assistant", content: null, tool_calls: [{ type: "function" }] },
      { role: "tool", content: expect.stringContaining("The harbour opens at six") },
    ]);
    const usages = gateway.upstream.served
      .filter(({ model }) => model === slug)
      .map(({ usageReported }) => usageReported as Json);
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({
      promptTokens: usages[0]!.prompt_tokens + usages[1]!.prompt_tokens,
      completionTokens: usages[0]!.completion_tokens + usages[1]!.completion_tokens,
      quantities: { file_searches: 1 },
      estimated: false,
    });
    expect(bill.chargeNano).toBeGreaterThan(WITH_FEE);
    expect(body.usage.cost).toBe(Number(bill.chargeNano) / 1e9);
    expect(Number(response.headers.get("x-gateway-cost"))).toBe(body.usage.cost);
  });

  test("fails as what it is, and not as its provider, where a tool fails with the database", async () => {
    const stream = { model: "test/two", stream: true };
    const chunks = await unreadableTable("vector_store_chunks");
    try {
      for (let at = 0; at < 12; at++) {
        gateway.upstream.behave("two-a", search("harbour"));
        const response =
          at % 2 === 0 ? await respond(stream) : await respond({ model: "test/two" });
        const text = await response.text();
        expect(text).toContain("database_unavailable");
        expect(text).not.toContain("provider_error");
      }
    } finally {
      await chunks.mend();
    }
    gateway.upstream.behave("two-a", say("Well."));
    const served = await wholeOf(await respond({ model: "test/two" }));
    expect(served.model).toBe("test/two");
    expect(gateway.upstream.servedOf("two-b")).toHaveLength(0);
  });

  test("streams each run as it goes, in the published events", async () => {
    const slug = gateway.modelThat(search("ferry"), say("At eleven: ferry.txt"));
    const response = await respond({
      model: `test/${slug}`,
      stream: true,
      include: ["file_search_call.results"],
    });
    const events = responseEvents(await response.text());
    expect(events.map(({ type }) => type).slice(0, 8)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.file_search_call.in_progress",
      "response.file_search_call.searching",
      "response.file_search_call.completed",
      "response.output_item.done",
      "response.output_item.added",
    ]);
    expect(events.map(({ type }) => type)).toContain("response.output_text.annotation.added");
    const { response: last } = events.at(-1) as Json;
    assertOpenResponses("ResponseResource", last);
    expect(last.output[0].results[0]).toMatchObject({ filename: "ferry.txt" });
    const bill = await billOfResponse(gateway, response);
    expect(last.usage.cost).toBe(Number(bill.chargeNano) / 1e9);
  });

  test("runs calls of one step side by side, and shows the caller its own", async () => {
    const look = { type: "function", name: "look", parameters: { type: "object" } };
    const slug = gateway.modelThat(
      search(
        "harbour",
        { name: "look", arguments: "{}" },
        {
          name: "file_search",
          arguments: '{"query":"ferry"}',
        },
      ),
    );
    const tools = [look, { type: "file_search", vector_store_ids: [storeId] }];
    const body = await wholeOf(await respond({ model: `test/${slug}`, tools }));
    expect(body.status).toBe("completed");
    expect(body.output.map(({ type }: Json) => type).sort()).toEqual([
      "file_search_call",
      "file_search_call",
      "function_call",
    ]);
    expect(body.output.map(({ status }: Json) => status)).toEqual(Array(3).fill("completed"));
    expect(sentTo(slug)).toHaveLength(1);
    const [call] = body.output.filter(({ type }: Json) => type === "function_call");
    gateway.upstream.behave(slug, say("Dark."));
    const output = { type: "function_call_output", call_id: call.call_id, output: "dark" };
    const next = await respond({
      model: `test/${slug}`,
      tools,
      previous_response_id: body.id,
      input: [output],
    });
    expect((await wholeOf(next)).output).toMatchObject([{ content: [{ text: "Dark." }] }]);
  });

  test("chooses the tool it is told to once, and then as it likes", async () => {
    for (const choice of ["required", { type: "file_search" }]) {
      const slug = gateway.modelThat(search("harbour"), say("At six."));
      const body = await wholeOf(await respond({ model: `test/${slug}`, tool_choice: choice }));
      expect(body.tool_choice).toEqual(choice);
      const sent = sentTo(slug).map(({ tool_choice }) => tool_choice);
      const named = { type: "function", function: { name: "file_search" } };
      expect(sent).toEqual([choice === "required" ? choice : named, "auto"]);
    }
  });

  test("runs no more tools than may be run", async () => {
    const slug = gateway.modelThat(search("harbour"), search("ferry"), say("At six."));
    const asked = { model: `test/${slug}`, max_tool_calls: 1 };
    const body = await wholeOf(await respond(asked));
    expect(body).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_tool_calls" },
      max_tool_calls: 1,
    });
    expect(body.output).toHaveLength(1);
    expect(sentTo(slug).map(({ tool_choice }) => tool_choice)).toEqual([undefined, "none"]);
    const endless = gateway.modelThat(search("harbour"));
    const last = await wholeOf(await respond({ model: `test/${endless}` }));
    expect(last.output).toHaveLength(10);
    expect(sentTo(endless)).toHaveLength(11);
  });

  test("counts the tokens of each step against the limit of its key, and ends where a step does not fit", async () => {
    const left = async (key: string) => {
      const own = await gateway.request("GET", "/v1/key", undefined, { key });
      return ((await own.json()) as Json).remaining_tpm as number;
    };
    const asked = { max_output_tokens: 400 };
    const key = await addSecretKey(gateway, { rateLimitTpm: 100_000 });
    const slug = gateway.modelThat(search("harbour"), search("ferry"), say("At six."));
    const whole = await wholeOf(await respond({ model: `test/${slug}`, ...asked }, { key }));
    expect(whole.status).toBe("completed");
    expect(await left(key)).toBe(100_000 - whole.usage.total_tokens);
    // Enough for the first step, and not for one with what was found.
    const poor = await addSecretKey(gateway, { rateLimitTpm: 2_600 });
    const other = gateway.modelThat(search("harbour"), say("At six."));
    const filler = "x".repeat(900);
    const cut = await wholeOf(
      await respond({ model: `test/${other}`, input: filler, ...asked }, { key: poor }),
    );
    expect(cut).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_cost" },
      output: [{ type: "file_search_call", status: "completed" }],
    });
    expect(sentTo(other)).toHaveLength(1);
    expect(await left(poor)).toBe(2_600 - cut.usage.total_tokens);
  });

  test("tells the model what was wrong with its arguments", async () => {
    const bad = { do: "complete", toolCalls: [{ name: "file_search", arguments: "{oops" }] };
    const slug = gateway.modelThat(bad as Behaviour, say("Sorry."));
    const response = await respond({ model: `test/${slug}` });
    const body = await wholeOf(response);
    expect(body.output[0]).toMatchObject({
      type: "file_search_call",
      status: "failed",
      queries: [],
    });
    expect(sentTo(slug)[1]!.messages.at(-1).content).toContain("JSON of the form");
    expect((await billOfResponse(gateway, response)).quantities).toBeNull();
  });

  test("keeps its steps' messages behind a body that a thread has read", async () => {
    const slug = gateway.modelThat(search("harbour"), say("At six."));
    const input = `When? ${"a long question ".repeat(6_000)}`;
    for (const stream of [false, true]) {
      if (stream) gateway.upstream.enqueue(slug, search("ferry"));
      const response = await respond({ model: `test/${slug}`, input, stream });
      const text = await response.text();
      expect(text).toContain("At six.");
      if (stream) responseEvents(text);
    }
    const [, second] = sentTo(slug);
    expect(second!.messages.map(({ role }: Json) => role)).toEqual(["user", "assistant", "tool"]);
    expect(second!.messages[0].content).toBe(input);
  });

  test("is replayed under its idempotency key, and neither run nor charged again", async () => {
    const slug = gateway.modelThat(search("harbour"), say("At six."));
    const headers = { "idempotency-key": "loop-1" };
    const first = await respond({ model: `test/${slug}` }, { headers });
    const again = await respond({ model: `test/${slug}` }, { headers });
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(again.headers.get("x-gateway-cost")).toBe(first.headers.get("x-gateway-cost"));
    expect(await again.text()).toBe(await first.text());
    expect(sentTo(slug)).toHaveLength(2);
  });

  test("runs in the background as well, and is stored with its runs", async () => {
    const slug = gateway.modelThat(search("harbour"), say("At six (harbour.txt)."));
    const begun = await wholeOf(await respond({ model: `test/${slug}`, background: true }));
    expect(begun.status).toBe("queued");
    const ended = await until("the response has ended", async () => {
      const found = await gateway.request("GET", `/v1/responses/${begun.id}`);
      const body = await wholeOf(found);
      return body.status === "completed" && body;
    });
    expect(ended.output.map(({ type }: Json) => type)).toEqual(["file_search_call", "message"]);
    const bill = await billOf(gateway, begun.id.replace("resp_", "req_"));
    expect(bill).toMatchObject({ status: 200, quantities: { file_searches: 1 } });
    const next = await respond({ model: `test/${slug}`, previous_response_id: begun.id });
    expect((await wholeOf(next)).status).toBe("completed");
  });

  test("is refused before a provider is called where the stores are not the organization's", async () => {
    const slug = gateway.modelThat(say("never"));
    const { secretKey: key } = await gateway.addOrganization();
    for (const stream of [false, true]) {
      const response = await respond({ model: `test/${slug}`, stream }, { key });
      await expectError(response, 404, "vector_store_not_found");
      expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
    }
    expect(sentTo(slug)).toHaveLength(0);
  });

  test("refuses options that are wrong, with their place", async () => {
    const slug = gateway.modelThat(say("never"));
    const model = `test/${slug}`;
    const search = { type: "file_search", vector_store_ids: [storeId] };
    const cases: readonly (readonly [Json, string])[] = [
      [{ tools: [{ type: "file_search" }] }, "tools.0.vector_store_ids"],
      [{ tools: [{ ...search, vector_store_ids: [] }] }, "tools.0.vector_store_ids"],
      [{ tools: [{ ...search, max_num_results: 51 }] }, "tools.0.max_num_results"],
      [{ tools: [{ ...search, filters: { type: "like" } }] }, "filters"],
      [{ tools: [search, search] }, "tools"],
      [{ tools: [search, { type: "function", name: "file_search" }] }, "tools"],
      [{ tools: [search], tool_choice: { type: "code_interpreter" } }, "tool_choice.type"],
    ];
    for (const [body, param] of cases) {
      const response = await respond({ model, ...body });
      expect({ status: response.status, ...((await response.json()) as Json).error }).toMatchObject(
        { status: 400, param },
      );
    }
  });
});

describe("a loop that does not come to its end", () => {
  test("is charged for the steps it has taken where a later one fails", async () => {
    for (const stream of [false, true]) {
      const slug = gateway.modelThat(search("harbour"), { do: "error", status: 500 });
      const response = await respond({ model: `test/${slug}`, stream });
      expect(response.status).toBe(200);
      const text = await response.text();
      const last = stream
        ? (responseEvents(text).find(({ type }) => type === "response.failed") as Json).response
        : (JSON.parse(text) as Json);
      assertOpenResponses("ResponseResource", last);
      expect(last).toMatchObject({ status: "failed", error: { code: "provider_error" } });
      expect(last.output).toMatchObject([{ type: "file_search_call", status: "completed" }]);
      const bill = await until("the charge", () =>
        billOf(gateway, response.headers.get("x-gateway-request-id")!),
      );
      const [usage] = gateway.upstream.served.filter(({ model }) => model === slug);
      expect(bill).toMatchObject({
        promptTokens: (usage!.usageReported as Json).prompt_tokens,
        quantities: { file_searches: 1 },
      });
    }
  });

  test("costs nothing where the first step fails, and another endpoint may serve it", async () => {
    const slug = gateway.modelThat({ do: "cut", afterEvents: 1, content: "one two three four" });
    const response = await respond({ model: `test/${slug}` });
    await expectError(response, 502, "provider_error");
    expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
    gateway.upstream.behave("two-a", { do: "cut", afterEvents: 1, content: "one two three four" });
    gateway.upstream.enqueue("two-b", search("harbour"));
    gateway.upstream.behave("two-b", say("At six."));
    const served = await respond({ model: "test/two" });
    expect((await wholeOf(served)).output).toHaveLength(2);
    expect(served.headers.get("x-gateway-provider")).toBe("secondary");
  });

  test("is charged for the steps taken where the client goes away", async () => {
    for (const stream of [false, true]) {
      const slug = gateway.modelThat(search("harbour"), { do: "stall" });
      const gone = new AbortController();
      const asked = respond({ model: `test/${slug}`, stream }, { signal: gone.signal });
      if (stream) void (await asked).text().catch(() => undefined);
      await gateway.upstream.until(() => sentTo(slug).length === 2);
      gone.abort();
      await asked.catch(() => undefined);
      const bill = await until("the charge", async () => {
        const [row] = await gateway.sql`SELECT request_id FROM transactions
          WHERE model = ${`test/${slug}`} AND type = 'usage'`;
        return row && billOf(gateway, row.request_id);
      });
      expect(bill).toMatchObject({ status: 499, quantities: { file_searches: 1 } });
      const [first] = gateway.upstream.served.filter(({ model }) => model === slug);
      expect(bill!.promptTokens).toBeGreaterThanOrEqual(
        (first!.usageReported as Json).prompt_tokens,
      );
    }
  });

  test("fails with what it had come to where the response's time is over", async () => {
    const hasty = await startChatGateway({
      environment: { GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: "1500" },
    });
    try {
      const tools = [
        {
          type: "file_search",
          vector_store_ids: [await vectorStoreOf(hasty, { "harbour.txt": "It opens at six." })],
        },
      ];
      for (const stream of [false, true]) {
        const slug = hasty.modelThat(search("harbour"), { do: "stall" });
        const asked = { model: `test/${slug}`, input: "hello", tools, stream };
        const response = await hasty.request("POST", "/v1/responses", asked);
        expect(response.status).toBe(200);
        const text = await response.text();
        expect(text).toContain('"status":"failed"');
        expect(text).toContain('"code":"provider_timeout"');
        const bill = await until("the charge", () =>
          billOf(hasty, response.headers.get("x-gateway-request-id")!),
        );
        expect(bill).toMatchObject({ status: 200, quantities: { file_searches: 1 } });
      }
      await expectBooksClosed(hasty);
    } finally {
      await hasty.stop();
    }
  });
});
