import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { Charge } from "../../src/billing/payments/interface.ts";
import { createStripe, StripeProcessor } from "../../src/billing/payments/stripe-processor.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";
import { balanceNano, paid, refused, topUp } from "./payment-gateway.ts";

let stripe: StripeServer;
let gateway: TestGateway;
beforeAll(async () => {
  stripe = new StripeServer();
  gateway = await startTestGateway({ environment: stripe.environment });
});
beforeEach(() => {
  stripe.beforeAnswer = undefined;
  stripe.refuse = undefined;
  stripe.intents.clear();
  stripe.requests.length = 0;
});
afterAll(async () => {
  await gateway.stop();
  await stripe.stop();
});

/** An organization that has entered a card on the hosted page. */
async function withCard(method = "pm_card_visa") {
  const prepared = await gateway.addOrganization({ creditUsd: 0 });
  const { secretKey: key, organization } = prepared;
  const added = await gateway.request("POST", "/v1/billing/payment_methods", {}, { key });
  expect(added.status).toBe(201);
  const { id, setup_url: setupUrl } = (await added.json()) as { id: string; setup_url: string };
  expect(setupUrl).toStartWith("https://checkout.stripe.com/");
  await gateway.sql`UPDATE payment_methods SET state = 'active', type = 'card', brand = 'visa',
    last4 = '4242', reference = ${method}, is_default = true WHERE id = ${id}`;
  return { key, organizationId: organization.id, methodId: id };
}

const balance = (organizationId: string) => balanceNano(gateway, organizationId);

