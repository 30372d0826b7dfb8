import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { claimOpenRefunds } from "../../db/queries/payment-refunds.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { refundJson, StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";
import { balanceNano, paid, refused, topUp } from "./payment-gateway.ts";

let stripe: StripeServer;
let gateway: TestGateway;
let operator: string;
beforeAll(async () => {
  stripe = new StripeServer();
  gateway = await startTestGateway({ environment: stripe.environment });
  operator = await addOperator(gateway);
});
beforeEach(() => {
  stripe.beforeAnswer = undefined;
  stripe.refuse = undefined;
  stripe.refundStatus = "succeeded";
  stripe.intents.clear();
  stripe.refunds.clear();
});
afterAll(async () => {
  await gateway.stop();
  await stripe.stop();
});

const FIVE_NANO = 5_000_000_000n;
const isRefund = ({ method, path }: { method: string; path: string }) =>
  method === "POST" && path === "/v1/refunds";

/** An organization that has paid 5 USD by card, and has nothing else. */
async function paidFive() {
  const { secretKey: key, organization } = await gateway.addOrganization({ creditUsd: 0 });
  const organizationId = organization.id;
  await gateway.sql`INSERT INTO payment_methods
    (id, organization_id, processor, state, reference, type, brand, last4, is_default)
    VALUES (${`pm_${crypto.randomUUID()}`}, ${organizationId}, 'stripe', 'active', 'pm_card_visa',
      'card', 'visa', '4242', true)`;
  const topped = await paid(await topUp(gateway, { amount_usd: 5 }, { key }));
  const [intent] = [...stripe.intents.values()].slice(-1);
  return { key, organizationId, transactionId: topped.transaction_id, payment: intent!.id };
}

interface Refund {
  readonly id: string;
  readonly type: string;
  readonly amount_usd: number;
  readonly balance_after_usd: number;
  readonly card_refund_status: string;
}

const refund = (
  organizationId: string,
  transactionId: string,
  amountUsd?: number,
  idempotencyKey?: string,
) =>
  gateway.request(
    "POST",
    `/v1/admin/organizations/${organizationId}/refunds`,
    { transaction_id: transactionId, amount_usd: amountUsd },
    {
      key: operator,
      headers: idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey },
    },
  );

async function refunded(response: Response): Promise<Refund> {
  const body = (await response.json()) as Refund;
  expect({ status: response.status, body }).toMatchObject({ status: 201 });
  return body;
}

const balance = (organizationId: string) => balanceNano(gateway, organizationId);

async function report(type: string, object: Record<string, unknown>): Promise<void> {
  const { body, headers } = await stripe.event(type, object);
  const url = `${gateway.baseUrl}/v1/billing/stripe/webhook`;
  const response = await fetch(url, { method: "POST", body, headers });
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: { received: true },
  });
}

const lookNow = (table: "payment_refunds" | "payment_reversals") =>
  gateway.sql`UPDATE ${gateway.sql(table)} SET next_look_at = clock_timestamp()`;

