import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { readConfig } from "../../src/platform/config.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { refundJson, StripeServer } from "../support/stripe-server.ts";
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
  stripe.intents.clear();
});
afterAll(async () => {
  await gateway.stop();
  await stripe.stop();
});

const PATH = "/v1/billing/stripe/webhook";
const send = (body: string, headers: Record<string, string>, of = gateway) =>
  fetch(of.baseUrl + PATH, { method: "POST", body, headers });

async function report(
  type: string,
  object: Record<string, unknown>,
  options: Parameters<StripeServer["event"]>[2] = {},
): Promise<Response> {
  const { body, headers } = await stripe.event(type, object, options);
  return send(body, headers);
}

async function taken(response: Response): Promise<void> {
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: { received: true },
  });
}

/** A card that was entered on Stripe's page, as Stripe reports it. */
async function withCard(method = "pm_card_visa") {
  const { secretKey: key, organization } = await gateway.addOrganization({ creditUsd: 0 });
  const added = await gateway.request("POST", "/v1/billing/payment_methods", {}, { key });
  const { id } = (await added.json()) as { id: string };
  const metadata = { gateway_payment_method: id };
  await taken(await report("setup_intent.succeeded", { payment_method: method, metadata }));
  return { key, organizationId: organization.id, methodId: id };
}

const methodsOf = async (key: string) => {
  const listed = await gateway.request("GET", "/v1/billing/payment_methods", undefined, { key });
  return ((await listed.json()) as { data: { id: string; is_default: boolean }[] }).data;
};

/** A top-up whose answer was lost: Stripe has charged it, and the gateway does not know. */
async function lostTopUp() {
  const { key, organizationId } = await withCard();
  stripe.beforeAnswer = async ({ path }) =>
    path.startsWith("/v1/payment_intents") ? new Response("lost", { status: 502 }) : undefined;
  const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "lost" });
  await refused(await pay(), 408);
  const [intent] = stripe.intents.values();
  return { key, organizationId, pay, intent: intent! };
}

