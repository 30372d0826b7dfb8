import { afterAll, beforeAll, expect, test } from "bun:test";
import { insertInstance, leave } from "../../db/queries/instances.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import { activatePaymentMethod } from "../../db/queries/payment-methods.ts";
import { prepareOrganization } from "../../src/accounts/organizations/organizations.ts";
import type { PaymentProcessor } from "../../src/billing/payments/interface.ts";
import { PaymentMethods } from "../../src/billing/payments/payment-methods.ts";
import { type PaymentOrder, Payments } from "../../src/billing/payments/payments.ts";
import { createStripe, StripeProcessor } from "../../src/billing/payments/stripe-processor.ts";
import { TestProcessor } from "../../src/billing/payments/test-processor.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";

let database: OpenTestDatabase;
let stripe: StripeServer;
const started: Payments[] = [];
beforeAll(async () => {
  database = await openTestDatabase(8);
  stripe = new StripeServer();
});
afterAll(async () => {
  await Promise.all(started.map((payments) => payments.close()));
  await database.drop();
  await stripe.stop();
});

/** The payments of one more instance that lives. */
async function startInstance(id: string, other?: PaymentProcessor) {
  const { sql } = database;
  const instance = { id, epoch: 1n };
  await insertInstance(sql, instance);
  const access = { secretKey: StripeServer.SECRET_KEY, apiBase: stripe.url };
  const processor = other ?? new StripeProcessor(createStripe(access), () => Date.now());
  const onError = () => {};
  const payments = new Payments({
    ...{ sql, background: sql, processor, instance, clock: systemClock, onError },
    methods: new PaymentMethods({ sql, processor, onError }),
    organizations: { forget: () => {} },
  });
  started.push(payments);
  return { payments, die: () => leave(sql, instance) };
}

async function payer(): Promise<Omit<PaymentOrder, "purpose" | "amountNano">> {
  const { sql } = database;
  const { organization } = prepareOrganization(
    { name: `Organization ${crypto.randomUUID()}`, plan: "free", startingCreditNano: 0n },
    Date.now(),
  );
  await sql.begin((transaction) => createOrganization(transaction, organization));
  await activatePaymentMethod(sql, {
    ...{ organizationId: organization.id, processor: "stripe", id: `pm_${crypto.randomUUID()}` },
    ...{ reference: "pm_card_visa", type: "card", brand: "visa", last4: "4242" },
  });
  const common = { keyId: "key_1", methodId: undefined, returnUrl: undefined };
  return { ...common, organizationId: organization.id };
}

const FIVE = { purpose: "topup", amountNano: 5_000_000_000n } as const;

async function credits(organizationId: string): Promise<bigint[]> {
  const rows = await database.sql<{ amount_nano: bigint }[]>`SELECT amount_nano FROM transactions
    WHERE organization_id = ${organizationId} AND type = 'topup'`;
  return rows.map((row) => row.amount_nano);
}

test("one idempotency key pays once over several instances", async () => {
  const instances = await Promise.all(["ins_a", "ins_b", "ins_c"].map((id) => startInstance(id)));
  const order = { ...(await payer()), ...FIVE, idempotency: { key: "one", bodyHash: "hash" } };
  const results = await Promise.all(
    Array.from({ length: 48 }, (_, at) => instances[at % 3]!.payments.pay(order)),
  );
  const paid = results.map((result) => (result.kind === "paid" ? result : undefined));
  expect(new Set(paid.map((result) => result?.credit.transactionId)).size).toBe(1);
  expect(paid.filter((result) => result?.isReplay === false)).toHaveLength(1);
  expect(stripe.charges).toHaveLength(1);
  expect(await credits(order.organizationId)).toEqual([5_000_000_000n]);
});