describe("a refund of a top-up", () => {
  test("takes it from the balance and gives it back to the card, in parts and never more", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    expect(await refunded(await refund(id, transactionId, 1.5))).toMatchObject({
      type: "adjustment",
      amount_usd: -1.5,
      balance_after_usd: 3.5,
      card_refund_status: "succeeded",
    });
    const tooMuch = await refused(await refund(id, transactionId, 3.51), 400);
    expect(tooMuch).toMatchObject({ code: "invalid_body", param: "amount_usd" });
    expect(await refused(await refund(id, transactionId, 0.001), 400)).toMatchObject({
      param: "amount_usd",
    });
    expect(await refunded(await refund(id, transactionId))).toMatchObject({
      amount_usd: -3.5,
      balance_after_usd: 0,
    });
    await refused(await refund(id, transactionId), 400);
    expect([...stripe.refunds.values()].map(({ amount }) => amount)).toEqual([150, 350]);
    expect(await balance(id)).toBe(0n);
  });

  test("is exact where 20 are ordered at once, and happens once for its idempotency key", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => refund(id, transactionId, 0.5)),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(10);
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(10);
    expect(await balance(id)).toBe(0n);
    const other = await paidFive();
    const same = await Promise.all(
      Array.from({ length: 10 }, () => refund(other.organizationId, other.transactionId, 2, "one")),
    );
    const entries = await Promise.all(same.map(refunded));
    expect(new Set(entries.map((entry) => entry.id)).size).toBe(1);
    expect(await balance(other.organizationId)).toBe(3_000_000_000n);
    expect(stripe.refunds.size).toBe(11);
    const conflict = await refund(other.organizationId, other.transactionId, 1, "one");
    expect(await refused(conflict, 409)).toMatchObject({ code: "idempotency_conflict" });
  });

  test("takes nothing that is spent: it is 402, and leaves the idempotency key free", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    const adjust = (amountUsd: number) =>
      gateway.request(
        "POST",
        `/v1/admin/organizations/${id}/adjustments`,
        { amount_usd: amountUsd, description: "Spent" },
        { key: operator },
      );
    await adjust(-3);
    const error = await refused(await refund(id, transactionId, 4, "k"), 402);
    expect(error).toMatchObject({ code: "insufficient_credits" });
    expect(stripe.refunds.size).toBe(0);
    await adjust(3);
    await refunded(await refund(id, transactionId, 4, "k"));
    expect(await balance(id)).toBe(1_000_000_000n);
  });

  test("of another organization's transaction is 404", async () => {
    const { transactionId } = await paidFive();
    const { organization } = await gateway.addOrganization();
    expect(await refused(await refund(organization.id, transactionId), 404)).toMatchObject({
      code: "transaction_not_found",
    });
  });

  test("that Stripe refuses puts the money back", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    stripe.refuse = (request) =>
      isRefund(request)
        ? Response.json(
            { error: { type: "invalid_request_error", message: "already refunded" } },
            { status: 400 },
          )
        : undefined;
    expect(await refused(await refund(id, transactionId), 502)).toMatchObject({
      code: "provider_error",
    });
    expect(await balance(id)).toBe(FIVE_NANO);
    stripe.refuse = undefined;
    await refunded(await refund(id, transactionId));
    expect(await balance(id)).toBe(0n);
  });

  test("whose answer is lost is asked for again by its own key, and paid once", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    stripe.beforeAnswer = async (request) =>
      isRefund(request) ? new Response("lost", { status: 502 }) : undefined;
    const entry = await refunded(await refund(id, transactionId, undefined, "lost"));
    expect(entry.card_refund_status).toBe("pending");
    stripe.beforeAnswer = undefined;
    await lookNow("payment_refunds");
    await until("the refund has succeeded", async () => {
      const again = await refunded(await refund(id, transactionId, undefined, "lost"));
      return again.id === entry.id && again.card_refund_status === "succeeded";
    });
    expect(stripe.refunds.size).toBe(1);
    expect(await balance(id)).toBe(0n);
  });

  test("of another processor's payment is left to a gateway that is set up for it", async () => {
    const { organizationId, transactionId } = await paidFive();
    stripe.beforeAnswer = async (request) =>
      isRefund(request) ? new Response("lost", { status: 502 }) : undefined;
    const { id } = await refunded(await refund(organizationId, transactionId));
    const claimed = await gateway.sql.begin(async (sql) => {
      await sql`UPDATE payment_refunds SET next_look_at = clock_timestamp(),
        busy_until = clock_timestamp() WHERE transaction_id = ${id}`;
      const byTest = await claimOpenRefunds(sql, "test", 20);
      return [byTest, await claimOpenRefunds(sql, "stripe", 20)];
    });
    const transactions = claimed.map((refunds) => refunds.map((one) => one.transactionId));
    expect(transactions).toEqual([[], [id]]);
  });

  test("that fails after days puts the money back, once, however often Stripe reports it", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    await refunded(await refund(id, transactionId, 2));
    const [made] = [...stripe.refunds.values()];
    made!.status = "failed";
    for (let time = 0; time < 3; time++) await report("refund.failed", refundJson(made!));
    await until("the money is back", async () => (await balance(id)) === FIVE_NANO);
    await report("refund.updated", refundJson(made!));
    expect(await balance(id)).toBe(FIVE_NANO);
  });

  test("that a process left between its steps is carried on with", async () => {
    const { organizationId: id, transactionId } = await paidFive();
    const entry = await refunded(await refund(id, transactionId, 2));
    // As where it died once the balance was reduced, before it noted that or asked Stripe.
    await gateway.sql`UPDATE payment_refunds SET state = 'ordered', transaction_id = NULL,
      reference = NULL, next_look_at = clock_timestamp(), busy_until = clock_timestamp()
      WHERE organization_id = ${id}`;
    await until("the refund has succeeded", async () => {
      const [row] = await gateway.sql`SELECT state, transaction_id FROM payment_refunds
        WHERE organization_id = ${id}`;
      return row!.state === "succeeded" && row!.transaction_id === entry.id;
    });
    expect(stripe.refunds.size).toBe(1);
    expect(await balance(id)).toBe(3_000_000_000n);
  });
});

describe("a refund that was made at Stripe", () => {
  test("is taken from the balance too, once, and put back where it fails", async () => {
    const { organizationId: id, payment } = await paidFive();
    const made = {
      ...{ id: `re_${crypto.randomUUID()}`, amount: 200, intent: payment, metadata: {} },
      status: "succeeded",
    };
    stripe.refunds.set(made.id, made);
    for (let time = 0; time < 2; time++) {
      await report("charge.refunded", { id: `ch_${payment}`, payment_intent: payment });
      await report("refund.created", refundJson(made));
    }
    expect(await balance(id)).toBe(3_000_000_000n);
    made.status = "failed";
    await report("refund.failed", refundJson(made));
    await report("refund.created", refundJson({ ...made, status: "succeeded" }));
    expect(await balance(id)).toBe(FIVE_NANO);
  });
});