describe("a top-up by Stripe", () => {
  test("charges the saved method off-session, by an idempotency key of its own, and credits it", async () => {
    const { key, organizationId } = await withCard();
    const answer = await paid(await topUp(gateway, { amount_usd: 12.34 }, { key }));
    expect(answer).toMatchObject({ amount_usd: 12.34, new_balance_usd: 12.34 });
    const [charge] = stripe.requests.filter(({ path }) => path === "/v1/payment_intents");
    const fields = Object.fromEntries(charge!.parameters);
    expect(fields).toMatchObject({
      amount: "1234",
      currency: "usd",
      payment_method: "pm_card_visa",
      confirm: "true",
      off_session: "true",
    });
    expect(fields.customer).toStartWith("cus_");
    expect(fields["metadata[gateway_payment]"]).toBe(charge!.idempotencyKey!);
    const [kept] = await gateway.sql`SELECT state, receipt_url, reference FROM payment_intents
      WHERE transaction_id = ${answer.transaction_id}`;
    expect(kept).toMatchObject({
      state: "succeeded",
      receipt_url: expect.stringContaining("https://pay.stripe.com/"),
      reference: stripe.charges[0]!.id,
    });
    expect(await balance(organizationId)).toBe(12_340_000_000n);
    const listed = await gateway.request("GET", "/v1/credits/transactions", undefined, { key });
    expect(await listed.json()).toMatchObject({
      data: [{ id: answer.transaction_id, receipt_url: kept!.receipt_url }],
    });
  });

  test("that is declined is 402 with Stripe's reason, and frees the idempotency key", async () => {
    const { key, organizationId } = await withCard("pm_card_chargeDeclined");
    const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "one" });
    expect(await refused(await pay(), 402)).toMatchObject({
      code: "payment_declined",
      decline_code: "insufficient_funds",
      message: "The payment was declined: Your card has insufficient funds.",
    });
    await gateway.sql`UPDATE payment_methods SET reference = 'pm_card_visa'
      WHERE organization_id = ${organizationId}`;
    await paid(await pay());
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("whose bank asks for authentication is 402 with the bank's page, and credited once that succeeded", async () => {
    const { key, organizationId } = await withCard("pm_card_authenticationRequired");
    const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "3ds" });
    const error = await refused(await pay(), 402);
    const [intent] = stripe.intents.values();
    expect(error).toMatchObject({
      code: "payment_declined",
      decline_code: "authentication_required",
      authentication_url: `https://hooks.stripe.com/3ds/${intent!.id}`,
      client_secret: `${intent!.id}_secret`,
    });
    expect(error.message).toContain(error.authentication_url!);
    stripe.authenticate(intent!.id);
    expect(await paid(await pay())).toMatchObject({ new_balance_usd: 5 });
    expect(stripe.intents.size).toBe(1);
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("whose holder fails to authenticate is declined, and frees the idempotency key", async () => {
    const { key, organizationId } = await withCard("pm_card_authenticationRequired");
    const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "3ds" });
    await refused(await pay(), 402);
    const [intent] = stripe.intents.values();
    stripe.authenticate(intent!.id, false);
    expect(await refused(await pay(), 402)).toMatchObject({
      decline_code: "payment_intent_authentication_failure",
    });
    await refused(await pay(), 402);
    expect(stripe.intents.size).toBe(2);
    expect(await balance(organizationId)).toBe(0n);
  });

  test("whose answer is lost is 408, and the same idempotency key gives the outcome, paid once", async () => {
    const { key, organizationId } = await withCard();
    stripe.beforeAnswer = async ({ path }) =>
      path === "/v1/payment_intents" ? new Response("bad gateway", { status: 502 }) : undefined;
    const pay = (amount = 5) =>
      topUp(gateway, { amount_usd: amount }, { key, idempotencyKey: "lost" });
    const answer = await pay();
    expect(answer.headers.get("x-should-retry")).toBe("false");
    const { payment_id: paymentId } = await refused(answer, 408);
    expect(await balance(organizationId)).toBe(0n);
    // The key stays taken.
    expect(await refused(await pay(6), 409)).toMatchObject({ code: "idempotency_conflict" });
    expect((await refused(await pay(), 408)).payment_id).toBe(paymentId!);
    stripe.beforeAnswer = undefined;
    expect(await paid(await pay())).toMatchObject({ new_balance_usd: 5 });
    expect(stripe.charges).toHaveLength(1);
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("whose answer is lost is looked up without being asked for again, and credited", async () => {
    const { key, organizationId } = await withCard();
    stripe.beforeAnswer = async () => new Response("bad gateway", { status: 502 });
    await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 408);
    stripe.beforeAnswer = undefined;
    await gateway.sql`UPDATE payment_intents SET next_look_at = clock_timestamp()
      WHERE organization_id = ${organizationId}`;
    await until("the payment is credited", async () => (await balance(organizationId)) > 0n);
    expect(stripe.charges).toHaveLength(1);
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("whose order the database takes too late is 503, and never paid", async () => {
    const { key, organizationId } = await withCard();
    const late = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const lock = gateway.sql.begin(async (transaction) => {
      await transaction`LOCK TABLE payment_intents IN SHARE MODE`;
      locked.resolve();
      await late.promise;
    });
    await locked.promise;
    expect(await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 503)).toMatchObject({
      code: "database_unavailable",
    });
    late.resolve();
    await lock;
    const withdrawn = await until("the order is withdrawn", async () => {
      const [row] = await gateway.sql`SELECT error_reason FROM payment_intents
        WHERE organization_id = ${organizationId} AND state = 'failed'`;
      return row;
    });
    expect(withdrawn).toEqual({ error_reason: "not_sent" });
    expect(stripe.intents.size).toBe(0);
    expect(await balance(organizationId)).toBe(0n);
  });

  test("whose order the database took too late is paid when it is ordered again, and no card is blamed", async () => {
    const { key, organizationId } = await withCard();
    const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "slow" });
    // The withdrawal takes a moment, in which the second order finds the first one.
    await gateway.sql.unsafe(`CREATE FUNCTION delay_failure() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
      CREATE TRIGGER delay_failure BEFORE UPDATE ON payment_intents FOR EACH ROW
      WHEN (NEW.state = 'failed') EXECUTE FUNCTION delay_failure()`);
    const late = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const lock = gateway.sql.begin(async (transaction) => {
      await transaction`LOCK TABLE payment_intents IN SHARE MODE`;
      locked.resolve();
      await late.promise;
    });
    await locked.promise;
    await refused(await pay(), 503);
    late.resolve();
    await lock;
    await until("the late order stands there", async () => {
      const rows = await gateway.sql`SELECT 1 FROM payment_intents
        WHERE organization_id = ${organizationId}`;
      return rows.length > 0;
    });
    expect(await paid(await pay())).toMatchObject({ new_balance_usd: 5 });
    await gateway.sql.unsafe("DROP FUNCTION delay_failure CASCADE");
    expect(stripe.charges).toHaveLength(1);
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("that Stripe refuses, for a reason that is not the card's, is 502, and not asked for again", async () => {
    const { key, organizationId } = await withCard();
    stripe.refuse = () =>
      Response.json(
        { error: { type: "invalid_request_error", message: "Expired API Key: sk_test_012" } },
        { status: 401 },
      );
    const error = await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 502);
    expect(error).toMatchObject({ code: "provider_error" });
    expect(error.message).not.toContain("sk_test");
    stripe.refuse = undefined;
    const [kept] = await gateway.sql`SELECT state FROM payment_intents
      WHERE organization_id = ${organizationId}`;
    expect(kept).toMatchObject({ state: "failed" });
  });

  test("with one idempotency key, 50 times at once, is one charge and one credit", async () => {
    const { key, organizationId } = await withCard();
    stripe.beforeAnswer = async () => {
      await Bun.sleep(200);
      return undefined;
    };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () =>
        topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "fifty" }),
      ),
    );
    const results = await Promise.all(answers.map(paid));
    expect(new Set(results.map(({ transaction_id: id }) => id)).size).toBe(1);
    expect(stripe.intents.size).toBe(1);
    expect(await balance(organizationId)).toBe(5_000_000_000n);
  });

  test("is credited for what was paid alone: another sum is not", async () => {
    const { key, organizationId } = await withCard();
    stripe.beforeAnswer = async ({ path }) => {
      if (path !== "/v1/payment_intents") return undefined;
      const [intent] = stripe.intents.values();
      return Response.json({ ...stripe.intentJson(intent!), amount_received: 499 });
    };
    await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 408);
    expect(await balance(organizationId)).toBe(0n);
  });
});

