import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { dayAccountId, monthAccountId } from "../../db/ledger/rows.ts";
import {
  commitLedgerBatch,
  FENCED,
  type InstanceIdentity,
  type LedgerBatch,
} from "../../db/ledger/settle-batch.ts";
import { declareOthersDead } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { attemptsOf, type Books, checkpointOf, openBooks, postedOf, settlement } from "./books.ts";

const CREDIT = 1_000_000_000_000n;

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

function commit(
  batch: Partial<LedgerBatch>,
  instance: InstanceIdentity = books.instance,
  sql = books.sql,
) {
  return commitLedgerBatch(sql, instance, {
    checkpoints: [],
    settlements: [],
    knownAccounts: new Set(),
    recheck: false,
    ...batch,
  });
}

const codeOf = (failing: Promise<unknown>) =>
  failing.then(
    () => "done",
    (error) => (error as { code?: string }).code,
  );

describe("a batch of settlements", () => {
  test("takes each charge from the balance in the order of the batch, and tells the new totals", async () => {
    const payer = await books.addOrganization(CREDIT);
    const first = settlement(payer, { chargeNano: 300n });
    const second = settlement(payer, { chargeNano: 0n });
    const third = settlement(payer, { chargeNano: 4_000n });
    const totals = await commit({ settlements: [first, second, third] });
    expect(totals.get(first.orgAccount)).toEqual({
      creditNano: CREDIT,
      postedNano: 4_300n,
      sequence: 4n,
    });
    expect(totals.get(first.dayAccount)!.postedNano).toBe(4_300n);
    expect(totals.get(first.monthAccount)!.postedNano).toBe(4_300n);
    const rows = await books.sql`
      SELECT request_id, amount_nano, balance_after_nano, sequence FROM transactions
      WHERE organization_id = ${payer.organizationId} AND type = 'usage' ORDER BY sequence`;
    expect([...rows]).toEqual([
      {
        request_id: first.requestId,
        amount_nano: -300n,
        balance_after_nano: CREDIT - 300n,
        sequence: 2n,
      },
      {
        request_id: second.requestId,
        amount_nano: 0n,
        balance_after_nano: CREDIT - 300n,
        sequence: 3n,
      },
      {
        request_id: third.requestId,
        amount_nano: -4_000n,
        balance_after_nano: CREDIT - 4_300n,
        sequence: 4n,
      },
    ]);
  });

  test("is exact beyond the integers that numbers are exact for", async () => {
    const payer = await books.addOrganization(10n ** 18n);
    const edge = BigInt(Number.MAX_SAFE_INTEGER);
    const charges = [edge, edge, edge + 2n, 1n];
    const batch = charges.map((chargeNano) => settlement(payer, { chargeNano }));
    const totals = await commit({ settlements: batch });
    const postedNano = 3n * edge + 3n;
    expect(totals.get(batch[0]!.orgAccount)).toMatchObject({ postedNano });
    expect(totals.get(batch[0]!.dayAccount)).toMatchObject({ postedNano });
    expect(totals.get(batch[0]!.monthAccount)).toMatchObject({ postedNano });
    const rows = await books.sql`SELECT amount_nano, balance_after_nano FROM transactions
      WHERE organization_id = ${payer.organizationId} AND type = 'usage' ORDER BY sequence`;
    let balance = 10n ** 18n;
    for (const [index, chargeNano] of charges.entries()) {
      balance -= chargeNano;
      expect(rows[index]).toEqual({ amount_nano: -chargeNano, balance_after_nano: balance });
    }
  });

  test("keeps every figure of a settlement", async () => {
    const payer = await books.addOrganization(CREDIT);
    const full = settlement(payer, {
      status: 499,
      promptTokens: 2 ** 40,
      cachedPromptTokens: 7,
      completionTokens: 11,
      reasoningTokens: 3,
      estimated: true,
      latencyMs: 1_234,
      details: { user: "ü'\"\\{}", metadata: { a: ["b"] } },
      description: 'Chat completion: it\'s "odd" {a,b}',
    });
    await commit({ settlements: [settlement(payer), full] });
    const [row] = await books.sql`SELECT * FROM transactions WHERE request_id = ${full.requestId}`;
    expect(row).toMatchObject({
      id: `txn_${full.requestId.slice(4)}`,
      type: "usage",
      key_id: payer.keyId,
      model: full.model,
      provider: full.provider,
      status: 499,
      prompt_tokens: BigInt(2 ** 40),
      cached_prompt_tokens: 7n,
      completion_tokens: 11n,
      reasoning_tokens: 3n,
      estimated: true,
      latency_ms: 1_234,
      details: full.details,
      description: full.description,
    });
  });

  test("belongs to the day and month of its admission, also when it ends after midnight", async () => {
    const payer = await books.addOrganization(CREDIT);
    const admittedOnDayOne = settlement(payer, {
      dayAccount: dayAccountId(payer.keyId, "2026-02-28"),
      monthAccount: monthAccountId(payer.keyId, "2026-02-01"),
      chargeNano: 5n,
    });
    const admittedOnDayTwo = settlement(payer, {
      dayAccount: dayAccountId(payer.keyId, "2026-03-01"),
      monthAccount: monthAccountId(payer.keyId, "2026-03-01"),
      chargeNano: 70n,
    });
    await commit({ settlements: [admittedOnDayTwo, admittedOnDayOne] });
    const rows = await books.sql`
      SELECT id, kind, period_start::text, posted_nano FROM accounts
      WHERE key_id = ${payer.keyId} ORDER BY id`;
    expect([...rows]).toEqual([
      {
        id: admittedOnDayOne.dayAccount,
        kind: "day",
        period_start: "2026-02-28",
        posted_nano: 5n,
      },
      {
        id: admittedOnDayTwo.dayAccount,
        kind: "day",
        period_start: "2026-03-01",
        posted_nano: 70n,
      },
      {
        id: admittedOnDayOne.monthAccount,
        kind: "month",
        period_start: "2026-02-01",
        posted_nano: 5n,
      },
      {
        id: admittedOnDayTwo.monthAccount,
        kind: "month",
        period_start: "2026-03-01",
        posted_nano: 70n,
      },
    ]);
  });

  test("is written whole or not at all", async () => {
    const payer = await books.addOrganization(CREDIT);
    const good = settlement(payer);
    const tooMuch = settlement(payer, { chargeNano: 2n ** 63n - 1n });
    const alsoGood = settlement(payer, { chargeNano: 2n ** 62n });
    expect(await codeOf(commit({ settlements: [good, tooMuch, alsoGood] }))).toBe("22003");
    expect(await postedOf(books.sql, [good.requestId, alsoGood.requestId])).toEqual([]);
  });

  test("of a request that is posted already is refused, and passed over where an earlier try may have posted it", async () => {
    const payer = await books.addOrganization(CREDIT);
    const once = settlement(payer, { chargeNano: 9n });
    const fresh = settlement(payer, { chargeNano: 1n });
    await commit({ settlements: [once] });
    expect(await codeOf(commit({ settlements: [fresh, once] }))).toBe("23505");
    const totals = await commit({ settlements: [once, fresh], recheck: true });
    expect(totals.get(once.orgAccount)).toMatchObject({ postedNano: 10n, sequence: 3n });
    expect(totals.get(once.dayAccount)).toMatchObject({ postedNano: 10n });
    // The totals are returned even if nothing is left to do.
    const again = await commit({ settlements: [once, fresh], recheck: true });
    expect(again.get(once.orgAccount)).toMatchObject({ postedNano: 10n, sequence: 3n });
    expect(await postedOf(books.sql, [once.requestId, fresh.requestId])).toHaveLength(2);
  });
});

