import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { removeOldResponses } from "../../db/queries/responses.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";

type Fields = Record<string, unknown>;
type Init = RequestInit & { key?: string };

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const AGAIN = { do: "complete", content: "again" } as const;
const ask = (method: string, path: string, body?: Fields, init?: Init) =>
  gateway.request(method, `/v1/${path}`, body, init);

async function ok(method: string, path: string, body?: Fields, init?: Init): Promise<Fields> {
  const response = await ask(method, path, body, init);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text) as Fields;
}

async function expectError(response: Response, status: number, code: string): Promise<void> {
  expect(await response.json()).toMatchObject({ error: { code } });
  expect(response.status).toBe(status);
}

const newConversation = async (body: Fields = {}) =>
  (await ok("POST", "conversations", body)).id as string;
const itemsOf = async (id: string, query = "?order=asc&limit=100") =>
  (await ok("GET", `conversations/${id}/items${query}`)).data as Fields[];
const textOf = ({ content }: Fields) => (content as Fields[]).map(({ text }) => text).join("");
const said = (role: string, content: string) => ({ role, content });
const sent = (slug: string) =>
  gateway.upstream.servedOf(slug).at(-1)!.requestBody!.messages as Fields[];

describe("a conversation", () => {
  test("has metadata of at most 16 pairs, with keys of 64 and texts of 512 characters", async () => {
    const pairs = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, "v"]));
    for (const metadata of [pairs(17), { ["k".repeat(65)]: "v" }, { k: "v".repeat(513) }]) {
      const refused = await ask("POST", "conversations", { metadata });
      expect(refused.status).toBe(400);
    }
    const most = { ...pairs(15), ["k".repeat(64)]: "v".repeat(512) };
    expect(await ok("POST", "conversations", { metadata: most })).toMatchObject({ metadata: most });
  });

  test("is created with items and metadata, changed, read and deleted", async () => {
    const items = [said("user", "A boat."), said("assistant", "Red?")];
    const created = await ok("POST", "conversations", { metadata: { topic: "sea" }, items });
    expect(created).toMatchObject({ object: "conversation", metadata: { topic: "sea" } });
    const id = created.id as string;
    expect(await ok("GET", `conversations/${id}`)).toEqual(created);
    const listed = await itemsOf(id);
    expect(listed.map((item) => [item.role, textOf(item)])).toEqual([
      ["user", "A boat."],
      ["assistant", "Red?"],
    ]);
    for (const item of listed) assertOpenResponses("ItemField", item);
    const changed = await ok("POST", `conversations/${id}`, { metadata: { topic: "lake" } });
    expect(changed).toEqual({ ...created, metadata: { topic: "lake" } });
    const deleted = await ok("DELETE", `conversations/${id}`);
    expect(deleted).toEqual({ id, object: "conversation.deleted", deleted: true });
    await expectError(await ask("GET", `conversations/${id}`), 404, "conversation_not_found");
    await expectError(await ask("GET", `conversations/${id}/items`), 404, "conversation_not_found");
  });

  test("is continued by responses, whole, streamed and in the background, and sees what was added", async () => {
    const slug = gateway.modelThat(AGAIN);
    const model = `test/${slug}`;
    const conversation = await newConversation({ items: [said("user", "zero")] });
    const first = await ok("POST", "responses", { model, input: "one", conversation });
    expect(first.conversation).toEqual({ id: conversation });
    assertOpenResponses("ResponseResource", first);
    const stream = { model, input: "two", conversation: { id: conversation }, stream: true };
    responseEvents(await (await ask("POST", "responses", stream)).text());
    await ok("POST", `conversations/${conversation}/items`, { items: [said("user", "between")] });
    const last = { model, input: "three", conversation, background: true, stream: true };
    responseEvents(await (await ask("POST", "responses", last)).text());
    expect(sent(slug)).toEqual([
      said("user", "zero"),
      said("user", "one"),
      said("assistant", "again"),
      said("user", "two"),
      said("assistant", "again"),
      said("user", "between"),
      said("user", "three"),
    ]);
    expect((await itemsOf(conversation)).map(textOf)).toEqual([
      "zero",
      "one",
      "again",
      "two",
      "again",
      "between",
      "three",
      "again",
    ]);
    await ok("POST", "responses/compact", { model, conversation });
    expect(sent(slug)).toHaveLength(9);
    expect(await itemsOf(conversation)).toHaveLength(8);
  });

  test("pages its items, shows one, and forgets one that is taken out", async () => {
    const slug = gateway.modelThat(AGAIN);
    const model = `test/${slug}`;
    const conversation = await newConversation({
      items: ["a", "b", "c"].map((one) => said("user", one)),
    });
    const [a, b, c] = await itemsOf(conversation);
    expect(await itemsOf(conversation, "")).toEqual([c!, b!, a!]);
    const page = await ok("GET", `conversations/${conversation}/items?limit=1&after=${c!.id}`);
    expect(page).toMatchObject({ data: [b!], first_id: b!.id, has_more: true });
    expect(await ok("GET", `conversations/${conversation}/items/${b!.id}`)).toEqual(b!);
    const removed = await ask("DELETE", `conversations/${conversation}/items/${b!.id}`);
    expect(await removed.json()).toMatchObject({ id: conversation, object: "conversation" });
    for (const method of ["GET", "DELETE"]) {
      const gone = await ask(method, `conversations/${conversation}/items/${b!.id}`);
      await expectError(gone, 404, "item_not_found");
    }
    expect(await itemsOf(conversation)).toEqual([a!, c!]);
    await ok("POST", "responses", { model, input: "d", conversation });
    expect(sent(slug)).toEqual([said("user", "a"), said("user", "c"), said("user", "d")]);
    const long = "long ".repeat(30_000);
    await ok("POST", "responses", { model, input: long, conversation });
    expect(sent(slug).map(({ role }) => role)).toEqual([
      "user",
      "user",
      "user",
      "assistant",
      "user",
    ]);
  });

  test("has turns that run at once one behind the other, in the order of their charges, and loses none", async () => {
    const slug = gateway.modelThat({ ...AGAIN, firstDelayMs: 40 });
    const model = `test/${slug}`;
    const conversation = await newConversation();
    const inputs = Array.from({ length: 12 }, (_, at) => `turn ${at}`);
    await Promise.all(
      inputs.map((input, at) =>
        at % 4 === 3
          ? ok("POST", `conversations/${conversation}/items`, { items: [said("user", input)] })
          : ok("POST", "responses", {
              ...{ model, input, conversation },
              ...(at % 4 === 2 && { metadata: { idempotency_key: crypto.randomUUID() } }),
            }),
      ),
    );
    const texts = (await itemsOf(conversation)).map(textOf);
    expect(texts).toHaveLength(21);
    expect(texts.filter((text) => text !== "again").sort()).toEqual(inputs.sort());
    for (const [at, text] of texts.entries()) {
      const number = Number(/\d+/.exec(text)?.[0] ?? -1);
      if (number >= 0 && number % 4 !== 3) expect([text, texts[at + 1]]).toEqual([text, "again"]);
    }
    await ok("POST", "responses", { model, input: "last", conversation });
    expect(sent(slug)).toHaveLength(22);
  });

  test("keeps turns whose responses are deleted or older than 30 days, until it is deleted itself", async () => {
    const slug = gateway.modelThat(AGAIN);
    const model = `test/${slug}`;
    const conversation = await newConversation();
    const first = await ok("POST", "responses", { model, input: "one", conversation });
    const second = await ok("POST", "responses", { model, input: "two", conversation });
    await ok("DELETE", `responses/${first.id}`);
    await expectError(await ask("GET", `responses/${first.id}`), 404, "response_not_found");
    await gateway.sql`UPDATE responses SET created_at = created_at - interval '60 days'
      WHERE id = ${String(second.id)}`;
    while (await removeOldResponses(gateway.sql));
    await expectError(await ask("GET", `responses/${second.id}`), 404, "response_not_found");
    expect(await itemsOf(conversation)).toHaveLength(4);
    await ok("POST", "responses", { model, input: "three", conversation });
    expect(sent(slug)).toHaveLength(5);
    await ok("DELETE", `conversations/${conversation}`);
    await gateway.sql`UPDATE responses SET created_at = '-infinity', remove_after = '-infinity'
      WHERE chain_id = ${conversation}`;
    while (await removeOldResponses(gateway.sql));
    const left = await gateway.sql`SELECT 1 FROM responses WHERE chain_id = ${conversation}`;
    expect(left).toHaveLength(0);
  });

  test.each([
    ["short", "one"],
    ["long", "one ".repeat(300_000)],
  ])(
    "answers a %s turn that is tried again with its key as before, however long it has grown",
    async (_, input) => {
      const slug = gateway.modelThat(AGAIN);
      const conversation = await newConversation({ items: [said("user", "zero")] });
      const body = { model: `test/${slug}`, input, conversation };
      const init = { headers: { "Idempotency-Key": crypto.randomUUID() } };
      const first = await ok("POST", "responses", body, init);
      const items = [said("user", "grown ".repeat(100_000))];
      for (const _part of ["a", "b"]) {
        await ok("POST", `conversations/${conversation}/items`, { items });
      }
      expect(await ok("POST", "responses", body, init)).toEqual(first);
      expect(gateway.upstream.servedOf(slug)).toHaveLength(1);
      const other = await ask("POST", "responses", { ...body, temperature: 1 }, init);
      await expectError(other, 409, "idempotency_conflict");
    },
  );

  test("is one of 10,000 of its organization at most, however many are created at once", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization();
    await gateway.sql`INSERT INTO conversations (id, organization_id, metadata)
      SELECT 'conv_limit' || n, ${organization.id}, '{}' FROM generate_series(1, 9998) n`;
    const create = () => ask("POST", "conversations", {}, { key });
    const created = await Promise.all(Array.from({ length: 6 }, create));
    const refused = created.filter(({ status }) => status !== 200);
    expect(refused).toHaveLength(4);
    for (const response of refused) await expectError(response, 403, "quota_exceeded");
    await ok("DELETE", "conversations/conv_limit1", undefined, { key });
    expect((await create()).status).toBe(200);
    await newConversation();
  });

  test("takes no items beyond the bytes that a request may build on", async () => {
    const conversation = await newConversation({ items: [said("user", "zero")] });
    await gateway.sql`UPDATE responses SET chain_bytes = 33554000 WHERE chain_id = ${conversation}`;
    const add = (text: string) =>
      ask("POST", `conversations/${conversation}/items`, { items: [said("user", text)] });
    await expectError(await add("long ".repeat(100)), 413, "input_too_long");
    expect(await itemsOf(conversation)).toHaveLength(1);
    expect((await add("short")).status).toBe(200);
  });

  test("gets no part of a turn that fails", async () => {
    const conversation = await newConversation();
    const model = `test/${gateway.modelThat({ do: "error", status: 400 })}`;
    const failed = await ask("POST", "responses", { model, input: "one", conversation });
    expect(failed.status).toBe(400);
    expect(await itemsOf(conversation)).toEqual([]);
  });

  test("is refused with a field that excludes it, where it is unknown, and to other organizations", async () => {
    const model = `test/${gateway.modelThat(AGAIN)}`;
    const conversation = await newConversation({ items: [said("user", "a")] });
    const [item] = await itemsOf(conversation);
    const { id } = await ok("POST", "responses", { model, input: "one" });
    const both = { model, input: "two", conversation, previous_response_id: id };
    await expectError(await ask("POST", "responses", both), 400, "invalid_body");
    const unstored = { model, input: "two", conversation, store: false };
    await expectError(await ask("POST", "responses", unstored), 400, "invalid_body");
    const unknown = { model, input: "two", conversation: "conv_none" };
    await expectError(await ask("POST", "responses", unknown), 404, "conversation_not_found");
    const many = { items: Array.from({ length: 21 }, () => said("user", "a")) };
    const path = `conversations/${conversation}`;
    await expectError(await ask("POST", `${path}/items`, many), 400, "invalid_body");
    const reference = { items: [{ type: "item_reference", id: "msg_1" }] };
    await expectError(await ask("POST", `${path}/items`, reference), 400, "invalid_body");
    const key = (await gateway.addOrganization()).secretKey;
    const foreign = [
      ask("GET", path, undefined, { key }),
      ask("POST", path, { metadata: {} }, { key }),
      ask("DELETE", path, undefined, { key }),
      ask("GET", `${path}/items`, undefined, { key }),
      ask("POST", `${path}/items`, { items: [said("user", "b")] }, { key }),
      ask("GET", `${path}/items/${item!.id}`, undefined, { key }),
      ask("DELETE", `${path}/items/${item!.id}`, undefined, { key }),
      ask("POST", "responses", { model, input: "two", conversation }, { key }),
    ];
    for (const response of await Promise.all(foreign)) {
      await expectError(response, 404, "conversation_not_found");
    }
    expect(await itemsOf(conversation)).toEqual([item!]);
  });
});
