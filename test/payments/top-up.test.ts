import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { signIn } from "../support/dashboard-session.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { addMethod, balanceNano, paid, refused, topUp } from "./payment-gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
});

describe("a top-up with the test processor", () => {
  test("credits the amount to the cent, as a transaction of its own", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 1 });
    const answer = await paid(
      await topUp(gateway, { amount_usd: 25.07, payment_method_id: "pm_card_visa" }, { key }),
    );
    expect(answer).toEqual({
      transaction_id: expect.stringMatching(/^txn_/),
      amount_usd: 25.07,
      new_balance_usd: 26.07,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    });
    expect(await balanceNano(gateway, organization.id)).toBe(26_070_000_000n);
    const listed = await gateway.request("GET", "/v1/credits/transactions?type=topup", undefined, {
      key,
    });
    expect(await listed.json()).toMatchObject({
      data: [
        {
          id: answer.transaction_id,
          type: "topup",
          amount_usd: 25.07,
          balance_after_usd: 26.07,
          description: "Top-up by Visa ending in 4242",
        },
      ],
      total: 1,
    });
  });

  test("can be spent at once", async () => {
    const { secretKey: key } = await gateway.addOrganization({ creditUsd: 0 });
    const call = () =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] },
        { key },
      );
    expect((await call()).status).toBe(402);
    await paid(await topUp(gateway, { amount_usd: 5, payment_method_id: "pm_card_visa" }, { key }));
    expect((await call()).status).toBe(200);
  });

  test("takes the default method, which is the first one until another is made it", async () => {
    const { managementKey: key } = await gateway.addOrganization();
    const error = await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 402);
    expect(error).toMatchObject({ code: "payment_declined", param: "payment_method_id" });
    const visa = await addMethod(gateway, "pm_card_visa", key);
    const declining = await addMethod(gateway, "pm_card_chargeDeclined", key);
    await paid(await topUp(gateway, { amount_usd: 5 }, { key }));
    const path = `/v1/billing/payment_methods/${declining}`;
    const changed = await gateway.request("PATCH", path, { is_default: true }, { key });
    expect(await changed.json()).toMatchObject({ id: declining, is_default: true });
    await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 402);
    await paid(await topUp(gateway, { amount_usd: 5, payment_method_id: visa }, { key }));
  });

  test.each([
    ["pm_card_chargeDeclined", "generic_decline"],
    ["pm_card_visa_chargeDeclined", "generic_decline"],
    ["pm_card_visa_chargeDeclinedInsufficientFunds", "insufficient_funds"],
    ["pm_card_chargeDeclinedExpiredCard", "expired_card"],
  ])("that %s declines is 402 with the reason, and charges nothing", async (method, reason) => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 1 });
    const body = { amount_usd: 5, payment_method_id: method };
    const answer = await topUp(gateway, body, { key, idempotencyKey: "one" });
    expect(answer.headers.get("x-should-retry")).toBe("false");
    expect(await refused(answer, 402)).toMatchObject({
      type: "billing_error",
      code: "payment_declined",
      decline_code: reason,
    });
    expect(await balanceNano(gateway, organization.id)).toBe(1_000_000_000n);
    // The key is free again, for another body too.
    const other = { amount_usd: 5, payment_method_id: "pm_card_visa" };
    await paid(await topUp(gateway, other, { key, idempotencyKey: "one" }));
  });

  test("whose bank asks for authentication is 402 with the page, and credited once its holder was there", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 1 });
    const body = { amount_usd: 7.5, payment_method_id: "pm_card_authenticationRequired" };
    const ask = () => topUp(gateway, body, { key, idempotencyKey: "3ds" });
    const error = await refused(await ask(), 402);
    expect(error).toMatchObject({
      code: "payment_declined",
      decline_code: "authentication_required",
    });
    expect(error.message).toContain(error.authentication_url!);
    expect((await refused(await ask(), 402)).payment_id).toBe(error.payment_id!);
    expect(await balanceNano(gateway, organization.id)).toBe(1_000_000_000n);
    const page = error.authentication_url!;
    expect((await refused(await ask(), 402)).authentication_url).toBe(page);
    const shown = await fetch(page);
    expect(shown.headers.get("content-type")).toStartWith("text/html");
    expect(await shown.text()).toContain("<form method=post>");
    for (const wrong of [page.slice(0, page.lastIndexOf("/")), `${page}0`, page.slice(0, -1)]) {
      for (const method of ["GET", "POST"]) {
        expect((await fetch(wrong, { method })).status).toBe(404);
      }
    }
    expect(await balanceNano(gateway, organization.id)).toBe(1_000_000_000n);
    expect((await fetch(page, { method: "POST" })).status).toBe(200);
    expect((await fetch(page, { method: "POST" })).status).toBe(404);
    expect((await fetch(page)).status).toBe(404);
    const answer = await ask();
    expect(answer.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(await paid(answer)).toMatchObject({ amount_usd: 7.5, new_balance_usd: 8.5 });
    expect(await balanceNano(gateway, organization.id)).toBe(8_500_000_000n);
  });

  test.each([4.99, 0, -5, 10_000.01, 1e9, 5.001, "5", null, true, [[5]]])(
    "of %p USD is 400",
    async (amount) => {
      const body = { amount_usd: amount, payment_method_id: "pm_card_visa" };
      const error = await refused(await topUp(gateway, body), 400);
      expect(error).toMatchObject({ code: "invalid_body", param: "amount_usd" });
    },
  );

  test("takes from 5.00 to 10,000.00 USD, exactly", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 0 });
    const amounts = [5, 10_000, 9_999.99, 5.01, 8.29];
    for (const amount of amounts) {
      await paid(
        await topUp(gateway, { amount_usd: amount, payment_method_id: "pm_card_visa" }, { key }),
      );
    }
    expect(await balanceNano(gateway, organization.id)).toBe(20_018_290_000_000n);
  });

  test("needs the scope billing:write", async () => {
    const key = await addSecretKey(gateway, { scopes: ["billing:read"] });
    const body = { amount_usd: 5, payment_method_id: "pm_card_visa" };
    expect(await refused(await topUp(gateway, body, { key }), 403)).toMatchObject({
      code: "missing_scope",
    });
  });
});

