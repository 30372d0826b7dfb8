import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { commitLedgerBatch, FENCED } from "../../db/ledger/settle-batch.ts";
import { GATEWAY_LOCK, heartbeat, insertInstance } from "../../db/queries/instances.ts";
import { creditPayment, insertPaymentIntent } from "../../db/queries/payment-intents.ts";
import {
  addOrganization,
  adjustCredit,
  orderCreditLimit,
} from "../../src/main/cli/actions/organizations.ts";
import { settlement } from "../ledger/books.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { cliJson, runCliHere, spawnCli } from "./cli-runs.ts";

const NANO_PER_USD = 1_000_000_000n;
const never = new AbortController().signal;

let database: OpenTestDatabase;
let sql: Database;
let settings: Record<string, string>;

beforeAll(async () => {
  database = await openTestDatabase(3);
  ({ sql } = database);
  settings = { DATABASE_URL: database.url };
});
afterAll(() => database.drop());

async function organizationWith(creditUsd: bigint): Promise<string> {
  const request = {
    name: crypto.randomUUID(),
    plan: "free",
    startingCreditNano: creditUsd * NANO_PER_USD,
  };
  return (await addOrganization(sql, request, Date.now())).organization.id;
}

const adjustArguments = (org: string, amount: string): string[] => [
  ...["credits", "adjust", "--org", org, "--amount-usd", amount, "--description", "By hand"],
];

/** Balance and sum of transactions, in nano-USD. */
async function books(org: string): Promise<{ balance: bigint; sum: bigint; count: bigint }> {
  const [row] = await sql<{ balance: bigint; sum: bigint; count: bigint }[]>`
    SELECT a.credit_nano - a.posted_nano AS balance, count(t.id) AS count,
      coalesce(sum(t.amount_nano), 0)::bigint AS sum
    FROM accounts a LEFT JOIN transactions t USING (organization_id)
    WHERE a.id = ${`org:${org}`} GROUP BY a.id`;
  return row!;
}

test("without a gateway an adjustment is posted to the nano-USD, and printed", async () => {
  const org = await organizationWith(10n);
  expect(await cliJson<object>(settings, ...adjustArguments(org, "0.000000001"))).toEqual({
    id: expect.stringMatching(/^txn_/),
    type: "adjustment",
    amount_usd: 1e-9,
    balance_after_usd: 10.000000001,
    description: "By hand",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
  });
  await cliJson(settings, ...adjustArguments(org, "-10"));
  expect(await books(org)).toEqual({ balance: 1n, sum: 1n, count: 3n });
  const people = await runCliHere(settings, ...adjustArguments(org, "1000000000"));
  expect(people.stdout).toContain("1000000000.000000001 USD");
  expect((await books(org)).balance).toBe(1_000_000_000n * NANO_PER_USD + 1n);
});

test("more than the balance is refused as insufficient_credits, and exactly all of it is taken", async () => {
  const org = await organizationWith(3n);
  const refused = await runCliHere(settings, ...adjustArguments(org, "-3.000000001"));
  expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
  expect(refused.stderr).toMatch(/^insufficient_credits: [^\n]+\n$/);
  expect(await books(org)).toEqual({
    balance: 3n * NANO_PER_USD,
    sum: 3n * NANO_PER_USD,
    count: 1n,
  });
  await cliJson(settings, ...adjustArguments(org, "-3"));
  expect(await books(org)).toEqual({ balance: 0n, sum: 0n, count: 2n });
});

test("what the streams of a dead gateway hold is not taken", async () => {
  const org = await organizationWith(5n);
  await sql`INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
      day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
      completion_tokens, estimated, latency_ms, started_at)
    VALUES ('req_dead', 'ins_dead', 1, ${org}, 'key_dead', ${`org:${org}`}, 'day', 'month',
      2000000000, 1, 'm', 'p', 1, 1, false, 1, now())`;
  const refused = await runCliHere(settings, ...adjustArguments(org, "-3.000000001"));
  expect(refused.stderr).toStartWith("insufficient_credits: ");
  await cliJson(settings, ...adjustArguments(org, "-3"));
  expect((await books(org)).balance).toBe(2n * NANO_PER_USD);
});

test("an unknown organization and an uncountable balance are told, and no order stays behind", async () => {
  const unknown = await runCliHere(settings, ...adjustArguments("org_none", "1"));
  expect(unknown.exitCode).toBe(1);
  expect(unknown.stderr).toMatch(/^organization_not_found: [^\n]+\n$/);
  const org = await organizationWith(9_000_000_000n);
  const tooLarge = await runCliHere(settings, ...adjustArguments(org, "1000000000"));
  expect(tooLarge.exitCode).toBe(1);
  expect(tooLarge.stderr).toContain("nothing was posted");
  const open = await sql`SELECT 1 FROM credit_commands WHERE done_at IS NULL`;
  expect(open).toHaveLength(0);
  expect((await books(org)).count).toBe(1n);
});

