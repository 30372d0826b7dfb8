import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Value } from "typebox/value";
import { EVENT_DEFINITIONS } from "../../src/lib/events/event-types.ts";
import {
  EXACT_TOKENS,
  type MoneyGateway,
  startMoneyGateway,
  TOKEN_CHARGE_NANO,
} from "../money/money-gateway.ts";
import { createBatch, endedBatch, requestLine } from "../support/batches.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { addMember } from "../support/members.ts";
import { until } from "../support/until.ts";

// biome-ignore lint/suspicious/noExplicitAny: bodies that the tests compare
type Json = Record<string, any>;

const CHARGE_USD = (EXACT_TOKENS * Number(TOKEN_CHARGE_NANO)) / 1e9;

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: 100 });
});
afterAll(() => gateway.stop());

const manage = async (
  method: string,
  path: string,
  body?: unknown,
  key = gateway.managementKey,
): Promise<{ status: number; body: Json }> => {
  const response = await gateway.request(method, `/v1/${path}`, body, { key });
  return { status: response.status, body: (await response.json()) as Json };
};

async function createTeam(settings: Json = {}): Promise<Json> {
  const created = await manage("POST", "teams", { name: crypto.randomUUID(), ...settings });
  expect(created.status).toBe(201);
  return created.body;
}

async function createKey(settings: Json = {}): Promise<{ id: string; key: string }> {
  const created = await manage("POST", "keys", { name: crypto.randomUUID(), ...settings });
  expect(created.status).toBe(201);
  return created.body as { id: string; key: string };
}

const chat = (key: string, fields: Json = {}) => gateway.chat(key, fields);

describe("teams", () => {
  test("are created, read, listed, changed and deleted, with unique names", async () => {
    const team = await createTeam({ name: "research", daily_budget_usd: 5, rate_limit_rpm: 10 });
    expect(team).toEqual({
      id: expect.stringMatching(/^team_[0-9a-f]{32}$/),
      name: "research",
      daily_budget_usd: 5,
      monthly_budget_usd: null,
      rate_limit_rpm: 10,
      rate_limit_tpm: null,
      allowed_models: null,
      guardrail: null,
      preset: null,
      key_policy: {
        max_keys_per_member: null,
        max_daily_budget_usd: null,
        max_lifetime_days: null,
      },
      usage_today_usd: 0,
      usage_month_usd: 0,
      created_at: expect.any(String),
    });
    expect((await manage("GET", `teams/${team.id}`)).body).toEqual(team);
    const taken = await gateway.request(
      "POST",
      "/v1/teams",
      { name: "research" },
      { key: gateway.managementKey },
    );
    await expectError(taken, 409, "name_taken");
    const changed = await manage("PATCH", `teams/${team.id}`, {
      daily_budget_usd: null,
      monthly_budget_usd: 7.5,
      key_policy: { max_keys_per_member: 3, max_daily_budget_usd: 1 },
    });
    expect(changed.body).toMatchObject({
      name: "research",
      daily_budget_usd: null,
      monthly_budget_usd: 7.5,
      key_policy: { max_keys_per_member: 3, max_daily_budget_usd: 1, max_lifetime_days: null },
    });
    const list = await manage("GET", "teams?limit=1");
    expect(list.body).toMatchObject({ data: [{ id: team.id }], total: expect.any(Number) });
    expect((await manage("DELETE", `teams/${team.id}`)).body).toEqual({
      id: team.id,
      deleted: true,
    });
    expect((await manage("GET", `teams/${team.id}`)).status).toBe(404);
    await createTeam({ name: "research" });
  });

  test("teams that take each other's names at the same time are renamed or told that a name is taken", async () => {
    const { body: one } = await manage("POST", "teams", { name: "swapped 1" });
    const { body: other } = await manage("POST", "teams", { name: "swapped 2" });
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) => [
        manage("PATCH", `teams/${one.id}`, { name: index % 2 === 0 ? "swapped 2" : "swapped 1" }),
        manage("PATCH", `teams/${other.id}`, { name: index % 2 === 0 ? "swapped 1" : "swapped 2" }),
      ]).flat(),
    );
    for (const { status, body } of answers) {
      expect([200, 409], JSON.stringify(body)).toContain(status);
    }
  });

  test("with keys are not deleted, and no key gets a team or owner that is deleted or another organization's", async () => {
    const team = await createTeam();
    const { id } = await createKey({ team_id: team.id });
    expect((await manage("GET", `keys/${id}`)).body).toMatchObject({
      team_id: team.id,
      owner_id: null,
    });
    const refused = await manage("DELETE", `teams/${team.id}`);
    expect(refused).toMatchObject({ status: 409, body: { error: { code: "in_use" } } });
    await manage("DELETE", `keys/${id}`);
    expect((await manage("DELETE", `teams/${team.id}`)).status).toBe(200);
    const other = await gateway.addOrganization();
    const foreign = await manage("POST", "teams", { name: "theirs" }, other.managementKey);
    for (const team_id of [team.id, foreign.body.id]) {
      const created = await manage("POST", "keys", { name: crypto.randomUUID(), team_id });
      expect(created).toMatchObject({
        status: 404,
        body: { error: { code: "team_not_found", param: "team_id" } },
      });
    }
    const member = await addMember(gateway.sql, gateway);
    const stolen = await manage(
      "POST",
      "keys",
      { name: crypto.randomUUID(), owner_id: member },
      other.managementKey,
    );
    expect(stolen.body.error).toMatchObject({ code: "member_not_found", param: "owner_id" });
    for (const [method, body] of [["GET"], ["PATCH", { name: "mine" }], ["DELETE"]] as const) {
      const reached = await manage(method, `teams/${foreign.body.id}`, body);
      expect(reached.body.error.code).toBe("team_not_found");
    }
  });
});

