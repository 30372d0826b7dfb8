import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { refundCharge } from "../../db/ledger/credits.ts";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: MoneyGateway;
let operator: string;
beforeAll(async () => {
  gateway = await startMoneyGateway();
  operator = await addOperator(gateway);
});
afterAll(() => gateway.stop());

interface Entry {
  readonly id: string;
  readonly type: string;
  readonly amount_usd: number;
  readonly balance_after_usd: number;
}

const post = (path: string, body: unknown, idempotencyKey?: string, key = operator) =>
  gateway.request("POST", `/v1/admin/organizations/${path}`, body, {
    key,
    headers: idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey },
  });
const adjust = (
  id: string,
  amountUsd: number,
  idempotencyKey?: string,
  description = "Invoice 17",
) => post(`${id}/adjustments`, { amount_usd: amountUsd, description }, idempotencyKey);
const refund = (id: string, transactionId: string, amountUsd?: number, idempotencyKey?: string) =>
  post(`${id}/refunds`, { transaction_id: transactionId, amount_usd: amountUsd }, idempotencyKey);
const entryOf = async (response: Response): Promise<Entry> => {
  if (response.status !== 201) throw new Error(`${response.status}: ${await response.text()}`);
  return (await response.json()) as Entry;
};

/** The sum of the transactions is the balance, and each balance follows from the one before. */
async function balanceUsd(organizationId: string): Promise<number> {
  const rows = await gateway.sql<{ amount_nano: bigint; balance_after_nano: bigint }[]>`
    SELECT amount_nano, balance_after_nano FROM transactions
    WHERE organization_id = ${organizationId} ORDER BY sequence`;
  let balance = 0n;
  for (const row of rows) {
    balance += row.amount_nano;
    expect(row.balance_after_nano).toBe(balance);
  }
  const [account] = await gateway.sql<{ nano: bigint }[]>`
    SELECT credit_nano - posted_nano AS nano FROM accounts WHERE id = ${`org:${organizationId}`}`;
  expect(account!.nano).toBe(balance);
  return Number(balance) / 1e9;
}

async function charged(): Promise<{
  id: string;
  secretKey: string;
  managementKey: string;
  chargeId: string;
}> {
  const { organization, secretKey, managementKey } = await gateway.addOrganization({
    creditUsd: 1,
  });
  const response = await gateway.chat(secretKey);
  expect(response.status).toBe(200);
  await response.text();
  const [row] = await gateway.sql<{ id: string }[]>`SELECT id FROM transactions
    WHERE organization_id = ${organization.id} AND type = 'usage'`;
  return { id: organization.id, secretKey, managementKey, chargeId: row!.id };
}

const CHARGE_USD = 0.0000104;

