import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { PaymentMethods } from "../../src/billing/payments/payment-methods.ts";
import { PlanBilling } from "../../src/billing/payments/plan-billing.ts";
import { TestPlans } from "../../src/billing/payments/plan-processor.ts";
import { StripePlans } from "../../src/billing/payments/stripe-plans.ts";
import { createStripe, StripeProcessor } from "../../src/billing/payments/stripe-processor.ts";
import { TestProcessor } from "../../src/billing/payments/test-processor.ts";
import { hashApiKey } from "../../src/lib/api-key-format.ts";
import { type Clock, systemClock } from "../../src/lib/clock.ts";
import { addUtcMonths } from "../../src/lib/utc-time.ts";
import { addMethod, refused } from "../payments/payment-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";

const PATH = "/v1/billing/subscription";
const PRICE = "price_pro";

interface Shown {
  readonly plan: string;
  readonly platform_fee_percent: number;
  readonly current_period_start: string;
  readonly current_period_end: string;
  readonly payment_method: unknown;
  readonly next_plan: string | null;
  readonly payment_status: string | null;
  readonly payment_url: string | null;
  readonly invoice_url: string | null;
}

const choose = (gateway: TestGateway, key: string, plan: string) =>
  gateway.request("POST", PATH, { plan }, { key });

async function chosen(gateway: TestGateway, key: string, plan: string): Promise<Shown> {
  const response = await choose(gateway, key, plan);
  const body = (await response.json()) as Shown;
  expect({ status: response.status, body }).toMatchObject({ status: 200 });
  return body;
}

const shown = async (gateway: TestGateway, key: string) =>
  (await (await gateway.request("GET", PATH, undefined, { key })).json()) as Shown;

describe("the plan pro at the test processor", () => {
  let gateway: TestGateway;
  beforeAll(async () => {
    gateway = await startTestGateway();
  });
  afterAll(() => gateway.stop());

  async function customer(method = "pm_card_visa") {
    const { managementKey: key, organization } = await gateway.addOrganization();
    await addMethod(gateway, method, key);
    return { key, id: organization.id };
  }

  /** Has an instance look at every subscription at this time. */
  async function lookAt(time: string): Promise<void> {
    const { sql } = gateway;
    await sql`UPDATE plan_subscriptions SET next_look_at = clock_timestamp()
      WHERE next_look_at IS NOT NULL`;
    const clock: Clock = { ...systemClock, nowMs: () => Date.parse(time) };
    const processor = new TestProcessor(true);
    const methods = new PaymentMethods({ sql, processor, onError: fail });
    const billing = new PlanBilling({
      ...{ sql, background: sql, methods, clock, onError: fail },
      plans: new TestPlans(processor, 20_000_000_000n, clock),
      processorName: processor.name,
      organizations: { forget() {} },
    });
    billing.start();
    await billing.close();
  }

  test("is paid by the month with the default method, and charges its fee from the next request on", async () => {
    const { key } = await customer();
    const pro = await chosen(gateway, key, "pro");
    expect(pro).toMatchObject({
      plan: "pro",
      platform_fee_percent: 2.5,
      payment_method: { type: "card", brand: "visa", last4: "4242" },
      next_plan: null,
      payment_status: "active",
    });
    const startMs = Date.parse(pro.current_period_start);
    expect(Math.abs(startMs - Date.now())).toBeLessThan(30_000);
    expect(Date.parse(pro.current_period_end)).toBe(addUtcMonths(startMs, 1));
    expect(await chosen(gateway, key, "pro")).toEqual(pro);
  });

  test("that is declined, or without a method, is 402, and the plan stays", async () => {
    const { key } = await customer("pm_card_chargeDeclined");
    const error = await refused(await choose(gateway, key, "pro"), 402);
    expect(error.code).toBe("payment_declined");
    expect(await shown(gateway, key)).toMatchObject({ plan: "free", payment_status: null });
    const { managementKey } = await gateway.addOrganization();
    expect((await refused(await choose(gateway, managementKey, "pro"), 402)).param).toBe(
      "payment_method_id",
    );
  });

  test("goes on from month to month, and is left at the end of one", async () => {
    const { key } = await customer();
    const first = await chosen(gateway, key, "pro");
    expect(await chosen(gateway, key, "byok")).toMatchObject({ plan: "pro", next_plan: "byok" });
    expect(await chosen(gateway, key, "pro")).toMatchObject({ plan: "pro", next_plan: null });
    await lookAt(first.current_period_end);
    const second = await shown(gateway, key);
    expect(second).toMatchObject({
      plan: "pro",
      current_period_start: first.current_period_end,
      payment_status: "active",
    });
    expect(await chosen(gateway, key, "byok")).toMatchObject({ plan: "pro", next_plan: "byok" });
    await lookAt(second.current_period_end);
    expect(await shown(gateway, key)).toMatchObject({
      plan: "byok",
      payment_status: null,
      next_plan: null,
    });
  });

  test("that operators set is not billed, and their enterprise plan is left by no one", async () => {
    const { managementKey: key, organization } = await gateway.addOrganization({ plan: "pro" });
    expect(await chosen(gateway, key, "pro")).toMatchObject({ plan: "pro", payment_status: null });
    await expectError(await choose(gateway, key, "free"), 403, "key_not_permitted");
    const operator = await addOperator(gateway);
    const path = `/v1/admin/organizations/${organization.id}`;
    await gateway.request("PATCH", path, { plan: "enterprise" }, { key: operator });
    await expectError(await choose(gateway, key, "pro"), 403, "key_not_permitted");
  });
});

