import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { removeOldResponses } from "../../db/queries/responses.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";

import { until } from "../support/until.ts";
import { refuseRows, type UnwillingTable } from "../support/unwilling-table.ts";

type Fields = Record<string, unknown>;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

type Init = RequestInit & { key?: string };
const send = (body: Fields, init?: Init) =>
  gateway.request("POST", "/v1/responses", { input: "hello", ...body }, init);
const get = (path: string, init?: Init) =>
  gateway.request("GET", `/v1/responses/${path}`, undefined, init);
const remove = (id: unknown, init?: Init) =>
  gateway.request("DELETE", `/v1/responses/${id}`, undefined, init);

async function respond(body: Fields, init?: Init): Promise<Fields> {
  const response = await send(body, init);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text) as Fields;
}

async function jsonOf(response: Response): Promise<Fields> {
  return (await response.json()) as Fields;
}

async function expectError(response: Response, status: number, code: string): Promise<void> {
  expect(response.status).toBe(status);
  expect(await response.json()).toMatchObject({ error: { code } });
}

const CONTINUED = { do: "complete", content: "again" } as const;

/** What the provider was last sent for a model. */
function sent(slug: string): Fields[] {
  return gateway.upstream.servedOf(slug).at(-1)!.requestBody!.messages as Fields[];
}

const said = (role: string, content: string) => ({ role, content });