test("commands at the same time take no more than there is", async () => {
  const org = await organizationWith(3n);
  const runs = await Promise.all(
    Array.from({ length: 6 }, () => runCliHere(settings, ...adjustArguments(org, "-1"))),
  );
  expect(runs.map(({ exitCode }) => exitCode).sort()).toEqual([0, 0, 0, 1, 1, 1]);
  for (const { exitCode, stderr } of runs) {
    if (exitCode === 1) expect(stderr).toStartWith("insufficient_credits: ");
  }
  expect(await books(org)).toEqual({ balance: 0n, sum: 0n, count: 4n });
});

test("an order that a gateway does not carry out in time is withdrawn, and said to be", async () => {
  const org = await organizationWith(1n);
  await withSilentGateway(async () => {
    const request = { organizationId: org, amountNano: 1n, description: "Too late" };
    const patience = { timeoutMs: 200, interrupted: never };
    await expect(adjustCredit(sql, request, patience)).rejects.toThrow(
      "did not carry out the order within 0.2 s: the order was withdrawn, nothing was changed",
    );
  });
  expect(await sql`SELECT 1 FROM credit_commands WHERE organization_id = ${org}`).toHaveLength(0);
  expect((await books(org)).count).toBe(1n);
});

test("an order that is carried out at the last moment counts as carried out", async () => {
  const org = await organizationWith(1n);
  await withSilentGateway(async () => {
    const request = { organizationId: org, amountNano: 7n, description: "Just in time" };
    const adjusted = adjustCredit(sql, request, { timeoutMs: 400, interrupted: never });
    const [order] = await until("an order", async () => {
      const rows = await sql`SELECT id FROM credit_commands WHERE organization_id = ${org}`;
      return rows.length > 0 && rows;
    });
    // The gateway's transaction is open when the time is up, so withdrawing has to wait for it.
    await sql.begin(async (transaction) => {
      await transaction`UPDATE credit_commands SET done_at = now(), transaction_id = 'txn_late'
        WHERE id = ${order!.id}`;
      await transaction`SELECT id FROM ledger_post_credit('txn_late', ${org}, 'adjustment', 7, 'x', 0)`;
      await until("the withdrawal waits", async () => {
        const rows = await sql`SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'DELETE%'`;
        return rows.length > 0;
      });
    });
    expect(await adjusted).toMatchObject({ id: "txn_late", amountNano: 7n });
  });
  expect((await books(org)).balance).toBe(NANO_PER_USD + 7n);
});

test("an operator who gives up waiting leaves no order behind", async () => {
  const org = await organizationWith(1n);
  await withSilentGateway(async () => {
    const child = spawnCli(settings, ...adjustArguments(org, "1"));
    await until("an order", async () => {
      const rows = await sql`SELECT 1 FROM credit_commands WHERE organization_id = ${org}`;
      return rows.length > 0;
    });
    child.kill("SIGINT");
    expect(await child.exited).toBe(1);
    expect(await new Response(child.stderr).text()).toContain("withdrawn, nothing was changed");
  });
  expect(await sql`SELECT 1 FROM credit_commands WHERE organization_id = ${org}`).toHaveLength(0);
});

test("a gateway that lost its lock with the connection still decides while it is heard of", async () => {
  const org = await organizationWith(1n);
  await sql`INSERT INTO instances (id, epoch, heartbeat_at)
    VALUES ('ins_heard', 1, clock_timestamp() + interval '1 hour')`;
  const request = { organizationId: org, amountNano: 1n, description: "Not ours to post" };
  const patience = { timeoutMs: 200, interrupted: never };
  await expect(adjustCredit(sql, request, patience)).rejects.toThrow("withdrawn");
  // It falls silent while an order waits.
  const adjusted = adjustCredit(sql, request, { timeoutMs: 10_000, interrupted: never });
  await until("an order", async () => {
    const rows = await sql`SELECT 1 FROM credit_commands WHERE organization_id = ${org}`;
    return rows.length > 0;
  });
  await sql`UPDATE instances SET heartbeat_at = clock_timestamp() - interval '1 minute'`;
  expect(await adjusted).toMatchObject({ amountNano: 1n, balanceAfterNano: NANO_PER_USD + 1n });
  expect((await books(org)).count).toBe(2n);
});