test("a payment of an instance that dies is found by another one at once, and no two look it up", async () => {
  const dying = await startInstance("ins_dying");
  const heirs = await Promise.all(["ins_d", "ins_e"].map((id) => startInstance(id)));
  const order = { ...(await payer()), ...FIVE, intentId: `pay_${crypto.randomUUID()}` };
  const hanging = Promise.withResolvers<Response>();
  const asked = Promise.withResolvers<void>();
  stripe.beforeAnswer = ({ idempotencyKey }) => {
    if (idempotencyKey !== order.intentId) return Promise.resolve(undefined);
    asked.resolve();
    return hanging.promise;
  };
  const lost = dying.payments.pay(order);
  await asked.promise;
  stripe.beforeAnswer = undefined;
  const before = stripe.requests.length;
  // While it lives, no other asks.
  for (const { payments } of heirs) await payments.recheck(order.intentId);
  expect(stripe.requests).toHaveLength(before);
  await dying.die();
  await Promise.all(heirs.map(({ payments }) => payments.recheck(order.intentId)));
  expect(stripe.requests).toHaveLength(before + 1);
  expect(await credits(order.organizationId)).toEqual([5_000_000_000n]);
  // What was thought dead gets its answer after all.
  hanging.resolve(new Response("late", { status: 502 }));
  expect(await lost).toMatchObject({ kind: "paid" });
  expect(await credits(order.organizationId)).toEqual([5_000_000_000n]);
});

test("a payment of an instance that was declared dead is not failed by it while another one asks for it", async () => {
  const dying = await startInstance("ins_paused");
  const heir = await startInstance("ins_heir");
  const order = { ...(await payer()), ...FIVE, intentId: `pay_${crypto.randomUUID()}` };
  const answers = [
    Promise.withResolvers<Response>(),
    Promise.withResolvers<Response | undefined>(),
  ];
  let asked = 0;
  stripe.beforeAnswer = ({ idempotencyKey }) =>
    idempotencyKey === order.intentId
      ? (answers[asked++]?.promise ?? Promise.resolve(undefined))
      : Promise.resolve(undefined);
  const lost = dying.payments.pay(order);
  await until("it asks", () => asked === 1);
  await dying.die();
  const found = heir.payments.recheck(order.intentId);
  await until("the other one asks", () => asked === 2);
  const declined = { type: "card_error", code: "card_declined", message: "Declined." };
  answers[0]!.resolve(Response.json({ error: declined }, { status: 402 }));
  expect(await lost).toMatchObject({ kind: "unknown" });
  const [open] = await database.sql`SELECT state FROM payment_intents WHERE id = ${order.intentId}`;
  expect(open).toEqual({ state: "pending" });
  answers[1]!.resolve(undefined);
  await found;
  stripe.beforeAnswer = undefined;
  expect(await credits(order.organizationId)).toEqual([5_000_000_000n]);
});

test("an intent of the same id is paid once, although two instances order it", async () => {
  const instances = await Promise.all(["ins_f", "ins_g"].map((id) => startInstance(id)));
  const order = {
    ...(await payer()),
    ...FIVE,
    keyId: null,
    intentId: `pay_${crypto.randomUUID()}`,
  };
  const results = await Promise.all(
    Array.from({ length: 10 }, (_, at) => instances[at % 2]!.payments.pay(order)),
  );
  expect(results.every(({ kind }) => kind === "paid")).toBe(true);
  expect(await credits(order.organizationId)).toEqual([5_000_000_000n]);
});

test("a payment is decided by its own processor alone, whichever a gateway is set up for later", async () => {
  const ofStripe = await startInstance("ins_stripe");
  const ofTest = await startInstance("ins_test", new TestProcessor(true));
  const lost = { ...(await payer()), ...FIVE, idempotency: { key: "lost", bodyHash: "hash" } };
  stripe.beforeAnswer = async () => new Response("lost", { status: 502 });
  expect(await ofStripe.payments.pay(lost)).toMatchObject({ kind: "unknown" });
  stripe.beforeAnswer = undefined;
  expect(await ofTest.payments.pay(lost)).toMatchObject({ kind: "unknown" });
  expect(await credits(lost.organizationId)).toEqual([]);
  expect(await ofStripe.payments.pay(lost)).toMatchObject({ kind: "paid" });
  expect(await credits(lost.organizationId)).toEqual([5_000_000_000n]);
  const asked = {
    ...{ ...(await payer()), ...FIVE, idempotency: { key: "asked", bodyHash: "hash" } },
    ...{ methodId: "pm_card_authenticationRequired", returnUrl: "http://localhost/" },
  };
  expect(await ofTest.payments.pay(asked)).toMatchObject({ kind: "action" });
  expect(await ofStripe.payments.pay(asked)).toMatchObject({ kind: "declined" });
  expect(await credits(asked.organizationId)).toEqual([]);
});