describe("a dispute", () => {
  const dispute = (payment: string, status: string, id = `dp_${payment}`) => ({
    ...{ id, object: "dispute", payment_intent: payment, amount: 500, currency: "usd", status },
  });
  const call = (key: string) => gateway.request("GET", "/v1/models", undefined, { key });

  test("leaves what was used and paid readable, and nothing else", async () => {
    const { key, payment } = await paidFive();
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    const read = (path: string) => gateway.request("GET", path, undefined, { key });
    for (const path of ["/v1/credits", "/v1/credits/transactions", "/v1/usage", "/v1/requests"]) {
      expect((await read(path)).status).toBe(200);
    }
    expect((await read("/v1/key")).status).toBe(200);
    for (const path of ["/v1/keys", "/v1/models", "/v1/webhooks", "/v1/files"]) {
      expect(await refused(await read(path), 402)).toMatchObject({ code: "payment_disputed" });
    }
    for (const path of ["/v1/chat/completions", "/v1/credits/topup"]) {
      const written = await gateway.request("POST", path, {}, { key });
      expect(await refused(written, 402)).toMatchObject({ code: "payment_disputed" });
    }
  });

  test("suspends the organization with 402, and takes the money back; won, it ends and gives it back", async () => {
    const { key, organizationId: id, payment } = await paidFive();
    for (let time = 0; time < 3; time++) {
      await report("charge.dispute.created", dispute(payment, "needs_response"));
    }
    const error = await refused(await call(key), 402);
    expect(error).toMatchObject({ type: "billing_error", code: "payment_disputed" });
    expect(error.message).toContain("disputed");
    expect(await balance(id)).toBe(0n);
    await report("charge.dispute.closed", dispute(payment, "won"));
    expect((await call(key)).status).toBe(200);
    expect(await balance(id)).toBe(FIVE_NANO);
    // Late reports of what was before change nothing.
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    await report("charge.dispute.updated", dispute(payment, "under_review"));
    expect((await call(key)).status).toBe(200);
    expect(await balance(id)).toBe(FIVE_NANO);
  });

  test("takes what is left where a part is spent, and the rest once there is something again", async () => {
    const { organizationId: id, payment } = await paidFive();
    const adjust = (amountUsd: number) =>
      gateway.request(
        "POST",
        `/v1/admin/organizations/${id}/adjustments`,
        { amount_usd: amountUsd, description: "Adjusted" },
        { key: operator },
      );
    await adjust(-3);
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    expect(await balance(id)).toBe(0n);
    await adjust(10);
    await lookNow("payment_reversals");
    await until("the rest is taken", async () => (await balance(id)) === 7_000_000_000n);
    await report("charge.dispute.closed", dispute(payment, "won"));
    expect(await balance(id)).toBe(12_000_000_000n);
  });

  test("that is lost leaves the organization suspended until an operator allows it again", async () => {
    const { key, organizationId: id, payment } = await paidFive();
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    await report("charge.dispute.closed", dispute(payment, "lost"));
    await refused(await call(key), 402);
    const path = `/v1/admin/organizations/${id}`;
    const change = { suspended: false };
    const allowed = await gateway.request("PATCH", path, change, { key: operator });
    expect(await allowed.json()).toMatchObject({ suspended: false });
    expect((await call(key)).status).toBe(200);
    expect(await balance(id)).toBe(0n);
  });

  test("leaves a suspension by the operator as it is", async () => {
    const { key, organizationId: id, payment } = await paidFive();
    const path = `/v1/admin/organizations/${id}`;
    await gateway.request("PATCH", path, { suspended: true }, { key: operator });
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    await report("charge.dispute.closed", dispute(payment, "won"));
    expect(await refused(await call(key), 403)).toMatchObject({ code: "organization_suspended" });
  });

  test("that is an inquiry, or of a payment that is not the gateway's, changes nothing", async () => {
    const { key, organizationId: id, payment } = await paidFive();
    await report("charge.dispute.created", dispute(payment, "warning_needs_response"));
    await report("charge.dispute.created", dispute("pi_of_another", "needs_response"));
    expect((await call(key)).status).toBe(200);
    expect(await balance(id)).toBe(FIVE_NANO);
  });

  test("leaves nothing of the payment to be given back to the card", async () => {
    const { organizationId: id, transactionId, payment } = await paidFive();
    await report("charge.dispute.created", dispute(payment, "needs_response"));
    await refused(await refund(id, transactionId, 1), 400);
  });
});