test("a charge that Stripe does not answer in time is unknown, and found under the same key", async () => {
  const processor = new StripeProcessor(
    createStripe({ secretKey: StripeServer.SECRET_KEY, apiBase: stripe.url }, 300),
    () => Date.now(),
  );
  const charge: Charge = {
    intentId: `pay_${crypto.randomUUID()}`,
    organizationId: "org_1",
    amountNano: 5_000_000_000n,
    customer: undefined,
    method: "pm_card_visa",
    description: "Top-up",
    returnUrl: undefined,
  };
  const silence = Promise.withResolvers<undefined>();
  stripe.beforeAnswer = () => silence.promise;
  expect(await processor.charge(charge)).toMatchObject({ kind: "unknown" });
  stripe.beforeAnswer = undefined;
  silence.resolve(undefined);
  const earlier = { ...charge, reference: undefined, createdAtMs: systemClock.nowMs() };
  expect(await processor.lookUp(earlier)).toMatchObject({ kind: "succeeded" });
  expect(stripe.intents.size).toBe(1);
  // Stripe forgets its keys after a day: then it is looked for, and not paid again.
  const old = { ...earlier, createdAtMs: earlier.createdAtMs - 86_400_000 };
  expect(await processor.lookUp(old)).toMatchObject({ kind: "succeeded" });
  expect(await processor.lookUp({ ...old, intentId: "pay_never" })).toMatchObject({
    kind: "declined",
    reason: "not_sent",
  });
  expect(stripe.intents.size).toBe(1);
});