describe("the plan pro at Stripe", () => {
  let stripe: StripeServer;
  let gateway: TestGateway;
  beforeAll(async () => {
    stripe = new StripeServer();
    gateway = await startTestGateway({
      environment: { ...stripe.environment, STRIPE_PRO_PRICE_ID: PRICE },
    });
  });
  afterAll(async () => {
    await gateway.stop();
    await stripe.stop();
  });

  async function customer(method = "pm_card_visa") {
    const { managementKey: key, organization } = await gateway.addOrganization();
    await gateway.sql`INSERT INTO payment_methods (id, organization_id, processor, state, reference,
        type, is_default)
      VALUES (${crypto.randomUUID()}, ${organization.id}, 'stripe', 'active', ${method}, 'card', true)`;
    return { key, id: organization.id };
  }

  /** What Stripe keeps of the newest subscription. */
  const newest = () => [...stripe.subscriptions.values()].at(-1)!;

  async function report(subscription: { readonly id: string }): Promise<void> {
    const { body, headers } = await stripe.event("customer.subscription.updated", {
      id: subscription.id,
      object: "subscription",
    });
    const path = `${gateway.baseUrl}/v1/billing/stripe/webhook`;
    expect((await fetch(path, { method: "POST", body, headers })).status).toBe(200);
  }

  const becomes = (key: string, plan: string) =>
    until(`it is ${plan}`, async () => (await shown(gateway, key)).plan === plan);

  test("is Stripe's subscription to the configured price, with its periods", async () => {
    const { key } = await customer();
    const pro = await chosen(gateway, key, "pro");
    const made = newest();
    expect(made).toMatchObject({ price: PRICE, method: "pm_card_visa", status: "active" });
    expect(pro).toMatchObject({
      plan: "pro",
      payment_status: "active",
      payment_url: null,
      invoice_url: `https://invoice.stripe.com/i/${made.id}`,
    });
    expect(Date.parse(pro.current_period_end) / 1_000).toBe(made.periodEnd);
    expect(await chosen(gateway, key, "free")).toMatchObject({ plan: "pro", next_plan: "free" });
    expect(made.endsAtPeriodEnd).toBeTrue();
    expect(await chosen(gateway, key, "pro")).toMatchObject({ next_plan: null });
    expect(made.endsAtPeriodEnd).toBeFalse();
  });

  test("that Stripe reports as unpaid is free again, and pro once it is paid", async () => {
    const { key } = await customer();
    await chosen(gateway, key, "pro");
    const made = newest();
    made.status = "past_due";
    await report(made);
    await becomes(key, "free");
    expect(await shown(gateway, key)).toMatchObject({
      payment_status: "unpaid",
      payment_url: expect.stringContaining("https://invoice.stripe.com/"),
    });
    made.status = "active";
    await report(made);
    await becomes(key, "pro");
    made.status = "canceled";
    await report(made);
    await becomes(key, "free");
    expect(await shown(gateway, key)).toMatchObject({ payment_status: null });
  });

  test("whose first payment needs its payer is 402 with the page, and takes effect once it is paid", async () => {
    const { key } = await customer("pm_card_authenticationRequired");
    const error = await refused(await choose(gateway, key, "pro"), 402);
    expect(error).toMatchObject({
      code: "payment_declined",
      authentication_url: expect.stringContaining("https://invoice.stripe.com/"),
    });
    expect(await shown(gateway, key)).toMatchObject({ plan: "free", payment_status: "open" });
    newest().status = "active";
    await report(newest());
    await becomes(key, "pro");
  });

  test("whose answer is lost is made once, and takes effect when it is looked at", async () => {
    const { key, id } = await customer();
    const before = stripe.subscriptions.size;
    stripe.beforeAnswer = async ({ method, path }) =>
      method === "POST" && path === "/v1/subscriptions"
        ? new Response("lost", { status: 502 })
        : undefined;
    await expectError(await choose(gateway, key, "pro"), 408, "provider_timeout");
    await expectError(await choose(gateway, key, "pro"), 408, "provider_timeout");
    expect(await shown(gateway, key)).toMatchObject({ plan: "free", payment_status: "pending" });
    stripe.beforeAnswer = undefined;
    expect(await chosen(gateway, key, "pro")).toMatchObject({ plan: "pro" });
    expect(stripe.subscriptions.size).toBe(before + 1);
    const acts = await gateway.sql`SELECT k.key_hash FROM audit_log a
      JOIN api_keys k ON k.id = a.actor_id
      WHERE a.action = 'plan.changed' AND a.organization_id = ${id}`;
    expect(acts.map(({ key_hash }) => key_hash)).toEqual([hashApiKey(key)]);
  });

  test("whose answer is lost is found although Stripe refuses to make it again", async () => {
    const { key } = await customer();
    const before = stripe.subscriptions.size;
    const isOrder = ({ method, path }: { method: string; path: string }) =>
      method === "POST" && path === "/v1/subscriptions";
    stripe.beforeAnswer = async (request) =>
      isOrder(request) ? new Response("lost", { status: 502 }) : undefined;
    await expectError(await choose(gateway, key, "pro"), 408, "provider_timeout");
    stripe.beforeAnswer = undefined;
    const body = { error: { type: "invalid_request_error", message: "not now" } };
    for (const status of [429, 400]) {
      stripe.refuse = (request) => (isOrder(request) ? Response.json(body, { status }) : undefined);
      const answer = await choose(gateway, key, "pro");
      expect([status, answer.status]).toEqual([status, status === 429 ? 408 : 200]);
    }
    stripe.refuse = undefined;
    expect(await shown(gateway, key)).toMatchObject({ plan: "pro", payment_status: "active" });
    expect(stripe.subscriptions.size).toBe(before + 1);
  });

  test("that was not paid is given up with the choice of another plan", async () => {
    const { key } = await customer("pm_card_authenticationRequired");
    await refused(await choose(gateway, key, "pro"), 402);
    const open = newest();
    expect(await chosen(gateway, key, "byok")).toMatchObject({
      plan: "byok",
      payment_status: null,
    });
    expect(open.status).toBe("canceled");
  });

  describe("that an operator changes", () => {
    let operator: string;
    beforeAll(async () => {
      operator = await addOperator(gateway);
    });
    const putOn = async (id: string, plan: string) =>
      gateway.request("PATCH", `/v1/admin/organizations/${id}`, { plan }, { key: operator });

    test("ends the subscription at Stripe, however long that does not answer, and stays changed", async () => {
      const { key, id } = await customer();
      await chosen(gateway, key, "pro");
      const made = newest();
      expect((await putOn(id, "pro")).status).toBe(200);
      expect(await shown(gateway, key)).toMatchObject({ payment_status: "active" });
      stripe.refuse = ({ method }) =>
        method === "DELETE" ? new Response("away", { status: 503 }) : undefined;
      expect((await putOn(id, "free")).status).toBe(200);
      const ending = { plan: "free", payment_status: "ending" };
      expect(await shown(gateway, key)).toMatchObject(ending);
      await report(made);
      expect(await shown(gateway, key)).toMatchObject(ending);
      // Granted by the operator, and not paid for: the end of what was paid must not take it.
      expect((await putOn(id, "pro")).status).toBe(200);
      stripe.refuse = undefined;
      await report(made);
      await until("it has ended", () => made.status === "canceled");
      await until("that is known", async () => (await shown(gateway, key)).payment_status === null);
      expect(await shown(gateway, key)).toMatchObject({ plan: "pro" });
      made.status = "active";
      await report(made);
      expect(await shown(gateway, key)).toMatchObject({ plan: "pro", payment_status: null });
    });

    test("is ended by the organization's own next choice, too", async () => {
      const { key, id } = await customer();
      await chosen(gateway, key, "pro");
      const first = newest();
      await putOn(id, "free");
      expect(await chosen(gateway, key, "pro")).toMatchObject({ payment_status: "active" });
      expect(first.status).toBe("canceled");
      expect(newest().id).not.toBe(first.id);
    });

    test("is 409 while Stripe has not said whether there is a subscription, and changes nothing", async () => {
      const { key, id } = await customer();
      stripe.refuse = ({ method, path }) =>
        method === "POST" && path === "/v1/subscriptions"
          ? new Response("away", { status: 503 })
          : undefined;
      await expectError(await choose(gateway, key, "pro"), 408, "provider_timeout");
      await expectError(await putOn(id, "enterprise"), 409, "subscription_changing");
      stripe.refuse = undefined;
      const path = `/v1/admin/organizations/${id}`;
      const found = await gateway.request("GET", path, undefined, { key: operator });
      expect(await found.json()).toMatchObject({ plan: "free", credit_limit_usd: 0 });
      expect(await chosen(gateway, key, "pro")).toMatchObject({ plan: "pro" });
    });
  });

  describe("of a processor that the gateway is not set up for", () => {
    let operator: string;
    beforeAll(async () => {
      operator = await addOperator(gateway);
    });
    const putOn = async (id: string, plan: string) =>
      gateway.request("PATCH", `/v1/admin/organizations/${id}`, { plan }, { key: operator });
    const moveTo = (id: string, processor: string) => gateway.sql`UPDATE plan_subscriptions
      SET processor = ${processor}, next_look_at = clock_timestamp() - interval '10 minutes'
      WHERE organization_id = ${id}`;

    async function lookAtDue(): Promise<void> {
      const { sql } = gateway;

      const access = createStripe({ secretKey: StripeServer.SECRET_KEY, apiBase: stripe.url });
      const processor = new StripeProcessor(access, Date.now);
      const billing = new PlanBilling({
        ...{ sql, background: sql, clock: systemClock, onError: fail },
        methods: new PaymentMethods({ sql, processor, onError: fail }),
        plans: new StripePlans(access, undefined, Date.now),
        processorName: processor.name,
        organizations: { forget() {} },
      });
      billing.start();
      await billing.close();
    }

    test("does not keep an operator from changing the plan, and is ended there later, never made", async () => {
      const { key, id } = await customer();
      stripe.beforeAnswer = async ({ method, path }) =>
        method === "POST" && path === "/v1/subscriptions"
          ? new Response("lost", { status: 502 })
          : undefined;
      await expectError(await choose(gateway, key, "pro"), 408, "provider_timeout");
      stripe.beforeAnswer = undefined;
      const made = newest();
      await moveTo(id, "gone");
      expect((await putOn(id, "byok")).status).toBe(200);
      const refusal = await expectError(
        await choose(gateway, key, "pro"),
        409,
        "subscription_changing",
      );
      expect(refusal.error.message).toContain("billed through gone");
      const count = stripe.subscriptions.size;
      await moveTo(id, "stripe");
      await lookAtDue();
      await until("that is known", async () => (await shown(gateway, key)).payment_status === null);
      expect([made.status, stripe.subscriptions.size]).toEqual(["canceled", count]);
      expect(await shown(gateway, key)).toMatchObject({ plan: "byok" });
    });

    test("does not keep an organization from subscribing where that was the test processor", async () => {
      const { key, id } = await customer();
      await chosen(gateway, key, "pro");
      await moveTo(id, "test");
      expect((await putOn(id, "free")).status).toBe(200);
      const count = stripe.subscriptions.size;
      expect(await chosen(gateway, key, "pro")).toMatchObject({ payment_status: "active" });
      expect(stripe.subscriptions.size).toBe(count + 1);
    });
  });

  test("chosen twice at once is one subscription", async () => {
    const { key } = await customer();
    const before = stripe.subscriptions.size;
    const all = await Promise.all([1, 2, 3].map(() => choose(gateway, key, "pro")));
    expect(all.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(stripe.subscriptions.size).toBe(before + 1);
  });
});

function fail(error: unknown): void {
  throw error;
}
