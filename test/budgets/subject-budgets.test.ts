import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  EXACT_TOKENS,
  type MoneyGateway,
  startMoneyGateway,
  TOKEN_CHARGE_NANO,
} from "../money/money-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: MoneyGateway;
let names = 0;
beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: 100 });
});
afterAll(() => gateway.stop());

const CHARGE_USD = (EXACT_TOKENS * Number(TOKEN_CHARGE_NANO)) / 1e9;

interface BudgetShape {
  readonly id: string;
  readonly subject: { readonly type: string; readonly value: string };
  readonly [field: string]: unknown;
}

const manage = (method: string, path: string, body?: unknown, key = gateway.managementKey) =>
  gateway.request(method, `/v1/budgets${path}`, body, { key });

const unique = (name: string) => `${name} ${++names}`;

async function create(
  type: "user" | "tag",
  limits: Record<string, number | null> = {},
  value = unique(type),
): Promise<BudgetShape> {
  const response = await manage("POST", "", { subject: { type, value }, ...limits });
  expect(response.status).toBe(201);
  return (await response.json()) as BudgetShape;
}

async function read(id: string): Promise<BudgetShape> {
  return (await (await manage("GET", `/${id}`)).json()) as BudgetShape;
}

const chat = (fields: Record<string, unknown>) => gateway.chat(gateway.secretKey, fields);