describe("keys of a team", () => {
  test("share its budget, are refused with its name, and are counted in it", async () => {
    const team = await createTeam({ daily_budget_usd: 2 * CHARGE_USD });
    const keys = await Promise.all([1, 2, 3].map(() => createKey({ team_id: team.id })));
    expect((await chat(keys[0]!.key)).status).toBe(200);
    expect((await chat(keys[1]!.key)).status).toBe(200);
    const refused = await chat(keys[2]!.key);
    expect(refused.status).toBe(402);
    const { error } = (await refused.json()) as Json;
    expect(error).toMatchObject({
      code: "budget_exhausted",
      subject: { type: "team", id: team.id },
    });
    const { body } = await manage("GET", `teams/${team.id}`);
    expect(body.usage_today_usd).toBe(2 * CHARGE_USD);
    const events = await gateway.sql`
      SELECT type, data, data->>'threshold_percent' AS percent FROM outbox
      WHERE data->'subject'->>'id' = ${team.id} ORDER BY 1, (data->>'threshold_percent')::int`;
    expect(events.map(({ type, percent }) => `${type} ${percent}`)).toEqual([
      "budget.exhausted 100",
      "budget.threshold 50",
      "budget.threshold 80",
      "budget.threshold 100",
    ]);
    for (const { type, data } of events) {
      expect(Value.Errors(EVENT_DEFINITIONS.get(type)!.payload, data)).toEqual([]);
      expect(data).toMatchObject({ key_id: null, key_name: null, period: "daily" });
    }
    await manage("PATCH", `teams/${team.id}`, { daily_budget_usd: 3 * CHARGE_USD });
    await until("the raised budget counts", async () => (await chat(keys[2]!.key)).ok, 2_000);
    await expectBooksClosed(gateway);
  });

  test("count against the budget of their owner, and stop when the owner does", async () => {
    const owner = await addMember(gateway.sql, gateway);
    const { key } = await createKey({ owner_id: owner });
    expect((await chat(key)).status).toBe(200);
    await gateway.sql.begin(async (sql) => {
      await sql`UPDATE members SET is_active = false WHERE id = ${owner}`;
      await sql`INSERT INTO changes (kind, object_id) VALUES ('key-owner', ${owner})`;
      await sql`SELECT pg_notify('gateway_changes', ${`key-owner ${owner}`})`;
    });
    await until("the key stops", async () => (await chat(key)).status === 401, 1_000);
  });

  test("share its requests and tokens a minute, beside their own", async () => {
    const team = await createTeam({ rate_limit_rpm: 2 });
    const [first, second] = await Promise.all([
      createKey({ team_id: team.id, rate_limit_rpm: 100 }),
      createKey({ team_id: team.id }),
    ]);
    const answered = await chat(first!.key);
    expect(answered.headers.get("x-ratelimit-remaining")).toBe("1");
    expect((await chat(second!.key)).status).toBe(200);
    const limited = await chat(first!.key);
    await expectError(limited, 429, "rate_limit_exceeded");
    const tokens = await createTeam({ rate_limit_tpm: 1_000 });
    const one = await createKey({ team_id: tokens.id, rate_limit_tpm: 100_000 });
    const other = await createKey({ team_id: tokens.id });
    expect((await chat(one.key, { max_tokens: 5 })).status).toBe(200);
    const tooMany = await chat(other.key, { max_tokens: 999 });
    expect([400, 429]).toContain(tooMany.status);
    expect(((await tooMany.json()) as Json).error.message).toContain("team");
  });

  test("use only its models, besides those of their own list", async () => {
    const team = await createTeam({ allowed_models: ["test/exact"] });
    const { key } = await createKey({ team_id: team.id });
    expect((await chat(key)).status).toBe(200);
    const refused = await chat(key, { model: "sandbox/chat" });
    await expectError(refused, 403, "model_not_allowed");
  });

  test("always get its guardrail and preset, and nothing passes if the guardrail is missing", async () => {
    const guardrail = await manage("POST", "guardrails", {
      name: "no-secrets",
      rules: [{ type: "pattern", pattern: "zebra", action: "block" }],
    });
    expect(guardrail.status).toBe(201);
    const preset = await manage("POST", "presets", {
      name: "short",
      parameters: { max_tokens: 7 },
    });
    expect(preset.status).toBe(201);
    const team = await createTeam({ guardrail: "no-secrets", preset: "short" });
    const { key } = await createKey({ team_id: team.id });
    const said = (content: string) =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        { model: "sandbox/chat", messages: [{ role: "user", content }] },
        { key },
      );
    const answered = await said("Tell me a long story about a horse.");
    expect(answered.status).toBe(200);
    expect(((await answered.json()) as Json).usage.completion_tokens).toBeLessThanOrEqual(7);
    await expectError(await said("a zebra"), 400, "content_policy_violation");
    await manage("PATCH", `teams/${team.id}`, { guardrail: "unknown" });
    await until(
      "the missing guardrail counts",
      async () => (await said("Hi")).status === 404,
      2_000,
    );
  });

  test("pay for the lines of their batches from its budget", async () => {
    const team = await createTeam({ daily_budget_usd: CHARGE_USD });
    const { key } = await createKey({ team_id: team.id });
    const body = {
      model: "test/exact",
      max_tokens: EXACT_TOKENS,
      messages: [{ role: "user", content: "hi" }],
    };
    const lines = [1, 2].map((line) => requestLine(String(line), body)).join("");
    const { id } = await createBatch(gateway, lines, { key });
    const { request_counts: counts } = await endedBatch(gateway, id);
    expect(counts).toEqual({ total: 2, completed: 1, failed: 1 });
    expect((await manage("GET", `teams/${team.id}`)).body.usage_today_usd).toBe(CHARGE_USD);
  });

  test("cannot manage keys or teams", async () => {
    const team = await createTeam();
    const { key } = await createKey({ team_id: team.id });
    expect((await manage("POST", "keys", { name: "escaped" }, key)).status).toBe(403);
    expect((await manage("PATCH", `teams/${team.id}`, { rate_limit_rpm: null }, key)).status).toBe(
      403,
    );
  });
});
