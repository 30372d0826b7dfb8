import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chargedSince } from "../../db/queries/subscriptions.ts";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { addOperator } from "../support/operator-keys.ts";

const PATH = "/v1/billing/subscription";

let gateway: MoneyGateway;
let operator: string;
beforeAll(async () => {
  gateway = await startMoneyGateway();
  operator = await addOperator(gateway);
});
afterAll(() => gateway.stop());

async function subscription(key: string): Promise<Record<string, unknown>> {
  const response = await gateway.request("GET", PATH, undefined, { key });
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

const choose = (key: string, plan: string) => gateway.request("POST", PATH, { plan }, { key });

async function operate(id: string, change: unknown): Promise<void> {
  const path = `/v1/admin/organizations/${id}`;
  const response = await gateway.request("PATCH", path, change, { key: operator });
  expect(response.status).toBe(200);
}

const cost = async (key: string) => Number((await gateway.chat(key)).headers.get("x-gateway-cost"));

test("shows the plan, its fee, and the UTC month with its charges", async () => {
  const { managementKey, secretKey } = await gateway.addOrganization();
  await gateway.chat(secretKey);
  await gateway.chat(secretKey);
  const now = new Date();
  expect(await subscription(managementKey)).toEqual({
    plan: "free",
    platform_fee_percent: 4,
    billing_period: "monthly",
    current_period_start: new Date(
      Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1),
    ).toISOString(),
    current_period_end: new Date(
      Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1),
    ).toISOString(),
    usage_this_period_usd: 0.0000208,
    payment_method: null,
    next_plan: null,
    payment_status: null,
    payment_url: null,
    invoice_url: null,
  });
});

test("a chosen plan charges its fee from the next request on", async () => {
  const { managementKey, secretKey } = await gateway.addOrganization();
  expect(await cost(secretKey)).toBe(0.0000104);
  const changed = await choose(managementKey, "byok");
  expect(changed.status).toBe(200);
  expect(await changed.json()).toMatchObject({ plan: "byok", platform_fee_percent: 0 });
  await expectError(await gateway.chat(secretKey), 402, "insufficient_credits");
  expect((await choose(managementKey, "free")).status).toBe(200);
  expect(await cost(secretKey)).toBe(0.0000104);
});

describe("what only operators may change", () => {
  test("no organization puts itself on their plans, or leaves them", async () => {
    const { managementKey, organization } = await gateway.addOrganization();
    await expectError(await choose(managementKey, "enterprise"), 403, "key_not_permitted");
    await operate(organization.id, { plan: "enterprise" });
    await expectError(await choose(managementKey, "free"), 403, "key_not_permitted");
    expect(await subscription(managementKey)).toMatchObject({ plan: "enterprise" });
    expect((await choose(managementKey, "enterprise")).status).toBe(200);
  });

  test("a fee of one's own stays with every plan", async () => {
    const { managementKey, organization } = await gateway.addOrganization();
    await operate(organization.id, { fee_percent: 1.25 });
    expect((await choose(managementKey, "byok")).status).toBe(200);
    expect(await subscription(managementKey)).toMatchObject({ platform_fee_percent: 1.25 });
    expect((await choose(managementKey, "free")).status).toBe(200);
    expect(await subscription(managementKey)).toMatchObject({ platform_fee_percent: 1.25 });
  });
});

test("a choice needs billing:write, a known plan and nothing else", async () => {
  const reader = await addSecretKey(gateway, { scopes: ["billing:read"] });
  await expectError(await choose(reader, "free"), 403, "missing_scope");
  expect((await subscription(reader)).plan).toBe("free");
  for (const body of [{}, { plan: "gold" }, { plan: null }, { plan: "free", fee: 0 }]) {
    const response = await gateway.request("POST", PATH, body, { key: gateway.managementKey });
    await expectError(response, 400, "invalid_body");
  }
});

test("the charges since a time are the sum of usage, whatever else moves the balance", async () => {
  const organizationId = `org_${crypto.randomUUID()}`;
  const { sql } = gateway;
  const at = (minute: number) => Date.UTC(2026, 4, 1) + minute * 60_000;
  const amounts = [
    ["adjustment", 100n],
    ["usage", -30n],
    ["refund", 5n],
    ["usage", -10n],
    ["topup", 1_000n],
    ["usage", -7n],
    ["adjustment", -3n],
  ] as const;
  let balance = 0n;
  for (const [minute, [type, amount]] of amounts.entries()) {
    balance += amount;
    await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
        balance_after_nano, description, created_at)
      VALUES (${organizationId}, ${minute + 1}, ${crypto.randomUUID()}, ${type},
        ${amount.toString()}::bigint, ${balance.toString()}::bigint, '', ${new Date(at(minute))})`;
  }
  const sums = amounts.map((_, since) =>
    amounts.slice(since).reduce((sum, [type, nano]) => (type === "usage" ? sum - nano : sum), 0n),
  );
  for (const [minute, sum] of sums.entries()) {
    expect(await chargedSince(sql, organizationId, at(minute))).toBe(sum);
  }
  expect(await chargedSince(sql, organizationId, at(-5))).toBe(47n);
  expect(await chargedSince(sql, organizationId, at(100))).toBe(0n);
  expect(await chargedSince(sql, `${organizationId}_none`, at(0))).toBe(0n);
});
