import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { postCredit } from "../../db/ledger/credits.ts";
import { claimReplenishment } from "../../db/queries/auto-replenish.ts";
import { AutoReplenish } from "../../src/billing/payments/auto-replenish.ts";
import { PaymentMethods } from "../../src/billing/payments/payment-methods.ts";
import { Payments } from "../../src/billing/payments/payments.ts";
import { TestProcessor } from "../../src/billing/payments/test-processor.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { payloadFaults } from "../support/event-payload.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import { addMethod, balanceNano } from "./payment-gateway.ts";

const SETTINGS = { auto_replenish: true, replenish_threshold_usd: 5, replenish_amount_usd: 20 };

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway();
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
});

const patch = (key: string, body: unknown) =>
  gateway.request("PATCH", "/v1/credits", body, { key });

async function set(key: string, body: unknown): Promise<Record<string, unknown>> {
  const response = await patch(key, body);
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

const credits = async (key: string) =>
  (await (await gateway.request("GET", "/v1/credits", undefined, { key })).json()) as {
    balance_usd: number;
    replenish_status: string;
  };

/** Of an organization whose next call takes it below the threshold. */
async function almostLow(method: string | null = "pm_card_visa") {
  const made = await gateway.addOrganization({ creditUsd: 5.000_001 });
  const { managementKey: key, secretKey, organization } = made;
  if (method !== null) await addMethod(gateway, method, key);
  return { key, secretKey, id: organization.id };
}

const topUps = (id: string) => gateway.sql<{ description: string; amount_nano: bigint }[]>`
  SELECT description, amount_nano FROM transactions
  WHERE organization_id = ${id} AND type = 'topup'`;

const stateOf = async (id: string) => {
  const [row] = await gateway.sql<
    { intent_id: string | null; declines: number; due_at: Date | null }[]
  >`SELECT intent_id, declines, due_at FROM auto_replenish WHERE organization_id = ${id}`;
  return row!;
};

const isAtRest = async (id: string) => (await stateOf(id)).intent_id === null;

/** Takes from the balance, or gives to it. 2,000 lie between that of `almostLow` and one below the threshold. */
const move = (organizationId: string, amountNano: bigint, sql: Money = gateway.sql) =>
  postCredit(sql, {
    ...{ transactionId: newId("txn"), organizationId, type: "adjustment", description: "Move" },
    amountNano,
  });
type Money = Parameters<typeof postCredit>[0];

/** What waits is due now. */
async function hurry(id: string): Promise<void> {
  await gateway.sql`UPDATE auto_replenish SET due_at = clock_timestamp()
    WHERE organization_id = ${id} AND due_at IS NOT NULL`;
  await gateway.sql`SELECT pg_notify('gateway_changes', ${`replenish ${id}`})`;
}

const declinesReach = (id: string, declines: number) =>
  until("the decline is noted", async () => (await stateOf(id)).declines === declines);

const eventsOf = (id: string) => gateway.sql<{ type: string; data: Record<string, unknown> }[]>`
  SELECT type, data FROM outbox
  WHERE organization_id = ${id} AND type = 'credits.replenish_failed'`;

describe("PATCH /v1/credits", () => {
  test("answers the balance with the settings, which GET shows too", async () => {
    const { key } = await almostLow();
    expect(await set(key, SETTINGS)).toEqual({
      balance_usd: 5.000001,
      lifetime_spend_usd: 0,
      ...SETTINGS,
      replenish_payment_method_id: null,
      replenish_status: "active",
    });
    expect(await set(key, { auto_replenish: false })).toMatchObject({
      ...SETTINGS,
      auto_replenish: false,
      replenish_status: "off",
    });
    expect(await credits(key)).toMatchObject({ replenish_status: "off" });
  });

  test.each([
    [{ replenish_amount_usd: 4.99 }, "replenish_amount_usd"],
    [{ replenish_amount_usd: 10_000.01 }, "replenish_amount_usd"],
    [{ replenish_amount_usd: 5.001 }, "replenish_amount_usd"],
    [{ replenish_threshold_usd: -1 }, "replenish_threshold_usd"],
    [{ replenish_threshold_usd: "5" }, "replenish_threshold_usd"],
    [{ auto_replenish: true, replenish_amount_usd: 20 }, "replenish_threshold_usd"],
    [{ auto_replenish: true, replenish_threshold_usd: 5 }, "replenish_amount_usd"],
    [{ auto_replenish: 1 }, "auto_replenish"],
    [{ balance_usd: 5 }, "balance_usd"],
  ])("%p is 400", async (body, param) => {
    const { key } = await almostLow();
    const { error } = await expectError(await patch(key, body), 400, "invalid_body");
    expect(error.param).toBe(param);
  });

  test("needs billing:write, and a payment method of the organization", async () => {
    const reader = await addSecretKey(gateway, { scopes: ["billing:read"] });
    await expectError(await patch(reader, SETTINGS), 403, "missing_scope");
    const { key } = await almostLow(null);
    await expectError(await patch(key, SETTINGS), 402, "payment_declined");
    const other = await almostLow();
    const [foreign] = await gateway.sql<{ id: string }[]>`
      SELECT id FROM payment_methods WHERE organization_id = ${other.id}`;
    const body = { ...SETTINGS, payment_method_id: foreign!.id };
    await expectError(await patch(key, body), 404, "payment_method_not_found");
    expect(await credits(key)).toMatchObject({ auto_replenish: false });
  });
});

test("a balance that falls below the threshold is topped up once, by the default method", async () => {
  const { key, secretKey, id } = await almostLow();
  await set(key, SETTINGS);
  expect([...(await topUps(id))]).toEqual([]);
  expect((await gateway.chat(secretKey)).status).toBe(200);
  await until("it is paid", async () => (await topUps(id)).length > 0);
  await until("that is noted", () => isAtRest(id));
  for (let call = 0; call < 3; call++) await gateway.chat(secretKey);
  expect([...(await topUps(id))]).toEqual([
    { description: expect.stringContaining("Visa ending in 4242"), amount_nano: 20_000_000_000n },
  ]);
  expect(await stateOf(id)).toEqual({ intent_id: null, declines: 0, due_at: null });
  expect(await balanceNano(gateway, id)).toBeGreaterThan(24_900_000_000n);
});

test("it is topped up at once where it is below the threshold already, and again a minute later where that was too little", async () => {
  const { key, id } = await almostLow();
  await set(key, { ...SETTINGS, replenish_threshold_usd: 40 });
  await until("it is paid", async () => (await topUps(id)).length === 1);
  await until("that is noted", () => isAtRest(id));
  const { due_at: dueAt } = await stateOf(id);
  expect(dueAt!.getTime()).toBeWithin(Date.now() + 30_000, Date.now() + 61_000);
  await hurry(id);
  await until("it is paid again", async () => (await topUps(id)).length === 2);
  await until("that is noted", () => isAtRest(id));
  expect((await stateOf(id)).due_at).toBeNull();
});

test("switched off it pays nothing, whatever the balance", async () => {
  const { key, secretKey, id } = await almostLow();
  await set(key, SETTINGS);
  await set(key, { auto_replenish: false });
  await gateway.chat(secretKey);
  await expectBooksClosed(gateway);
  expect((await credits(key)).balance_usd).toBeLessThan(5);
  expect(await stateOf(id)).toEqual({ intent_id: null, declines: 0, due_at: null });
});

describe("declined payments", () => {
  const declined = () => almostLow("pm_card_visa_chargeDeclinedInsufficientFunds");

  test("are tried again later, and after the third in a row no more, which an event reports once", async () => {
    const { key, secretKey, id } = await declined();
    await set(key, SETTINGS);
    await gateway.chat(secretKey);
    for (const declines of [1, 2]) {
      await declinesReach(id, declines);
      expect((await stateOf(id)).due_at!.getTime()).toBeGreaterThan(Date.now() + 60_000);
      expect(await credits(key)).toMatchObject({ replenish_status: "retrying" });
      // Another call is no reason to try earlier.
      await gateway.chat(secretKey);
      expect([...(await eventsOf(id))]).toEqual([]);
      await hurry(id);
    }
    await declinesReach(id, 3);
    expect(await stateOf(id)).toEqual({ intent_id: null, declines: 3, due_at: null });
    expect(await credits(key)).toMatchObject({
      auto_replenish: true,
      replenish_status: "stopped",
    });
    const [event, ...more] = await eventsOf(id);
    expect(more).toEqual([]);
    expect(payloadFaults(event!.type, event!.data)).toEqual([]);
    expect(event!.data).toMatchObject({
      threshold_usd: 5,
      amount_usd: 20,
      declines: 3,
      reason: "insufficient_funds",
    });
    const intents = await gateway.sql`SELECT state FROM payment_intents
      WHERE organization_id = ${id}`;
    expect(intents.map(({ state }) => state)).toEqual(["failed", "failed", "failed"]);

    // Stopped: the next crossing orders nothing.
    await move(id, 2_000n);
    await move(id, -2_000n);
    expect((await stateOf(id)).due_at).toBeNull();

    const method = await addMethod(gateway, "pm_card_mastercard", key);
    await set(key, { payment_method_id: method });
    await until("the other method pays", async () => (await topUps(id)).length === 1);
    await until("that is noted", () => isAtRest(id));
    expect(await credits(key)).toMatchObject({ replenish_status: "active" });
  });

  test("are forgotten when another method becomes the default", async () => {
    const { key, secretKey, id } = await declined();
    await set(key, SETTINGS);
    await gateway.chat(secretKey);
    await declinesReach(id, 1);
    const method = await addMethod(gateway, "pm_card_visa", key);
    expect(await topUps(id)).toHaveLength(0);
    const path = `/v1/billing/payment_methods/${method}`;
    const changed = await gateway.request("PATCH", path, { is_default: true }, { key });
    expect(changed.status).toBe(200);
    await until("it pays", async () => (await topUps(id)).length === 1);
    await until("that is noted", () => isAtRest(id));
    expect((await stateOf(id)).declines).toBe(0);
  });
});

test("a suspended organization pays nothing", async () => {
  const { key, id } = await almostLow();
  await set(key, SETTINGS);
  await gateway.sql`UPDATE organizations SET suspended_at = now() WHERE id = ${id}`;
  await move(id, -2_000n);
  await until("it is put off", async () => {
    const { due_at: dueAt } = await stateOf(id);
    return dueAt !== null && dueAt.getTime() > Date.now() + 60_000;
  });
  expect(await topUps(id)).toHaveLength(0);
  await gateway.sql`UPDATE organizations SET suspended_at = NULL WHERE id = ${id}`;
});

describe("an instance that dies", () => {
  /** Makes a payment due that the gateway does not look at. */
  async function dueElsewhere() {
    const organization = await almostLow();
    await set(organization.key, SETTINGS);
    const intentId = newId("pay");
    const order = await gateway.sql.begin(async (sql) => {
      await sql`UPDATE auto_replenish SET due_at = clock_timestamp() - interval '1 day'
        WHERE organization_id = ${organization.id}`;
      await move(organization.id, -2_000n, sql);
      return claimReplenishment({ begin: (run: never) => sql.savepoint(run) } as never, intentId);
    });
    expect(order).toMatchObject({ organizationId: organization.id, intentId });
    return { ...organization, intentId };
  }

  test("before it has paid leaves the payment to another, which pays once", async () => {
    const { id, intentId } = await dueElsewhere();
    await hurry(id);
    await until("it is paid", async () => (await topUps(id)).length > 0);
    await until("that is noted", () => isAtRest(id));
    expect(await topUps(id)).toHaveLength(1);
    const intents = await gateway.sql`SELECT id FROM payment_intents WHERE organization_id = ${id}`;
    expect(intents.map((intent) => intent.id)).toEqual([intentId]);
  });

  test("after it has paid leaves a payment that is not made again", async () => {
    const { id, intentId } = await dueElsewhere();
    const { sql } = gateway;
    const processor = new TestProcessor(true);
    const methods = new PaymentMethods({ sql, processor, onError: fail });
    const dying = new Payments({
      ...{ sql, background: sql, processor, methods, clock: systemClock, onError: fail },
      organizations: { forget() {} },
      instance: { id: "ins_dead", epoch: 1n },
    });
    const order = {
      ...{ intentId, organizationId: id, keyId: null, purpose: "auto_replenish" as const },
      ...{ amountNano: 20_000_000_000n, methodId: undefined, returnUrl: undefined },
    };
    expect((await dying.pay(order)).kind).toBe("paid");
    await hurry(id);
    await until("that is noted", () => isAtRest(id));
    expect(await topUps(id)).toHaveLength(1);
  });
});

test("three that look at once pay once for each of twenty balances", async () => {
  const { sql } = gateway;
  const low = await Promise.all(Array.from({ length: 20 }, () => almostLow()));
  const processor = new TestProcessor(true);
  const methods = new PaymentMethods({ sql, processor, onError: fail });
  const common = { sql, background: sql, processor, methods, clock: systemClock, onError: fail };
  const others = ["ins_two", "ins_three"].map((id) => {
    const payments = new Payments({
      ...common,
      organizations: { forget() {} },
      instance: { id, epoch: 1n },
    });
    return new AutoReplenish({ ...common, payments });
  });
  for (const other of others) other.start();
  try {
    await Promise.all(low.map(({ key }) => set(key, SETTINGS)));
    await Promise.all(low.map(({ secretKey }) => gateway.chat(secretKey)));
    for (const other of others) other.wake();
    for (const { id } of low) {
      await until("it is paid", async () => (await topUps(id)).length > 0);
      await until("that is noted", () => isAtRest(id));
      expect(await topUps(id)).toHaveLength(1);
    }
  } finally {
    await Promise.all(others.map((other) => other.close()));
  }
});

function fail(error: unknown): void {
  throw error;
}