describe("an adjustment", () => {
  test("adds to the balance, and takes from it, to the nano-USD", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const { id } = organization;
    expect(await entryOf(await adjust(id, 2.000000001))).toMatchObject({
      type: "adjustment",
      amount_usd: 2.000000001,
      balance_after_usd: 3.000000001,
      description: "Invoice 17",
    });
    expect(await entryOf(await adjust(id, -3.000000001))).toMatchObject({ balance_after_usd: 0 });
    await expectError(await adjust(id, -0.000000001), 402, "insufficient_credits");
    expect(await balanceUsd(id)).toBe(0);
  });

  test("may use the credit limit, and not more", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const { id } = organization;
    await gateway.request(
      "PATCH",
      `/v1/admin/organizations/${id}`,
      { credit_limit_usd: 5 },
      { key: operator },
    );
    await expectError(await adjust(id, -6.000000001), 402, "insufficient_credits");
    expect(await entryOf(await adjust(id, -6))).toMatchObject({ balance_after_usd: -5 });
  });

  test("takes nothing that a running request holds", async () => {
    const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 1 });
    const running = new AbortController();
    const call = fetch(`${gateway.baseUrl}/v1/chat/completions`, {
      method: "POST",
      signal: running.signal,
      headers: { authorization: `Bearer ${secretKey}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: "test/silent",
        max_tokens: 1_000,
        messages: [{ role: "user", content: "x" }],
      }),
    }).catch(() => {});
    const held = 1_000 * 1.04e-6;
    await Bun.sleep(300);
    await expectError(
      await adjust(organization.id, -Number((1 - held + 1e-9).toFixed(9))),
      402,
      "insufficient_credits",
    );
    expect((await adjust(organization.id, -Number((1 - held).toFixed(9)))).status).toBe(201);
    running.abort();
    await call;
  });

  test("is posted once for its idempotency key, however often and however much at once it is ordered", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const { id } = organization;
    const key = crypto.randomUUID();
    const answers = await Promise.all(Array.from({ length: 20 }, () => adjust(id, 3, key)));
    const entries = await Promise.all(answers.map(entryOf));
    expect(new Set(entries.map((entry) => entry.id)).size).toBe(1);
    expect(await entryOf(await adjust(id, 3, key))).toEqual(entries[0]!);
    expect(await balanceUsd(id)).toBe(4);
    expect((await entryOf(await adjust(id, 3))).id).not.toBe(entries[0]!.id);
    expect(await balanceUsd(id)).toBe(7);
  });

  test("of another content under the same key is 409, also in another organization or as a refund", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const other = await gateway.addOrganization();
    const key = crypto.randomUUID();
    await entryOf(await adjust(organization.id, 3, key));
    for (const again of [
      adjust(organization.id, 4, key),
      adjust(organization.id, 3, key, "Invoice 18"),
      adjust(other.organization.id, 3, key),
      refund(organization.id, "txn_1", 3, key),
    ]) {
      await expectError(await again, 409, "idempotency_conflict");
    }
    expect(await balanceUsd(organization.id)).toBe(4);
    const colleague = await addOperator(gateway);
    const body = { amount_usd: 3, description: "Invoice 17" };
    expect((await post(`${organization.id}/adjustments`, body, key, colleague)).status).toBe(201);
  });

  test("that was refused frees its key", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const { id } = organization;
    const key = crypto.randomUUID();
    await expectError(await adjust(id, -2, key), 402, "insufficient_credits");
    await expectError(await adjust(id, -2, key), 402, "insufficient_credits");
    await entryOf(await adjust(id, 5));
    expect(await entryOf(await adjust(id, -2, key))).toMatchObject({ balance_after_usd: 4 });
    expect(await entryOf(await adjust(id, -2, key))).toMatchObject({ balance_after_usd: 4 });
    expect(await balanceUsd(id)).toBe(4);
  });

  test("that a process left open is carried out once when it is ordered again", async () => {
    const { organization } = await gateway.addOrganization({ creditUsd: 1 });
    const { id } = organization;
    const key = crypto.randomUUID();
    await entryOf(await adjust(id, 1, key));
    // As where the process that placed the order died before it was carried out.
    const other = crypto.randomUUID();
    const [placed] = await gateway.sql<{ id: string }[]>`SELECT id FROM credit_commands
      WHERE organization_id = ${id} AND amount_nano = 1000000000`;
    const [{ id: operatorId }] = await gateway.sql<
      [{ id: string }]
    >`SELECT id FROM operator_keys ORDER BY created_at LIMIT 1`;
    const hash = (text: string) =>
      `cmd_${new Bun.CryptoHasher("sha256").update(`${operatorId}\n${text}`).digest("hex")}`;
    expect(placed!.id).toBe(hash(key));
    await gateway.sql`INSERT INTO credit_commands (id, organization_id, kind, amount_nano, description)
      VALUES (${hash(other)}, ${id}, 'adjustment', 2000000000, 'Invoice 17')`;
    const [first, second] = await Promise.all([adjust(id, 2, other), adjust(id, 2, other)]);
    expect((await entryOf(first)).id).toBe((await entryOf(second)).id);
    expect(await balanceUsd(id)).toBe(4);
  });

  test("of a bad body is 400", async () => {
    const { organization } = await gateway.addOrganization();
    for (const body of [
      { amount_usd: 0, description: "x" },
      { amount_usd: 1e-10, description: "x" },
      { amount_usd: "1", description: "x" },
      { amount_usd: 1e10, description: "x" },
      { amount_usd: 1 },
      { amount_usd: 1, description: "" },
      { amount_usd: 1, description: "  " },
      { amount_usd: 1, description: "x", type: "topup" },
    ]) {
      await expectError(await post(`${organization.id}/adjustments`, body), 400, "invalid_body");
    }
    const bad = await post(
      `${organization.id}/adjustments`,
      { amount_usd: 1, description: "x" },
      "k".repeat(256),
    );
    await expectError(bad, 400, "invalid_body");
  });
});

describe("a refund", () => {
  test("gives a charge back, whole or in parts, and never more than it was", async () => {
    const { id, chargeId } = await charged();
    expect(await entryOf(await refund(id, chargeId, 0.000001))).toMatchObject({
      type: "refund",
      amount_usd: 0.000001,
    });
    const tooMuch = await expectError(await refund(id, chargeId, 0.0000095), 400, "invalid_body");
    expect(tooMuch.error.param).toBe("amount_usd");
    expect(await entryOf(await refund(id, chargeId))).toMatchObject({
      amount_usd: 0.0000094,
      balance_after_usd: 1,
    });
    await expectError(await refund(id, chargeId), 400, "invalid_body");
    await expectError(await refund(id, chargeId, 1e-9), 400, "invalid_body");
    expect(await balanceUsd(id)).toBe(1);
  });

  test("is exact where 40 are ordered at once", async () => {
    const { id, chargeId } = await charged();
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => refund(id, chargeId, 0.000001)),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(10);
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(30);
    expect(await balanceUsd(id)).toBe(Number((1 - CHARGE_USD + 0.00001).toFixed(9)));
  });

  test("happens once for its idempotency key", async () => {
    const { id, chargeId } = await charged();
    const key = crypto.randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => refund(id, chargeId, 0.000001, key)),
    );
    const entries = await Promise.all(answers.map(entryOf));
    expect(new Set(entries.map((entry) => entry.id)).size).toBe(1);
    await expectError(await refund(id, chargeId, 0.000002, key), 409, "idempotency_conflict");
    await expectError(await refund(id, chargeId, undefined, key), 409, "idempotency_conflict");
    expect(await balanceUsd(id)).toBe(Number((1 - CHARGE_USD + 0.000001).toFixed(9)));
  });

  test("and the return of an answer that never left give the charge back once, in either order", async () => {
    for (const operatorIsFirst of [true, false]) {
      const { id, chargeId } = await charged();
      const [usage] = await gateway.sql<{ request_id: string; key_id: string }[]>`
        SELECT request_id, key_id FROM transactions WHERE id = ${chargeId}`;
      const undelivered = () =>
        refundCharge(gateway.sql, {
          transactionId: `txn_${crypto.randomUUID()}`,
          requestId: usage!.request_id,
          dayAccount: "day:none",
          monthAccount: "month:none",
          description: "Undelivered",
        });
      if (operatorIsFirst) {
        await entryOf(await refund(id, chargeId, 0.000001));
        expect(await undelivered()).toBe(true);
      } else {
        expect(await undelivered()).toBe(true);
        await expectError(await refund(id, chargeId, 0.000001), 400, "invalid_body");
      }
      expect(await undelivered()).toBe(false);
      await expectError(await refund(id, chargeId), 400, "invalid_body");
      expect(await balanceUsd(id)).toBe(1);
    }
  });

  test("is 404 for what is no charge of the organization", async () => {
    const { id, chargeId } = await charged();
    const { organization } = await gateway.addOrganization();
    const [credit] = await gateway.sql<{ id: string }[]>`SELECT id FROM transactions
      WHERE organization_id = ${id} AND type = 'adjustment'`;
    for (const [organizationId, transactionId] of [
      [organization.id, chargeId],
      [id, credit!.id],
      [id, "txn_none"],
      [id, chargeId.toUpperCase()],
      [id, `xxx_${chargeId.slice(4)}`],
      [id, chargeId.replace("txn_", "req_")],
    ] as const) {
      await expectError(await refund(organizationId, transactionId), 404, "transaction_not_found");
    }
    await expectError(await refund(id, "", 1), 400, "invalid_body");
    await expectError(await refund(id, chargeId, 0), 400, "invalid_body");
    await expectError(await refund(id, chargeId, -1), 400, "invalid_body");
    expect(await balanceUsd(id)).toBe(Number((1 - CHARGE_USD).toFixed(9)));
  });
});