describe("an idempotency key of a top-up", () => {
  const body = { amount_usd: 5, payment_method_id: "pm_card_visa" };

  test("pays once, however many come with it at once", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 0 });
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => topUp(gateway, body, { key, idempotencyKey: "fifty" })),
    );
    const results = await Promise.all(answers.map(paid));
    expect(new Set(results.map((result) => JSON.stringify(result))).size).toBe(1);
    const first = answers.filter(({ headers }) => !headers.has("x-gateway-idempotent-replay"));
    expect(first).toHaveLength(1);
    expect(await balanceNano(gateway, organization.id)).toBe(5_000_000_000n);
  });

  test("with another body is 409", async () => {
    const { secretKey: key } = await gateway.addOrganization();
    await paid(await topUp(gateway, body, { key, idempotencyKey: "a" }));
    const other = { ...body, amount_usd: 6 };
    expect(
      await refused(await topUp(gateway, other, { key, idempotencyKey: "a" }), 409),
    ).toMatchObject({ code: "idempotency_conflict" });
  });

  test("belongs to its API key", async () => {
    const { organization, secretKey, managementKey } = await gateway.addOrganization({
      creditUsd: 0,
    });
    for (const key of [secretKey, managementKey]) {
      await paid(await topUp(gateway, body, { key, idempotencyKey: "mine" }));
    }
    expect(await balanceNano(gateway, organization.id)).toBe(10_000_000_000n);
  });

  test("is free again after a day", async () => {
    const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 0 });
    const first = await paid(await topUp(gateway, body, { key, idempotencyKey: "daily" }));
    await gateway.sql`UPDATE payment_intents SET created_at = created_at - interval '25 hours'
      WHERE transaction_id = ${first.transaction_id}`;
    const second = await paid(await topUp(gateway, body, { key, idempotencyKey: "daily" }));
    expect(second.transaction_id).not.toBe(first.transaction_id);
    expect(await balanceNano(gateway, organization.id)).toBe(10_000_000_000n);
  });
});

