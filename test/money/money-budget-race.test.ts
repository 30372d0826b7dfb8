import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { type Flood, flood, type Outcome } from "./money-flood.ts";
import {
  EXACT_TOKENS,
  type MoneyGateway,
  ROOMY_TOKENS,
  startMoneyGateway,
  TOKEN_CHARGE_NANO,
} from "./money-gateway.ts";

/** Of requests whose hold is many times their charge; 30 shows the same at the pace of a busy key. */
const ARRIVAL_SECONDS = Number(process.env.GATEWAY_TEST_ARRIVAL_SECONDS ?? 3);
const TIMEOUT_MS = 60_000 + ARRIVAL_SECONDS * 1_000;
const REQUESTS = 1_000;
const PAID_REQUESTS = 100;
const EXACT_CHARGE_NANO = BigInt(EXACT_TOKENS) * TOKEN_CHARGE_NANO;
const ROOMY_CHARGE_NANO = BigInt(ROOMY_TOKENS) * TOKEN_CHARGE_NANO;
/** Less than this is not worth an answer: what a race may leave unspent. */
const SMALLEST_HOLD_NANO = 256n * TOKEN_CHARGE_NANO;
const EXACT = { model: "test/exact", max_tokens: EXACT_TOKENS };

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: 1_000 });
});
afterAll(() => gateway.stop());

const usdOf = (nano: bigint) => Number(nano) / 1e9;

/** Sends the flood and checks what holds of each: who succeeded was charged, who was refused was told why. */
async function race(options: Omit<Flood, "requests">, refusedWith: string): Promise<Outcome[]> {
  gateway.upstream.served.length = 0;
  const outcomes = await flood(gateway, { ...options, requests: REQUESTS });
  const failures = outcomes.filter(({ code }) => code !== undefined);
  expect(new Set(failures.map(({ status, code }) => `${status} ${code}`))).toEqual(
    new Set([`402 ${refusedWith}`]),
  );
  const successes = outcomes.filter(({ code }) => code === undefined);
  expect(successes.filter(({ status, costUsd }) => status !== 200 || !costUsd)).toEqual([]);
  expect(gateway.upstream.served).toHaveLength(successes.length);
  return successes;
}

/** Nothing was overspent, and nobody was refused while an answer could still be paid. */
function expectSpentUp(leftNano: bigint): void {
  expect(leftNano).toBeGreaterThanOrEqual(0n);
  expect(leftNano).toBeLessThan(SMALLEST_HOLD_NANO);
}

/** Waits for what a key has spent, and how often, as the ledger knows it. */
async function spendOf(keyId: string) {
  await expectBooksClosed(gateway);
  const [row] = await gateway.sql`
    SELECT coalesce(-sum(amount_nano), 0)::bigint AS spent, count(*)::int AS charges
    FROM transactions WHERE key_id = ${keyId}`;
  return row as { spent: bigint; charges: number };
}

async function budgetEvents(keyId: string, period: string): Promise<string[]> {
  const events = await gateway.sql`
    SELECT type, data FROM outbox
    WHERE data->>'key_id' = ${keyId} AND type LIKE 'budget.%' ORDER BY id`;
  for (const { data } of events) expect(data.period).toBe(period);
  return events.map(({ type, data }) =>
    type === "budget.threshold" ? String(data.threshold_percent) : type,
  );
}

describe.each([
  ["daily", "daily_budget_usd"],
  ["monthly", "monthly_budget_usd"],
])(
  "1,000 requests at once, half of them streams, at a key whose %s budget pays for 100",
  (period, budget) => {
    test(
      "spend it to the last nano-USD and not beyond, with each event once",
      async () => {
        const budgetNano = EXACT_CHARGE_NANO * BigInt(PAID_REQUESTS);
        const key = await gateway.addKey({ [budget]: usdOf(budgetNano) });
        const successes = await race({ key: key.secret, body: EXACT }, "budget_exhausted");
        expect(successes.length).toBeWithin(98, PAID_REQUESTS + 1);
        const { spent, charges } = await spendOf(key.id);
        expect(spent).toBe(EXACT_CHARGE_NANO * BigInt(successes.length));
        expect(spent).toBeLessThanOrEqual(budgetNano);
        expect(charges).toBe(successes.length);
        expect(await budgetEvents(key.id, period)).toEqual(["50", "80", "100", "budget.exhausted"]);
      },
      TIMEOUT_MS,
    );
  },
);

test(
  "1,000 requests at once at an organization whose balance pays for 100 leave it at 0, not below",
  async () => {
    const creditNano = EXACT_CHARGE_NANO * BigInt(PAID_REQUESTS);
    const { organization, secretKey } = await gateway.addOrganization({
      creditUsd: usdOf(creditNano),
    });
    const successes = await race({ key: secretKey, body: EXACT }, "insufficient_credits");
    expect(successes.length).toBeWithin(98, PAID_REQUESTS + 1);
    await expectBooksClosed(gateway);
    const [account] = await gateway.sql`
      SELECT credit_nano - posted_nano AS balance FROM accounts WHERE id = ${`org:${organization.id}`}`;
    expect(account!.balance).toBe(creditNano - EXACT_CHARGE_NANO * BigInt(successes.length));
    const events = await gateway.sql`
      SELECT type FROM outbox WHERE organization_id = ${organization.id}`;
    expect([...events]).toEqual([]);
  },
  TIMEOUT_MS,
);

describe(`1,000 requests over ${ARRIVAL_SECONDS} s that hold 20 times what they are charged`, () => {
  test(
    "spend a budget for 100 of them on at least 95, and not beyond it",
    async () => {
      const budgetNano = ROOMY_CHARGE_NANO * BigInt(PAID_REQUESTS);
      const key = await gateway.addKey({ daily_budget_usd: usdOf(budgetNano) });
      const successes = await race(
        {
          key: key.secret,
          body: { model: "test/roomy" },
          spreadMs: ARRIVAL_SECONDS * 1_000,
        },
        "budget_exhausted",
      );
      expect(successes.length).toBeGreaterThanOrEqual(95);
      const { spent, charges } = await spendOf(key.id);
      expectSpentUp(budgetNano - spent);
      expect(charges).toBe(successes.length);
      expect(await budgetEvents(key.id, "daily")).toEqual(["50", "80", "100", "budget.exhausted"]);
    },
    TIMEOUT_MS,
  );

  test(
    "spend a balance for 100 of them on at least 95, and not beyond it",
    async () => {
      const { organization, secretKey } = await gateway.addOrganization({
        creditUsd: usdOf(ROOMY_CHARGE_NANO * BigInt(PAID_REQUESTS)),
      });
      const successes = await race(
        {
          key: secretKey,
          body: { model: "test/roomy" },
          spreadMs: ARRIVAL_SECONDS * 1_000,
        },
        "insufficient_credits",
      );
      expect(successes.length).toBeGreaterThanOrEqual(95);
      await expectBooksClosed(gateway);
      const [account] = await gateway.sql`
        SELECT credit_nano - posted_nano AS balance FROM accounts WHERE id = ${`org:${organization.id}`}`;
      expectSpentUp(account!.balance);
    },
    TIMEOUT_MS,
  );
});
