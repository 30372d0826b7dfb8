import { expect } from "bun:test";
import { paid, topUp } from "../payments/payment-gateway.ts";
import type { TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import type { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";

/** What an operator writes. A spreadsheet would run it. */
export const HOSTILE_DESCRIPTION = '=HYPERLINK("http://evil.example","pay")';
/** A name with characters that the standard fonts of PDF do not have. */
export const WIDE_NAME = "Żółw 株式会社 <b>";
const KEY_NAME = "@SUM(A1:A9)";

export interface Subject {
  readonly id: string;
  readonly managementKey: string;
  readonly secretKey: string;
}

/**
 * Gives an organization at least one transaction of every kind, in the way in which each comes about, and spreads
 * them over the last three months.
 */
export async function fillWithAllKinds(
  gateway: TestGateway,
  stripe: StripeServer,
): Promise<Subject> {
  const { secretKey, managementKey, organization } = await gateway.addOrganization({
    creditUsd: 10,
  });
  const { id } = organization;
  const { sql } = gateway;
  await sql`UPDATE organizations SET name = ${WIDE_NAME} WHERE id = ${id}`;
  await sql`UPDATE api_keys SET name = ${KEY_NAME} WHERE organization_id = ${id} AND kind = 'secret'`;
  for (const [name, isDefault] of [
    ["pm_card_visa", true],
    ["pm_card_chargeDeclined", false],
  ] as const) {
    await sql`INSERT INTO payment_methods
      (id, organization_id, processor, state, reference, type, brand, last4, is_default)
      VALUES (${`pm_${crypto.randomUUID()}`}, ${id}, 'stripe', 'active', ${name}, 'card', 'visa',
        '4242', ${isDefault})`;
  }
  const operator = await addOperator(gateway);
  const order = async (path: string, body: object) => {
    const url = `/v1/admin/organizations/${id}/${path}`;
    const response = await gateway.request("POST", url, body, { key: operator });
    const answer = (await response.json()) as { id: string };
    expect({ status: response.status, answer }).toMatchObject({ status: 201 });
    return answer.id;
  };
  const report = async (type: string, object: Record<string, unknown>) => {
    const { body, headers } = await stripe.event(type, object);
    const url = `${gateway.baseUrl}/v1/billing/stripe/webhook`;
    expect((await fetch(url, { method: "POST", body, headers })).status).toBe(200);
  };
  const chat = async () => {
    const body = { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] };
    const response = await gateway.request("POST", "/v1/chat/completions", body, {
      key: secretKey,
    });
    await response.text();
    expect(response.status).toBe(200);
    return response.headers.get("x-gateway-request-id")!;
  };
  const key = { key: managementKey };

  // The oldest month.
  const first = await paid(await topUp(gateway, { amount_usd: 20 }, key));
  const requests = [await chat(), await chat(), await chat()];
  await order("adjustments", { amount_usd: 1.5, description: HOSTILE_DESCRIPTION });
  await endMonth(gateway, id, 2);

  // The month before the current one.
  await order("refunds", { transaction_id: `txn_${requests[0]!.slice(4)}`, amount_usd: 0.000001 });
  await order("refunds", { transaction_id: first.transaction_id, amount_usd: 5 });
  stripe.refundStatus = "failed";
  const failing = `/v1/admin/organizations/${id}/refunds`;
  const refund = { transaction_id: first.transaction_id, amount_usd: 2 };
  await gateway.request("POST", failing, refund, { key: operator });
  stripe.refundStatus = "succeeded";
  await order("adjustments", { amount_usd: -0.25, description: "Correction" });
  await chat();
  const declined = await topUp(
    gateway,
    { amount_usd: 7, payment_method_id: "pm_card_chargeDeclined" },
    key,
  );
  expect(declined.status).toBe(402);
  await endMonth(gateway, id, 1);

  // The current month.
  await paid(await topUp(gateway, { amount_usd: 5 }, key));
  const [intent] = [...stripe.intents.values()].filter(({ amount }) => amount === 500).slice(-1);
  const dispute = (status: string) => ({
    ...{ id: `dp_${intent!.id}`, object: "dispute", payment_intent: intent!.id },
    ...{ amount: 500, currency: "usd", status },
  });
  await report("charge.dispute.created", dispute("needs_response"));
  await report("charge.dispute.closed", dispute("won"));
  await chat();
  const replenish = {
    auto_replenish: true,
    replenish_threshold_usd: 1_000,
    replenish_amount_usd: 1_000,
  };
  expect((await gateway.request("PATCH", "/v1/credits", replenish, key)).status).toBe(200);
  await until("the automatic top-up is credited", async () => {
    const [row] = await sql`SELECT 1 FROM payment_intents
      WHERE organization_id = ${id} AND purpose = 'auto_replenish' AND state = 'succeeded'`;
    return row !== undefined;
  });
  await until("all charges are in the ledger", async () => {
    const [row] = await sql<{ count: bigint }[]>`SELECT count(*) FROM transactions
      WHERE organization_id = ${id} AND type = 'usage'`;
    return row!.count === 5n;
  });
  await forgetSums(gateway, id);
  return { id, managementKey, secretKey };
}

/** Moves what happened so far, and is not moved yet, into an earlier month. */
async function endMonth({ sql }: TestGateway, id: string, age: number): Promise<void> {
  await until("charges are posted", async () => {
    const [row] = await sql<{ count: bigint }[]>`SELECT count(*) FROM holds h
      JOIN accounts a ON a.id = h.org_account WHERE a.organization_id = ${id}`;
    return row!.count === 0n;
  });
  const shift = `${age} months`;
  await sql`UPDATE transactions SET created_at = created_at - ${shift}::interval
    WHERE organization_id = ${id} AND created_at >= date_trunc('month', clock_timestamp(), 'UTC')`;
  await sql`UPDATE organizations SET created_at = least(created_at, clock_timestamp() - ${shift}::interval)
    WHERE id = ${id}`;
}

/** As after an upgrade: the sums are computed again from the ledger. */
export async function forgetSums({ sql }: TestGateway, id: string): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`DELETE FROM statement_sums WHERE organization_id = ${id}`;
    await transaction`DELETE FROM statement_cursors WHERE organization_id = ${id}`;
  });
}
