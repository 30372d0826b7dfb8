import { afterAll, beforeAll, expect, test } from "bun:test";
import { addOperatorKey } from "../../src/accounts/organizations/organizations.ts";
import { type FilesProcess, prepareFilesProcess } from "../support/files-process.ts";
import { type StripeRequest, StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";

let stripe: StripeServer;
let process: FilesProcess;
beforeAll(async () => {
  stripe = new StripeServer();
  process = await prepareFilesProcess("disk", {
    ...stripe.environment,
    STRIPE_PRO_PRICE_ID: "price_pro",
    GATEWAY_STARTING_CREDIT_USD: "0",
  });
});
afterAll(async () => {
  await process.stop();
  await stripe.stop();
});

const isCharge = ({ method, path }: StripeRequest) =>
  method === "POST" && path === "/v1/payment_intents";

function send(baseUrl: string, path: string, body: unknown, idempotencyKey = "none") {
  return fetch(baseUrl + path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: {
      authorization: `Bearer ${process.secretKey}`,
      "content-type": "application/json",
      "idempotency-key": idempotencyKey,
    },
  });
}

const isSubscription = ({ method, path }: StripeRequest) =>
  method === "POST" && path === "/v1/subscriptions";

async function creditedUsd(): Promise<number[]> {
  const rows = await process.sql<{ amount_nano: bigint }[]>`SELECT amount_nano FROM transactions
    WHERE type = 'topup' ORDER BY sequence`;
  return rows.map((row) => Number(row.amount_nano) / 1e9);
}

test("kill -9 before and after Stripe was asked neither loses a payment nor pays twice", async () => {
  const { gateway: first, baseUrl } = await process.start();
  expect((await send(baseUrl, "/v1/billing/payment_methods", {})).status).toBe(201);
  await process.sql`UPDATE payment_methods SET state = 'active', reference = 'pm_card_visa',
    type = 'card', is_default = true`;
  const topUp = (to: string, amountUsd: number) =>
    send(to, "/v1/credits/topup", { amount_usd: amountUsd }, `of ${amountUsd}`);

  // Stripe has charged the card when the gateway dies.
  stripe.beforeAnswer = async (request) => {
    if (isCharge(request)) first.signal("SIGKILL");
    return undefined;
  };
  await topUp(baseUrl, 5).catch(() => {});
  await first.exited;
  stripe.beforeAnswer = undefined;
  expect(stripe.charges).toHaveLength(1);
  expect(await creditedUsd()).toEqual([]);

  const { gateway: second, baseUrl: secondUrl } = await process.start();
  await until("the payment is credited", async () => (await creditedUsd()).length > 0);
  const answer = await topUp(secondUrl, 5);
  expect(answer.status).toBe(201);
  expect(await answer.json()).toMatchObject({ amount_usd: 5, new_balance_usd: 5 });

  // The gateway dies before anything reached Stripe.
  stripe.refuse = (request) => {
    if (!isCharge(request)) return undefined;
    second.signal("SIGKILL");
    return new Response("never arrived", { status: 503 });
  };
  await topUp(secondUrl, 6).catch(() => {});
  await second.exited;
  stripe.refuse = undefined;
  expect(stripe.charges).toHaveLength(1);

  const { gateway: third, baseUrl: thirdUrl } = await process.start();
  const again = await topUp(thirdUrl, 6);
  expect(again.status).toBe(201);
  expect(await again.json()).toMatchObject({ amount_usd: 6, new_balance_usd: 11 });
  expect(await creditedUsd()).toEqual([5, 6]);
  expect(stripe.charges.map(({ amount }) => amount)).toEqual([500, 600]);
  third.signal("SIGTERM");
  await third.exited;
}, 120_000);

test("kill -9 around a subscription pays once and sets the plan once, and one that an operator ends is ended", async () => {
  const { secret: operator } = await addOperatorKey(process.sql, {
    name: "Operator",
    nowMs: Date.now(),
  });
  const planOf = async () => {
    const [row] = await process.sql<{ id: string; plan: string }[]>`
      SELECT id, plan FROM organizations`;
    return row!;
  };
  const lookSoon = () =>
    process.sql`UPDATE plan_subscriptions SET next_look_at = clock_timestamp()
      WHERE next_look_at IS NOT NULL`;
  const subscriptions = () => [...stripe.subscriptions.values()];
  const subscribe = (to: string) => send(to, "/v1/billing/subscription", { plan: "pro" });

  // The gateway dies before anything reached Stripe, and the next one when Stripe has made the subscription.
  const { gateway: first, baseUrl } = await process.start();
  stripe.refuse = (request) => {
    if (!isSubscription(request)) return undefined;
    first.signal("SIGKILL");
    return new Response("never arrived", { status: 503 });
  };
  await subscribe(baseUrl).catch(() => {});
  await first.exited;
  stripe.refuse = undefined;
  expect(subscriptions()).toHaveLength(0);
  const { gateway: second, baseUrl: secondUrl } = await process.start();
  stripe.beforeAnswer = async (request) => {
    if (isSubscription(request)) second.signal("SIGKILL");
    return undefined;
  };
  await subscribe(secondUrl).catch(() => {});
  await second.exited;
  stripe.beforeAnswer = undefined;
  expect((await planOf()).plan).toBe("free");

  await lookSoon();
  const { gateway: third, baseUrl: thirdUrl } = await process.start();
  await until("the plan is set", async () => (await planOf()).plan === "pro");
  expect((await subscribe(thirdUrl)).status).toBe(200);
  expect(subscriptions().map(({ status }) => status)).toEqual(["active"]);

  // An operator changes the plan, and the gateway dies before it has asked Stripe.
  const changed = await fetch(`${thirdUrl}/v1/admin/organizations/${(await planOf()).id}`, {
    method: "PATCH",
    body: JSON.stringify({ plan: "byok" }),
    headers: { authorization: `Bearer ${operator}`, "content-type": "application/json" },
  });
  third.signal("SIGKILL");
  await third.exited;
  expect(changed.status).toBe(200);
  await process.start();
  await until("Stripe has ended it", () => subscriptions()[0]!.status === "canceled");
  await until("that is written down", async () => {
    const ended = await process.sql`SELECT 1 FROM plan_subscriptions WHERE state = 'ended'`;
    return ended.length === 1;
  });
  expect((await planOf()).plan).toBe("byok");
  expect(subscriptions()).toHaveLength(1);
}, 120_000);