describe("a checkpoint", () => {
  test("is replaced by the next one of its request, and goes with the settlement", async () => {
    const payer = await books.addOrganization(CREDIT);
    const settled = settlement(payer, { hasAttempt: true });
    await commit({ checkpoints: [checkpointOf(settled, { chargeNano: 5n, completionTokens: 1 })] });
    await commit({ checkpoints: [checkpointOf(settled, { chargeNano: 8n, completionTokens: 2 })] });
    const rows = await books.sql`
      SELECT charge_nano, completion_tokens, hold_nano FROM attempts
      WHERE request_id = ${settled.requestId}`;
    expect([...rows]).toEqual([{ charge_nano: 8n, completion_tokens: 2n, hold_nano: 10_000n }]);
    await commit({ settlements: [settled] });
    expect(await attemptsOf(books.sql)).not.toContain(settled.requestId);
  });

  test("goes also where it stands in the same batch as the settlement of its request", async () => {
    const payer = await books.addOrganization(CREDIT);
    const settled = settlement(payer, { hasAttempt: true });
    await commit({ checkpoints: [checkpointOf(settled)], settlements: [settled] });
    expect(await attemptsOf(books.sql)).not.toContain(settled.requestId);
    expect(await postedOf(books.sql, [settled.requestId])).toHaveLength(1);
  });

  test("that a broken connection wrote behind its settlement is taken away by whoever settles it again", async () => {
    const payer = await books.addOrganization(CREDIT);
    const settled = settlement(payer, { hasAttempt: true, chargeNano: 77n });
    await commit({ settlements: [settled] });
    await commit({ checkpoints: [checkpointOf(settled)] });
    expect(await attemptsOf(books.sql)).toContain(settled.requestId);
    const totals = await commit({ settlements: [settled], recheck: true });
    expect(await attemptsOf(books.sql)).not.toContain(settled.requestId);
    expect(totals.get(settled.orgAccount)).toMatchObject({ postedNano: 77n });
  });
});