test("a gateway that was silent when an adjustment was posted at rest charges nothing any more", async () => {
  const org = await organizationWith(2n);
  const instance = { id: "ins_out_of_reach", epoch: 1n };
  await insertInstance(sql, instance);
  await sql`UPDATE instances SET heartbeat_at = clock_timestamp() - interval '1 minute'`;
  await cliJson(settings, ...adjustArguments(org, "-2"));
  expect((await heartbeat(sql, instance)).isAlive).toBeFalse();
  const charge = commitLedgerBatch(sql, instance, {
    checkpoints: [],
    settlements: [settlement({ organizationId: org, keyId: "key_held" }, { chargeNano: 1n })],
    knownAccounts: new Set(),
    recheck: false,
  });
  await expect(charge).rejects.toMatchObject({ code: FENCED });
  expect((await books(org)).balance).toBe(0n);
});

/** Holds the lock of the only gateway, as one does that is there and carries out nothing. */
async function withSilentGateway(work: () => Promise<void>): Promise<void> {
  const holder = connectDatabase(database, { poolSize: 1, applicationName: "silent" });
  try {
    await holder`SELECT pg_advisory_lock(${GATEWAY_LOCK})`;
    await work();
  } finally {
    await holder.end();
  }
}

test("without a gateway a credit limit is set, and not below what is used and held", async () => {
  const org = await organizationWith(1n);
  const patience = { timeoutMs: 1_000, interrupted: never };
  const limit = (usd: bigint | null) =>
    orderCreditLimit(
      sql,
      { organizationId: org, creditLimitNano: usd === null ? null : usd * NANO_PER_USD },
      patience,
    );
  await limit(4n);
  await cliJson(settings, ...adjustArguments(org, "-5"));
  expect((await books(org)).balance).toBe(-4n * NANO_PER_USD);
  await expect(limit(3n)).rejects.toThrow("the used and held amounts exceed the new credit limit");
  await sql`INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
      day_account, month_account, hold_nano, charge_nano, model, provider, prompt_tokens,
      completion_tokens, estimated, latency_ms, started_at)
    VALUES ('req_dead_too', 'ins_dead', 1, ${org}, 'key_dead', ${`org:${org}`}, 'day', 'month',
      1000000000, 1, 'm', 'p', 1, 1, false, 1, now())`;
  await limit(null);
  await expect(limit(4n)).rejects.toThrow("the used and held amounts exceed the new credit limit");
  await limit(5n);
  const [account] = await sql`SELECT credit_limit_nano FROM accounts WHERE id = ${`org:${org}`}`;
  expect(account!.credit_limit_nano).toBe(5n * NANO_PER_USD);
  await expect(limit(2_000_000_000n)).rejects.toThrow("a credit limit is at most 1000000000 USD");
});

test("credits refund gives a charge back, and takes a top-up for the card that paid it", async () => {
  const org = await organizationWith(0n);
  const paymentId = `pay_${crypto.randomUUID()}`;
  await insertPaymentIntent(sql, "ins_1", {
    ...{ id: paymentId, organizationId: org, keyId: null, idempotencyKey: null, bodyHash: null },
    ...{ purpose: "topup", amountNano: 5n * NANO_PER_USD, description: "Top-up by Visa" },
    ...{
      processor: "test",
      customer: null,
      methodId: null,
      method: "pm_card_visa",
      returnUrl: null,
    },
  });
  const transactionId = `txn_${crypto.randomUUID()}`;
  await creditPayment(sql, { id: paymentId, transactionId, reference: "test_1", receiptUrl: null });
  const refund = (...more: string[]) => [
    ...["credits", "refund", "--org", org, "--transaction-id", transactionId, ...more],
  ];
  expect(await cliJson<object>(settings, ...refund("--amount-usd", "2"))).toMatchObject({
    type: "adjustment",
    amount_usd: -2,
    balance_after_usd: 3,
    description: "Refund to the card: Top-up by Visa",
    card_refund_status: "pending",
  });
  const [left] = await sql`SELECT state, amount_nano FROM payment_refunds
    WHERE organization_id = ${org}`;
  expect(left).toEqual({ state: "pending", amount_nano: 2n * NANO_PER_USD });
  const tooMuch = await runCliHere(settings, ...refund("--amount-usd", "3.01"));
  expect(tooMuch.stderr).toContain("3 USD of this transaction can still be refunded");
  await cliJson(settings, ...adjustArguments(org, "-1"));
  const spent = await runCliHere(settings, ...refund());
  expect(spent.stderr).toContain("cannot be deducted");
  expect(await cliJson<object>(settings, ...refund("--amount-usd", "2"))).toMatchObject({
    balance_after_usd: 0,
  });
  expect(await books(org)).toMatchObject({ balance: 0n, sum: 0n });
});