describe("a stored response", () => {
  test("is retrieved as it was answered, whole and streamed", async () => {
    const model = `test/${gateway.modelThat({ do: "complete", content: "Very well." })}`;
    const whole = await respond({ model, metadata: { a: "b" }, instructions: "Be." });
    expect(whole.store).toBe(true);
    const found = await jsonOf(await get(whole.id as string));
    expect(found).toEqual(whole);
    assertOpenResponses("ResponseResource", found);
    const streamed = await send({ model, stream: true });
    const { response } = responseEvents(await streamed.text()).at(-1) as { response: Fields };
    expect(await jsonOf(await get(response.id as string))).toEqual(response);
  });

  test("is continued with all that was said before, but its instructions", async () => {
    const slug = gateway.modelThat(CONTINUED);
    const model = `test/${slug}`;
    let previous: unknown;
    for (const input of ["one", "two", "three"]) {
      const { id } = await respond({
        model,
        input,
        instructions: `Be ${input}.`,
        previous_response_id: previous,
      });
      previous = id;
    }
    expect(sent(slug)).toEqual([
      said("system", "Be three."),
      said("user", "one"),
      said("assistant", "again"),
      said("user", "two"),
      said("assistant", "again"),
      said("user", "three"),
    ]);
  });

  test("can be continued in several ways", async () => {
    const slug = gateway.modelThat(CONTINUED);
    const model = `test/${slug}`;
    const { id } = await respond({ model, input: "root" });
    for (const input of ["left", "right"]) {
      await respond({ model, input, previous_response_id: id });
      expect(sent(slug).at(-1)).toEqual(said("user", input));
      expect(sent(slug)).toHaveLength(3);
    }
  });

  test("takes the outputs of its calls", async () => {
    const slug = gateway.modelThat(
      { do: "complete", toolCalls: [{ name: "look", arguments: "{}" }] },
      CONTINUED,
    );
    const tools = [{ type: "function", name: "look", parameters: { type: "object" } }];
    const first = await respond({ model: `test/${slug}`, tools });
    const [call] = first.output as Fields[];
    const output = { type: "function_call_output", call_id: call!.call_id, output: "dark" };
    const next = { model: `test/${slug}`, tools, previous_response_id: first.id, input: [output] };
    expect((await respond(next)).previous_response_id).toBe(first.id);
    expect(sent(slug).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
    const strange = { ...next, input: [{ ...output, call_id: "other" }] };
    await expectError(await send(strange), 400, "invalid_body");
  });

  test("lends its items to references", async () => {
    const slug = gateway.modelThat(CONTINUED);
    const model = `test/${slug}`;
    const first = await respond({ model, input: "one" });
    const [item] = first.output as Fields[];
    const reference = { type: "item_reference", id: item!.id };
    const input = [{ role: "user", content: "one" }, reference, { role: "user", content: "two" }];
    const second = await respond({ model, input });
    expect(sent(slug)).toEqual([
      said("user", "one"),
      said("assistant", "again"),
      said("user", "two"),
    ]);
    const listed = await jsonOf(await get(`${second.id}/input_items?order=asc`));
    expect((listed.data as Fields[])[1]).toEqual(item!);
    const foreign = await gateway.addOrganization();
    const unknown = await send({ model, input }, { key: foreign.secretKey });
    await expectError(unknown, 400, "invalid_body");
  });

  test("says an item once, however many references there are to it", async () => {
    const slug = gateway.modelThat(CONTINUED);
    const model = `test/${slug}`;
    const first = await respond({ model, input: "one" });
    const [item] = first.output as Fields[];
    const own = { type: "message", id: "mine", role: "user", content: "two" };
    const many = (id: unknown) => Array.from({ length: 1_000 }, () => ({ id }));
    await respond({ model, input: [...many(item!.id), own, ...many("mine")] });
    expect(sent(slug)).toEqual([said("assistant", "again"), said("user", "two")]);
  });

  test("survives inputs too long for the event loop, in both of its turns", async () => {
    const slug = gateway.modelThat(CONTINUED);
    const model = `test/${slug}`;
    const text = "long ".repeat(120_000);
    const first = await respond({ model, input: text });
    const second = await respond({ model, input: "short", previous_response_id: first.id });
    expect(sent(slug)).toEqual([
      said("user", text),
      said("assistant", "again"),
      said("user", "short"),
    ]);
    const streamed = await send({
      model,
      input: text,
      previous_response_id: second.id,
      stream: true,
    });
    const { response } = responseEvents(await streamed.text()).at(-1) as { response: Fields };
    const listed = await jsonOf(await get(`${response.id}/input_items?order=asc&limit=100`));
    const texts = (listed.data as { content: { text: string }[] }[]).map(
      ({ content }) => content[0]!.text,
    );
    expect(texts).toEqual([text, "again", "short", "again", text]);
  });
});

describe("input items", () => {
  test("are those of the whole chain, newest first, in pages", async () => {
    const model = `test/${gateway.modelThat(CONTINUED)}`;
    const first = await respond({ model, input: "one" });
    const { id } = await respond({
      model,
      input: [
        { role: "developer", content: "Be kind." },
        {
          type: "message",
          id: "mine",
          role: "user",
          content: [{ type: "input_text", text: "two" }],
        },
      ],
      previous_response_id: first.id,
    });
    const all = await jsonOf(await get(`${id}/input_items`));
    for (const item of all.data as Fields[]) assertOpenResponses("ItemField", item);
    const ids = (all.data as Fields[]).map((item) => item.id);
    const [said] = first.output as Fields[];
    expect(ids.slice(0, 3)).toEqual(["mine", expect.stringMatching(/^msg_/), said!.id]);
    expect(all).toMatchObject({ object: "list", first_id: "mine", has_more: false });
    const page = await jsonOf(await get(`${id}/input_items?limit=2&after=mine`));
    expect(page).toMatchObject({ first_id: ids[1], last_id: ids[2], has_more: true });
    const ascending = await jsonOf(await get(`${id}/input_items?order=asc`));
    expect((ascending.data as Fields[]).map((item) => item.id)).toEqual(ids.toReversed());
    await expectError(await get(`${id}/input_items?after=none`), 400, "invalid_query");
    await expectError(await get(`${id}/input_items?limit=0`), 400, "invalid_query");
  });
});

describe("what is not there is 404, and 400 as the response to continue from", () => {
  async function expectGone(id: unknown, init?: Init): Promise<void> {
    await expectError(await get(id as string, init), 404, "response_not_found");
    await expectError(await get(`${id}/input_items`, init), 404, "response_not_found");
    await expectError(await remove(id, init), 404, "response_not_found");
    const next = await send({ model: "sandbox/chat", previous_response_id: id }, init);
    await expectError(next, 400, "previous_response_not_found");
  }

  test("one that never was", () => expectGone("resp_none"));

  test("one that was not to be stored, of which nothing is kept", async () => {
    const { id, store } = await respond({ model: "sandbox/chat", store: false });
    expect(store).toBe(false);
    await expectGone(id);
    expect(await gateway.sql`SELECT 1 FROM responses WHERE id = ${id as string}`).toHaveLength(0);
  });

  test("one of another organization", async () => {
    const { id } = await respond({ model: "sandbox/chat" });
    const { secretKey } = await gateway.addOrganization();
    await expectGone(id, { key: secretKey });
    expect((await get(id as string)).status).toBe(200);
  });

  test("one that was deleted, with its contents, and those that continue from it", async () => {
    const first = await respond({ model: "sandbox/chat" });
    const second = await respond({ model: "sandbox/chat", previous_response_id: first.id });
    const deleted = await jsonOf(await remove(first.id));
    expect(deleted).toEqual({ id: first.id, object: "response", deleted: true });
    await expectGone(first.id);
    const rows = await gateway.sql`
      SELECT 1 FROM response_contents WHERE response_id = ${first.id as string}`;
    expect(rows).toHaveLength(0);
    expect((await get(second.id as string)).status).toBe(200);
    const next = await send({ model: "sandbox/chat", previous_response_id: second.id });
    await expectError(next, 400, "previous_response_not_found");
  });

  test("one whose stream its client left, or that failed", async () => {
    const slug = gateway.modelThat({ do: "cut", events: 8, afterEvents: 5 });
    const response = await send({ model: `test/${slug}`, stream: true });
    const [created] = responseEvents(await response.text());
    await expectGone((created!.response as Fields).id);
  });

  test("one that is older than 30 days, which later ones keep readable for themselves", async () => {
    const age = (id: unknown, days: number) => gateway.sql`
      UPDATE responses SET created_at = created_at - make_interval(days => ${days}),
        remove_after = remove_after - make_interval(days => ${days}) WHERE id = ${id as string}`;
    const first = await respond({ model: "sandbox/chat", input: "first" });
    const second = await respond({ model: "sandbox/chat", previous_response_id: first.id });
    await age(first.id, 31);
    await expectGone(first.id);
    await removeOldResponses(gateway.sql);
    const slug = gateway.modelThat(CONTINUED);
    await respond({ model: `test/${slug}`, previous_response_id: second.id });
    expect(sent(slug)[0]).toEqual(said("user", "first"));
    await gateway.sql`UPDATE responses SET created_at = created_at - interval '31 days',
      remove_after = remove_after - interval '31 days'`;
    await expectGone(second.id);
    while (await removeOldResponses(gateway.sql));
    const left = await gateway.sql`SELECT id FROM responses`;
    const pieces = await gateway.sql`SELECT part FROM response_contents`;
    expect([left.length, pieces.length]).toEqual([0, 0]);
  });
});

test("input tokens are estimated with the ancestry, short and long, and nothing is charged", async () => {
  const count = async (body: Fields) => {
    const response = await gateway.request("POST", "/v1/responses/input_tokens", body);
    const counted = await jsonOf(response);
    expect(counted).toMatchObject({ object: "response.input_tokens" });
    return counted.input_tokens as number;
  };
  const model = "sandbox/chat";
  const alone = await count({ model, input: "one two three" });
  expect(alone).toBe(7);
  const { id } = await respond({ model, input: "one two three", max_output_tokens: 1 });
  const charges = () => gateway.sql`SELECT 1 FROM transactions`;
  const before = (await charges()).length;
  expect(await count({ model, input: "four", previous_response_id: id })).toBeGreaterThan(alone);
  expect(await count({ model, input: "one ".repeat(100_000) })).toBeGreaterThan(90_000);
  expect(await charges()).toHaveLength(before);
  const unknown = await gateway.request("POST", "/v1/responses/input_tokens", {
    model,
    input: "four",
    previous_response_id: "resp_none",
  });
  await expectError(unknown, 400, "previous_response_not_found");
});

describe("what cannot be stored", () => {
  /** A disk that is full. */
  const FULL = "53100";
  let table: UnwillingTable;
  beforeEach(async () => {
    table = await refuseRows(gateway.sql, "response_contents", FULL);
  });
  afterEach(() => table.relent());

  test("is not answered, nor charged: 503", async () => {
    const response = await send({ model: "sandbox/chat" });
    expect(await response.clone().text()).not.toContain("You said");
    await expectError(response, 503, "database_unavailable");
    const requestId = response.headers.get("x-gateway-request-id")!;
    expect(await billOf(gateway, requestId)).toBeUndefined();
  });

  test.each([10, 400_000])(
    "is charged where it was delivered, whose stream ends with an error (input of %d)",
    async (length) => {
      const input = "x ".repeat(length / 2);
      const response = await send({
        model: "sandbox/chat",
        input,
        max_output_tokens: 5,
        stream: true,
      });
      const events = responseEvents(await response.text());
      expect(events.at(-1)).toMatchObject({
        type: "error",
        error: { code: "database_unavailable" },
      });
      expect(textOf(events)).not.toBe("");
      const requestId = response.headers.get("x-gateway-request-id")!;
      expect(await billOf(gateway, requestId)).toMatchObject({ completionTokens: 5, status: 200 });
      const [{ response: begun }] = events as unknown as [{ response: Fields }];
      await expectError(await get(begun.id as string), 404, "response_not_found");
    },
  );
});

function textOf(events: readonly Fields[]): string {
  const deltas = events.filter(({ type }) => type === "response.output_text.delta");
  return deltas.map(({ delta }) => delta).join("");
}

test("a response whose charge cannot be written is not there", async () => {
  await gateway.sql`ALTER FUNCTION ledger_settle_batch RENAME TO ledger_settle_batch_away`;
  try {
    const response = await send({ model: "sandbox/chat" });
    await expectError(response, 500, "internal");
    const id = response.headers.get("x-gateway-request-id")!.replace("req_", "resp_");
    await expectError(await get(id), 404, "response_not_found");
    const [row] = await gateway.sql`SELECT is_kept FROM responses WHERE id = ${id}`;
    expect(row).toEqual({ is_kept: false });
  } finally {
    await gateway.sql`ALTER FUNCTION ledger_settle_batch_away RENAME TO ledger_settle_batch`;
  }
});

test("a response that the database lost as it crashed fails with its charge, which fails alone", async () => {
  const model = "sandbox/chat";
  await respond({ model });
  const unkept = async () => {
    const rows = await gateway.sql`SELECT id FROM responses WHERE NOT is_kept`;
    return rows.map(({ id }) => id as string);
  };
  const before = await unkept();
  const written = (but: readonly string[]) =>
    until("a response is written", async () => (await unkept()).find((id) => !but.includes(id)));
  // The charge of the chat waits in a batch of its own, and those of the responses for the next one.
  const [chat, lost, kept] = await gateway.sql.begin(async (transaction) => {
    await transaction`SELECT 1 FROM accounts ORDER BY id FOR UPDATE`;
    const messages = [said("user", "hello")];
    const chat = gateway.request("POST", "/v1/chat/completions", { model, messages });
    await until("its charge waits", async () => {
      const [row] = await gateway.sql`SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      return row !== undefined;
    });
    const lost = send({ model });
    const id = await written(before);
    await gateway.sql`DELETE FROM responses WHERE id = ${id}`;
    const kept = send({ model });
    await written(before);
    return [chat, lost, kept];
  });
  expect((await chat!).status).toBe(200);
  await expectError(await lost!, 503, "database_unavailable");
  const { id } = await jsonOf(await kept!);
  expect((await get(id as string)).status).toBe(200);
});

test("a response is charged in the one statement of all charges", async () => {
  const marks = () => gateway.sql`SELECT count(*)::int AS count FROM commit_marks`;
  const before = await marks();
  await respond({ model: "sandbox/chat" });
  expect([...(await marks())]).toEqual([...before]);
});

test("what is stored is sealed", async () => {
  const { id } = await respond({ model: "sandbox/chat", input: "my secret words" });
  const rows = await gateway.sql`
    SELECT sealed FROM response_contents WHERE response_id = ${id as string} ORDER BY part`;
  expect(rows.length).toBe(3);
  for (const { sealed } of rows) expect(Buffer.from(sealed).toString()).not.toContain("secret");
});