describe("the fence", () => {
  test("keeps everything out that an instance writes after it was declared dead", async () => {
    const payer = await books.addOrganization(CREDIT);
    const dead = await books.addInstance();
    const late = settlement(payer);
    await books.sql`UPDATE instances SET alive = false WHERE id = ${dead.id}`;
    expect(await codeOf(commit({ settlements: [late] }, dead))).toBe(FENCED);
    expect(await codeOf(commit({ checkpoints: [checkpointOf(late)] }, dead))).toBe(FENCED);
    expect(await codeOf(commit({ settlements: [late], recheck: true }, dead))).toBe(FENCED);
    expect(await postedOf(books.sql, [late.requestId])).toEqual([]);
    expect(await attemptsOf(books.sql)).not.toContain(late.requestId);
  });

  test("keeps an instance of an earlier epoch out, and an unknown one", async () => {
    const payer = await books.addOrganization(CREDIT);
    const { id } = books.instance;
    expect(await codeOf(commit({ settlements: [settlement(payer)] }, { id, epoch: 0n }))).toBe(
      FENCED,
    );
    const unknown = { id: newId("ins"), epoch: 1n };
    expect(await codeOf(commit({ settlements: [settlement(payer)] }, unknown))).toBe(FENCED);
  });

  test("decides a batch that waited for a lock by what is true when it goes on", async () => {
    const payer = await books.addOrganization(CREDIT);
    const doomed = await books.addInstance();
    const late = settlement(payer);
    let outcome: Promise<string | undefined> | undefined;
    await books.sql.begin(async (transaction) => {
      await transaction`SELECT 1 FROM instances WHERE id = ${doomed.id} FOR UPDATE`;
      outcome = codeOf(commit({ settlements: [late] }, doomed));
      await waitingBackends(1);
      await transaction`UPDATE instances SET alive = false WHERE id = ${doomed.id}`;
    });
    expect(await outcome).toBe(FENCED);
    expect(await postedOf(books.sql, [late.requestId])).toEqual([]);
  });

  test("makes the one who declares an instance dead wait for what it is just writing", async () => {
    const payer = await books.addOrganization(CREDIT);
    const [living, doomed] = [await books.addInstance(), await books.addInstance()];
    const running = settlement(payer);
    let burial: Promise<void> | undefined;
    await books.sql.begin(async (transaction) => {
      await commit({ settlements: [running] }, doomed, transaction as never);
      burial = declareOthersDead(books.sql, living.id);
      await waitingBackends(1);
    });
    await burial;
    expect(await postedOf(books.sql, [running.requestId])).toHaveLength(1);
    await books.sql`UPDATE instances SET alive = true WHERE id = ${books.instance.id}`;
  });

  async function waitingBackends(count: number): Promise<void> {
    for (;;) {
      const [row] = await books.sql<{ waiting: number }[]>`
        SELECT count(*)::int AS waiting FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      if (row!.waiting >= count) return;
    }
  }
});