describe("budgets of users and tags", () => {
  test("are created, read, listed, changed and deleted", async () => {
    const made = await create("user", { daily_budget_usd: 0.000000001 }, "ada");
    expect(made).toEqual({
      id: expect.stringMatching(/^bud_[0-9a-f]{32}$/),
      subject: { type: "user", value: "ada" },
      daily_budget_usd: 1e-9,
      monthly_budget_usd: null,
      usage_today_usd: 0,
      usage_month_usd: 0,
      created_at: expect.any(String),
    });
    expect(await read(made.id)).toEqual(made);
    // The same name as a tag is another subject.
    const tag = await create("tag", { monthly_budget_usd: 0 }, "ada");
    const changed = await manage("PATCH", `/${made.id}`, {
      daily_budget_usd: null,
      monthly_budget_usd: 2.5,
    });
    expect(await changed.json()).toMatchObject({
      daily_budget_usd: null,
      monthly_budget_usd: 2.5,
    });
    const list = async (query: string) =>
      (await (await manage("GET", `?${query}`)).json()) as object;
    expect(await list("value=ada")).toMatchObject({
      data: [{ id: tag.id }, { id: made.id }],
      total: 2,
    });
    expect(await list("value=ada&limit=1&offset=1")).toMatchObject({
      data: [{ id: made.id }],
      total: 2,
    });
    expect(await list("value=ada&type=tag")).toMatchObject({ data: [{ id: tag.id }], total: 1 });
    const deleted = await manage("DELETE", `/${made.id}`);
    expect(await deleted.json()).toEqual({ id: made.id, deleted: true });
    await expectError(await manage("GET", `/${made.id}`), 404, "budget_not_found");
    await create("user", {}, "ada");
  });

  test("are one for each subject", async () => {
    const { subject } = await create("tag");
    const { error } = await expectError(await manage("POST", "", { subject }), 409, "name_taken");
    expect(error.param).toBe("subject");
  });

  test.each([
    ["without a subject", {}],
    ["of another kind", { subject: { type: "key", value: "a" } }],
    ["of nobody", { subject: { type: "user", value: "" } }],
    ["of a name that is too long", { subject: { type: "user", value: "x".repeat(513) } }],
    ["below zero", { subject: { type: "user", value: "a" }, daily_budget_usd: -1 }],
    ["of a text", { subject: { type: "user", value: "a" }, daily_budget_usd: "1" }],
    ["finer than a nano-USD", { subject: { type: "user", value: "a" }, daily_budget_usd: 1e-10 }],
    ["with more than it has", { subject: { type: "user", value: "a" }, rate_limit_rpm: 1 }],
  ])("%s are 400", async (_, body) => {
    await expectError(await manage("POST", "", body), 400, "invalid_body");
  });

  test("of another organization are 404, in the words of what never was, and stay as they are", async () => {
    const stranger = await gateway.addOrganization();
    const { subject } = await create("user");
    const foreign = await manage(
      "POST",
      "",
      { subject, daily_budget_usd: 1 },
      stranger.managementKey,
    );
    const { id } = (await foreign.json()) as BudgetShape;
    const messages = new Set<string>();
    for (const [method, body] of [
      ["GET", undefined],
      ["PATCH", { daily_budget_usd: 0 }],
      ["DELETE", undefined],
    ] as const) {
      for (const one of [id, "bud_0", "'--", "%00", "a%00b"]) {
        const answer = await manage(method, `/${one}`, body);
        const { error } = await expectError(answer, 404, "budget_not_found");
        messages.add(error.message);
      }
    }
    expect(messages.size).toBe(1);
    const list = await manage("GET", "", undefined, stranger.managementKey);
    expect(await list.json()).toMatchObject({ data: [{ id, daily_budget_usd: 1 }], total: 1 });
  });

  test("bind at once, also a user who was served before, and whose refusal names the subject", async () => {
    const user = unique("user");
    expect((await chat({ user })).status).toBe(200);
    const { id } = await create("user", { daily_budget_usd: CHARGE_USD * 2 }, user);
    expect((await chat({ user })).status).toBe(200);
    const other = await gateway.addKey({});
    expect((await gateway.chat(other.secret, { user, stream: true })).status).toBe(200);
    const { error } = await expectError(await chat({ user }), 402, "budget_exhausted");
    expect(error.message).toContain(`The daily budget of the user "${user}"`);
    expect((await chat({ user: unique("user") })).status).toBe(200);
    await expectBooksClosed(gateway);
    const events = await gateway.sql<{ type: string; percent: string }[]>`
      SELECT type, data->>'threshold_percent' AS percent FROM outbox
      WHERE data->'subject' = ${JSON.stringify({ type: "user", id: user })}::text::jsonb
      ORDER BY 1, (data->>'threshold_percent')::int`;
    expect(events.map(({ type, percent }) => `${type} ${percent}`)).toEqual([
      "budget.exhausted 100",
      ...[50, 80, 100].map((percent) => `budget.threshold ${percent}`),
    ]);
    // What was spent before the budget was made is not counted.
    expect(await read(id)).toMatchObject({
      usage_today_usd: CHARGE_USD * 2,
      usage_month_usd: CHARGE_USD * 2,
    });
    expect((await manage("PATCH", `/${id}`, { daily_budget_usd: CHARGE_USD * 3 })).status).toBe(
      200,
    );
    expect((await chat({ user })).status).toBe(200);
    await expectError(await chat({ user }), 402, "budget_exhausted");
    await manage("DELETE", `/${id}`);
    expect((await chat({ user })).status).toBe(200);
  });

  test("of tags bind requests that name them in a list or between commas, each once", async () => {
    const tags = [
      await create("tag", { monthly_budget_usd: CHARGE_USD * 3 }),
      await create("tag", { daily_budget_usd: 1 }),
    ];
    const [first, second] = tags.map(({ subject }) => subject.value);
    const forms = [
      { tags: [first, 7, second, first, null] },
      { tags: `${first} , ${second},,${first}` },
      { tags: first },
    ];
    for (const metadata of forms) expect((await chat({ metadata })).status).toBe(200);
    await expectBooksClosed(gateway);
    expect(await Promise.all(tags.map(({ id }) => read(id)))).toMatchObject(
      [3, 2].map((times) => ({ usage_month_usd: (CHARGE_USD * 1e9 * times) / 1e9 })),
    );
    const refused = await chat({ metadata: { tags: [second, first] } });
    const { error } = await expectError(refused, 402, "budget_exhausted");
    expect(error.message).toContain(`The monthly budget of the tag "${first}"`);
  });

  test("of fine-tuning jobs bind by their tags", async () => {
    const { error } = await expectError(
      await gateway.request("POST", "/v1/fine_tuning/jobs", {
        ...{ model: "sandbox/chat-2026-01-01", training_file: "file_0" },
        metadata: { tags: Array.from({ length: 33 }, (_, at) => at).join() },
      }),
      400,
      "invalid_body",
    );
    expect(error.param).toBe("metadata.tags");
  });

  test("bind every endpoint by the field in which it has its user", async () => {
    const user = unique("user");
    const { id } = await create("user", { daily_budget_usd: CHARGE_USD * 2 }, user);
    const messages = (metadata: object) =>
      gateway.request("POST", "/v1/messages", {
        ...{ model: "test/exact", max_tokens: EXACT_TOKENS, metadata },
        messages: [{ role: "user", content: "hi" }],
      });
    const responses = (fields: object) =>
      gateway.request("POST", "/v1/responses", {
        ...{ model: "test/exact", max_output_tokens: EXACT_TOKENS, input: "hi", store: false },
        ...fields,
      });
    expect((await messages({ user_id: user })).status).toBe(200);
    expect((await responses({ user })).status).toBe(200);
    expect((await messages({ user_id: user })).status).toBe(402);
    expect((await responses({ user })).status).toBe(402);
    await expectBooksClosed(gateway);
    expect(await read(id)).toMatchObject({ usage_today_usd: CHARGE_USD * 2 });
  });

  test("of 0 let nothing through that costs something, and more than 32 tags are 400", async () => {
    const { subject } = await create("tag", { daily_budget_usd: 0 });
    await expectError(await chat({ metadata: { tags: subject.value } }), 402, "budget_exhausted");
    const tags = Array.from({ length: 33 }, (_, at) => `label ${at}`);
    expect((await chat({ metadata: { tags: tags.slice(1) } })).status).toBe(200);
    const { error } = await expectError(await chat({ metadata: { tags } }), 400, "invalid_body");
    expect(error.param).toBe("metadata.tags");
  });
});