describe("Stripe's report", () => {
  test("of a success credits a payment whose answer was lost, once, however often it comes", async () => {
    const { organizationId, pay, intent } = await lostTopUp();
    const { body, headers } = await stripe.event(
      "payment_intent.succeeded",
      stripe.intentJson(intent),
    );
    await Promise.all(Array.from({ length: 10 }, async () => taken(await send(body, headers))));
    expect(await balanceNano(gateway, organizationId)).toBe(5_000_000_000n);
    const answer = await pay();
    expect(answer.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(await paid(answer)).toMatchObject({ new_balance_usd: 5 });
    expect(await balanceNano(gateway, organizationId)).toBe(5_000_000_000n);
  });

  test("of a success that was given back before it was known credits what is left", async () => {
    const { organizationId, intent } = await lostTopUp();
    const made = {
      ...{ id: `re_${crypto.randomUUID()}`, amount: 200, intent: intent.id, metadata: {} },
      status: "succeeded",
    };
    stripe.refunds.set(made.id, made);
    await taken(await report("refund.created", refundJson(made)));
    stripe.beforeAnswer = undefined;
    for (let time = 0; time < 2; time++) {
      await taken(await report("payment_intent.succeeded", stripe.intentJson(intent)));
      expect(await balanceNano(gateway, organizationId)).toBe(3_000_000_000n);
    }
  });

  test("that comes before Stripe's answer credits once, and both have the same transaction", async () => {
    const { key, organizationId } = await withCard();
    stripe.beforeAnswer = async ({ method, path }) => {
      if (method !== "POST" || path !== "/v1/payment_intents") return undefined;
      const [intent] = stripe.intents.values();
      await taken(await report("payment_intent.succeeded", stripe.intentJson(intent!)));
      return undefined;
    };
    const answer = await paid(await topUp(gateway, { amount_usd: 5 }, { key }));
    const rows = await gateway.sql`SELECT id FROM transactions
      WHERE organization_id = ${organizationId} AND type = 'topup'`;
    expect([...rows]).toEqual([{ id: answer.transaction_id }]);
    expect(await balanceNano(gateway, organizationId)).toBe(5_000_000_000n);
  });

  test("of a failure that is overtaken by a success takes nothing back, in either order", async () => {
    const { organizationId, intent } = await lostTopUp();
    const failed = { ...stripe.intentJson(intent), status: "requires_payment_method" };
    await taken(await report("payment_intent.payment_failed", failed));
    await taken(await report("payment_intent.succeeded", stripe.intentJson(intent)));
    await taken(await report("payment_intent.payment_failed", failed));
    await taken(await report("payment_intent.canceled", failed));
    expect(await balanceNano(gateway, organizationId)).toBe(5_000_000_000n);
    const [kept] = await gateway.sql`SELECT state FROM payment_intents
      WHERE organization_id = ${organizationId}`;
    expect(kept).toEqual({ state: "succeeded" });
  });

  test("of a failed authentication frees the idempotency key", async () => {
    const { key, organizationId } = await withCard("pm_card_authenticationRequired");
    const pay = () => topUp(gateway, { amount_usd: 5 }, { key, idempotencyKey: "3ds" });
    await refused(await pay(), 402);
    const [intent] = stripe.intents.values();
    stripe.authenticate(intent!.id, false);
    await taken(await report("payment_intent.payment_failed", stripe.intentJson(intent!)));
    const failed = until("the payment has failed", async () => {
      const [kept] = await gateway.sql`SELECT idempotency_key FROM payment_intents
        WHERE organization_id = ${organizationId} AND state = 'failed'`;
      return kept;
    });
    expect(await failed).toEqual({ idempotency_key: null });
    expect(await balanceNano(gateway, organizationId)).toBe(0n);
  });

  test("of money for a payment that was taken for failed is credited still", async () => {
    const { key, organizationId } = await withCard("pm_card_chargeDeclined");
    await refused(await topUp(gateway, { amount_usd: 5 }, { key }), 402);
    const [intent] = stripe.intents.values();
    stripe.authenticate(intent!.id);
    await taken(await report("payment_intent.succeeded", stripe.intentJson(intent!)));
    expect(await balanceNano(gateway, organizationId)).toBe(5_000_000_000n);
  });

  test("of another sum, of payments and objects that are not the gateway's, and of other types changes nothing", async () => {
    const { organizationId, intent } = await lostTopUp();
    const json = stripe.intentJson(intent);
    for (const object of [
      { ...json, amount_received: 499 },
      { ...json, amount_received: 50_000 },
      { ...json, currency: "jpy" },
      { ...json, metadata: {} },
      { ...json, metadata: { gateway_payment: "pay_of_another_account" } },
      { ...json, amount_received: "500" },
      {},
    ]) {
      await taken(await report("payment_intent.succeeded", object));
    }
    await taken(
      await report("setup_intent.succeeded", { metadata: { gateway_payment_method: "pm_1" } }),
    );
    await taken(await report("payment_method.detached", { id: "pm_of_another_account" }));
    await taken(await report("invoice.created", json));
    expect(await balanceNano(gateway, organizationId)).toBe(0n);
  });
});

describe("a report that Stripe did not sign", () => {
  test.each([
    ["with another secret", { secret: "whsec_another" }],
    ["with no secret", { secret: " " }],
    ["long ago", { timestamp: Math.floor(Date.now() / 1_000) - 360 }],
    ["for a time to come", { timestamp: Math.floor(Date.now() / 1_000) + 400 }],
  ])("is 400 and credits nothing: %s", async (_, options) => {
    const { organizationId, intent } = await lostTopUp();
    const object = stripe.intentJson(intent);
    const answer = await report("payment_intent.succeeded", object, options);
    expect(await refused(answer, 400)).toMatchObject({ code: "invalid_signature" });
    expect(await balanceNano(gateway, organizationId)).toBe(0n);
  });

  test("is 400: without a signature, with a wrong one, with one of another body, with another scheme", async () => {
    const { organizationId, intent } = await lostTopUp();
    const object = stripe.intentJson(intent);
    const { body, headers } = await stripe.event("payment_intent.succeeded", object);
    const signature = headers["stripe-signature"]!;
    const other = await stripe.event("payment_intent.created", object);
    for (const forged of [
      undefined,
      "",
      "t=1,v1=00",
      signature.replace(/v1=(.)/, (_, first) => `v1=${first === "0" ? "1" : "0"}`),
      signature.replace("v1=", "v0="),
      signature.replace(/t=\d+/, "t=NaN"),
      other.headers["stripe-signature"]!,
    ]) {
      const answer = await send(body, {
        "content-type": "application/json",
        ...(forged !== undefined && { "stripe-signature": forged }),
      });
      expect(await refused(answer, 400)).toMatchObject({ code: "invalid_signature" });
    }
    expect((await send(`${body} `, headers)).status).toBe(400);
    expect(await balanceNano(gateway, organizationId)).toBe(0n);
  });

  test("is 413 where it is longer than Stripe's are", async () => {
    const { body, headers } = await stripe.event("invoice.created", { text: "x".repeat(600_000) });
    expect((await send(body, headers)).status).toBe(413);
  });
});

describe("a card that was entered on Stripe's page", () => {
  test("is listed once Stripe reports it, in either way, and the first is the default", async () => {
    const { key, methodId } = await withCard();
    expect(await methodsOf(key)).toMatchObject([{ id: methodId, is_default: true }]);
    const added = await gateway.request("POST", "/v1/billing/payment_methods", {}, { key });
    const { id, setup_url: url } = (await added.json()) as { id: string; setup_url: string };
    expect(await methodsOf(key)).toHaveLength(1);
    const session = { id: `cs_${url.split("/").at(-1)}`, metadata: { gateway_payment_method: id } };
    stripe.completeSession(session.id, "pm_card_mastercard");
    for (let time = 0; time < 2; time++) {
      await taken(await report("checkout.session.completed", session));
    }
    expect(await methodsOf(key)).toMatchObject([
      { id: methodId, is_default: true },
      { id, is_default: false },
    ]);
    await taken(await report("payment_method.detached", { id: "pm_card_mastercard" }));
    expect(await methodsOf(key)).toHaveLength(1);
  });
});

describe("without a signing secret", () => {
  test("there is no such route", async () => {
    const { STRIPE_WEBHOOK_SECRET: _, ...environment } = stripe.environment;
    const bare = await startTestGateway({ environment });
    try {
      const { body, headers } = await stripe.event("invoice.created", {}, { secret: " " });
      expect(await refused(await send(body, headers, bare), 404)).toMatchObject({
        code: "route_not_found",
      });
    } finally {
      await bare.stop();
    }
  });

  test.each(["", "  "])("the start is refused where it is set to %p", (secret) => {
    const environment = { ...stripe.environment, STRIPE_WEBHOOK_SECRET: secret };
    expect(() => readConfig(environment)).toThrow(/STRIPE_WEBHOOK_SECRET is .*, but must be/);
  });
});