describe("payment methods", () => {
  test("are listed with what people know them by, and are gone once they are given up", async () => {
    const { managementKey: key } = await gateway.addOrganization();
    const list = async () => {
      const listed = await gateway.request("GET", "/v1/billing/payment_methods", undefined, {
        key,
      });
      return ((await listed.json()) as { data: unknown[] }).data;
    };
    const visa = await addMethod(gateway, "pm_card_visa", key);
    const other = await addMethod(gateway, "pm_card_mastercard", key);
    expect(await addMethod(gateway, "pm_card_visa", key)).toBe(visa);
    const created_at = expect.any(String);
    const shape = { type: "card", created_at };
    expect(await list()).toEqual([
      { ...shape, id: visa, brand: "visa", last4: "4242", is_default: true },
      { ...shape, id: other, brand: "mastercard", last4: "4444", is_default: false },
    ]);
    const path = `/v1/billing/payment_methods/${visa}`;
    const gone = await gateway.request("DELETE", path, undefined, { key });
    expect(await gone.json()).toEqual({ id: visa, deleted: true });
    expect((await gateway.request("DELETE", path, undefined, { key })).status).toBe(404);
    expect(await list()).toHaveLength(1);
    await refused(await topUp(gateway, { amount_usd: 5, payment_method_id: visa }, { key }), 404);
  });

  test("of another organization are 404, and not listed", async () => {
    const mine = await addMethod(gateway, "pm_card_amex");
    const { managementKey: key } = await gateway.addOrganization();
    const body = { amount_usd: 5, payment_method_id: mine };
    expect(await refused(await topUp(gateway, body, { key }), 404)).toMatchObject({
      code: "payment_method_not_found",
    });
    const path = `/v1/billing/payment_methods/${mine}`;
    expect((await gateway.request("PATCH", path, { is_default: true }, { key })).status).toBe(404);
    expect((await gateway.request("DELETE", path, undefined, { key })).status).toBe(404);
    const listed = await gateway.request("GET", "/v1/billing/payment_methods", undefined, { key });
    expect(await listed.json()).toEqual({ data: [] });
  });

  test("have one default, also where many are added and chosen at once", async () => {
    const { managementKey: key } = await gateway.addOrganization();
    const names = ["pm_card_visa", "pm_card_mastercard", "pm_card_amex", "pm_card_discover"];
    const ids = await Promise.all(names.map((name) => addMethod(gateway, name, key)));
    const choose = (id: string) =>
      gateway.request("PATCH", `/v1/billing/payment_methods/${id}`, { is_default: true }, { key });
    const chosen = await Promise.all([...ids, ...ids].map(choose));
    expect(chosen.map(({ status }) => status)).toEqual(Array(8).fill(200));
    const listed = await gateway.request("GET", "/v1/billing/payment_methods", undefined, { key });
    const { data } = (await listed.json()) as { data: { is_default: boolean }[] };
    expect(data.filter((method) => method.is_default)).toHaveLength(1);
  });

  test("that the processor does not know are 400", async () => {
    for (const body of [{ payment_method: "pm_none" }, {}, { payment_method: "__proto__" }]) {
      const answer = await gateway.request("POST", "/v1/billing/payment_methods", body);
      expect((await refused(answer, 400)).param).toBe("payment_method");
    }
  });
});

test("with GATEWAY_TEST_PAYMENTS=false nothing is credited for nothing, not by methods saved before either", async () => {
  const closed = await startTestGateway({ environment: { GATEWAY_TEST_PAYMENTS: "false" } });
  try {
    const body = { amount_usd: 5, payment_method_id: "pm_card_visa" };
    await refused(await topUp(closed, body), 404);
    const path = "/v1/billing/payment_methods";
    await refused(await closed.request("POST", path, { payment_method: "pm_card_visa" }), 400);
    await closed.sql`INSERT INTO payment_methods
      (id, organization_id, processor, state, reference, type, is_default)
      VALUES ('pm_1', ${closed.organizationId}, 'test', 'active', 'pm_card_visa', 'card', true)`;
    await refused(await topUp(closed, { amount_usd: 5 }), 402);
    const session = await (await signIn(closed, closed.managementKey)).call("GET", "session");
    expect(await session.json()).toMatchObject({ test_payments: false });
    expect(await balanceNano(closed, closed.organizationId)).toBe(10_000_000_000n);
  } finally {
    await closed.stop();
  }
});

test("a page of the test processor credits nothing once that is off", async () => {
  const database = await createTestDatabase();
  const open = await startTestGateway({ database: { ...database, drop: async () => {} } });
  const body = { amount_usd: 5, payment_method_id: "pm_card_authenticationRequired" };
  const { authentication_url: page } = await refused(await topUp(open, body), 402);
  await open.stop();
  const closed = await startTestGateway({
    database,
    environment: { GATEWAY_TEST_PAYMENTS: "false" },
  });
  try {
    const there = page!.replace(open.baseUrl, closed.baseUrl);
    expect((await fetch(there, { method: "POST" })).status).toBe(404);
    expect(await balanceNano(closed, open.organizationId)).toBe(10_000_000_000n);
  } finally {
    await closed.stop();
  }
});
