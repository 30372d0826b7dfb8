import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { exchangeLedgerBatch } from "../../db/ledger/exchange-batch.ts";
import {
  type Settlement,
  subjectDayAccountId,
  subjectMonthAccountId,
} from "../../db/ledger/rows.ts";
import { FENCED, type InstanceIdentity, newAccountRow } from "../../db/ledger/settle-batch.ts";
import { newId } from "../../src/lib/ids.ts";
import { join, takeOver } from "../../src/platform/cluster/clean-up.ts";
import {
  attemptsOf,
  type Books,
  checkpointOf,
  DAY,
  faultsOf,
  MONTH,
  openBooks,
  type Payer,
  settlement,
} from "./books.ts";
import { recordingLedger } from "./recording-ledger.ts";

let books: Books;
let payer: Payer;
beforeAll(async () => {
  books = await openBooks();
  payer = await books.addOrganization(1_000_000n);
});
afterAll(() => books.close());

const settle = (one: Settlement) => ({ kind: "settle", settlement: one }) as const;
const checkpoint = (of: Settlement, chargeNano: bigint) =>
  ({
    kind: "checkpoint",
    checkpoint: checkpointOf(of, { chargeNano, completionTokens: 3 }),
  }) as const;

async function start(): Promise<{
  instance: InstanceIdentity;
  lock: Database;
  settled: number;
}> {
  const instance = { id: newId("ins"), epoch: 1n };
  const lock = connectDatabase({ url: books.url }, { poolSize: 1, applicationName: "lock" });
  return { instance, lock, settled: (await takeOver(lock, books.sql, instance)).settled };
}

test("a dead request is charged with every kind of use of its last checkpoint, in its own words", async () => {
  const dead = await start();
  const { ledger } = recordingLedger(books.connect(), dead.instance);
  const speech = settlement(payer, { hasAttempt: true });
  const old = settlement(payer, { hasAttempt: true });
  const first = { description: "Speech: test/model", quantities: { characters: 40 } };
  const later = {
    ...first,
    cachedPromptTokens: 4,
    reasoningTokens: 2,
    quantities: { characters: 90, duration_ms: 1_500 },
    estimated: true,
  };
  for (const over of [first, later]) {
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(speech, over) }]);
  }
  await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(old) }]);
  // Columns that a checkpoint may leave empty.
  await books.sql`UPDATE attempts SET cached_prompt_tokens = NULL, reasoning_tokens = NULL,
    description = NULL WHERE request_id = ${old.requestId}`;
  await dead.lock.end({ timeout: 1 });
  const next = await start();
  await next.lock.end({ timeout: 1 });
  const [spoken] =
    await books.sql`SELECT * FROM transactions WHERE request_id = ${speech.requestId}`;
  expect(spoken).toMatchObject({
    description: "Speech: test/model (cut off)",
    cached_prompt_tokens: 4n,
    reasoning_tokens: 2n,
    quantities: later.quantities,
    estimated: true,
  });
  const [plain] = await books.sql`SELECT * FROM transactions WHERE request_id = ${old.requestId}`;
  expect(plain).toMatchObject({
    description: "Chat completion: test/model (cut off)",
    cached_prompt_tokens: 0n,
    reasoning_tokens: 0n,
    quantities: null,
  });
});

test("a dead request whose hold was extended is charged up to what it held in the end", async () => {
  const dead = await start();
  const { ledger } = recordingLedger(books.connect(), dead.instance);
  const stream = settlement(payer, { hasAttempt: true });
  for (const over of [
    { holdNano: 20n, chargeNano: 20n },
    { holdNano: 90n, chargeNano: 70n },
  ]) {
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream, over) }]);
  }
  await dead.lock.end({ timeout: 1 });
  const next = await start();
  await next.lock.end({ timeout: 1 });
  expect((await billsOf([stream.requestId])).get(stream.requestId)).toMatchObject({ charge: 70n });
});

test("a dead request counts for its end user as of its last checkpoint", async () => {
  const dead = await start();
  const { ledger } = recordingLedger(books.connect(), dead.instance);
  const budgetId = newId("bud");
  const stream = settlement(payer, {
    hasAttempt: true,
    subjectAccounts: subjectAccounts(budgetId),
  });
  await ledger.submit([checkpoint(stream, 20n)]);
  await ledger.submit([checkpoint(stream, 60n)]);
  await dead.lock.end({ timeout: 1 });
  const next = await start();
  await next.lock.end({ timeout: 1 });
  expect(await spentBySubject(budgetId)).toEqual([60n, 60n]);
  expect(await faultsOf(books.sql)).toEqual([]);
});

test("a dead request that only budgets count is charged nothing, and counted as of its last checkpoint", async () => {
  const dead = await start();
  const { ledger } = recordingLedger(books.connect(), dead.instance);
  const own = await books.addKey(payer.organizationId, { dailyBudgetNano: 500n });
  const stream = settlement(own, { hasAttempt: true });
  for (const budgetNano of [20n, 70n]) {
    const over = { holdNano: 0n, chargeNano: 0n, budgetHoldNano: 90n, budgetNano };
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream, over) }]);
  }
  await dead.lock.end({ timeout: 1 });
  const next = await start();
  await next.lock.end({ timeout: 1 });
  expect((await billsOf([stream.requestId])).get(stream.requestId)).toMatchObject({ charge: 0n });
  expect(await spentOf(own)).toEqual({ day: 70n, month: 70n });
  expect(await faultsOf(books.sql)).toEqual([]);
});

describe("what an instance holds of budgets alone is ended by a batch that", () => {
  const OWN_NANO = { hold_nano: 40n, budget_nano: 90n };

  /** A hold and its checkpoint, left behind by an instance that died, and who reaps it. A user has a budget too. */
  async function leftBehind() {
    const [dead, reaper] = [await books.addInstance(), await books.addInstance()];
    const own = await books.addKey(payer.organizationId, { dailyBudgetNano: 500n });
    const budgetId = newId("bud");
    const request = settlement(own, {
      hasAttempt: true,
      subjectAccounts: subjectAccounts(budgetId),
    });
    const amounts = { fullNano: 40n, leastNano: 40n, mostNano: 40n };
    const ofBudget = { fullNano: 90n, leastNano: 90n, mostNano: 90n };
    const demand = { ...request, ...amounts, budget: ofBudget, manner: "last" as const };
    const over = { holdNano: 40n, chargeNano: 0n, budgetHoldNano: 90n, budgetNano: 70n };
    await exchangeLedgerBatch(books.sql, dead, {
      checkpoints: [checkpointOf(request, over)],
      ...{ settlements: [], releases: [], holds: [demand], knownAccounts: new Set<string>() },
      recheck: false,
    });
    const [row] =
      await books.sql`SELECT hold_nano, budget_nano FROM holds WHERE id = ${request.requestId}`;
    expect({ ...row }).toEqual(OWN_NANO);
    await books.sql`UPDATE instances SET alive = false WHERE id = ${dead.id}`;
    const { orgAccount, dayAccount, monthAccount } = request;
    const batch = {
      ...{ instance: reaper.id, epoch: String(reaper.epoch), reaping: true },
      account_ids: [orgAccount, dayAccount, monthAccount],
    };
    return { own, budgetId, request, batch };
  }

  const group = (request: Settlement) => ({
    organization_id: request.organizationId,
    key_id: request.keyId,
    model: request.model,
    provider: request.provider,
    status: 499,
    estimated: false,
    description: request.description,
  });

  test("does not state the amounts of budgets", async () => {
    const { own, budgetId, request, batch } = await leftBehind();
    const { requestId: request_id } = request;
    const json = {
      ...batch,
      ended: [{ position: 1, request_id, accounts: [1, 2, 3], charge_nano: "0" }],
      settlements: [
        {
          ...{ position: 1, group: 0, request_id, charge_nano: 0, sum_nano: 0 },
          ...{ prompt_tokens: 1, completion_tokens: 1, latency_ms: 1 },
        },
      ],
      groups: [{ group: 0, account: 1, ...group(request) }],
      attempts: [request_id],
    };
    await books.sql`SELECT ledger_exchange_batch(${JSON.stringify(json)}::text::jsonb)`;
    expect(await spentOf(own)).toEqual({ day: 70n, month: 70n });
    expect(await spentBySubject(budgetId)).toEqual([70n, 70n]);
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  test("does not name the accounts of an end user, of a dead single-node gateway", async () => {
    const [dead, reaper] = [await books.addInstance(), await books.addInstance()];
    await books.sql`UPDATE instances SET is_alone = true WHERE id = ${dead.id}`;
    const { ledger } = recordingLedger(books.connect(), dead);
    const budgetId = newId("bud");
    const request = settlement(payer, {
      hasAttempt: true,
      subjectAccounts: subjectAccounts(budgetId),
    });
    await ledger.submit([checkpoint(request, 25n)]);
    const { requestId, orgAccount, dayAccount, monthAccount } = request;
    const json = {
      ...{ instance: reaper.id, epoch: String(reaper.epoch), reaping: true },
      account_ids: [orgAccount, dayAccount, monthAccount],
      new_accounts: [dayAccount, monthAccount].map((id) => newAccountRow(id, request)),
      ended: [{ position: 1, request_id: requestId, accounts: [1, 2, 3], charge_nano: "25" }],
      settlements: [
        {
          ...{ position: 1, group: 0, request_id: requestId, charge_nano: 25, sum_nano: 25 },
          ...{ prompt_tokens: 1, completion_tokens: 1, latency_ms: 1 },
        },
      ],
      groups: [{ group: 0, account: 1, ...group(request) }],
      attempts: [requestId],
    };
    await books.sql`SELECT ledger_exchange_batch(${JSON.stringify(json)}::text::jsonb)`;
    expect(await spentBySubject(budgetId)).toEqual([25n, 25n]);
    expect(await faultsOf(books.sql)).toEqual([]);
  });
});

const subjectAccounts = (budgetId: string) => [
  subjectDayAccountId(budgetId, DAY),
  subjectMonthAccountId(budgetId, MONTH),
];

/** In its day and its month. */
async function spentBySubject(budgetId: string): Promise<bigint[]> {
  const rows = await books.sql<{ posted_nano: bigint }[]>`
    SELECT posted_nano FROM accounts WHERE budget_id = ${budgetId} ORDER BY id`;
  return rows.map(({ posted_nano }) => posted_nano);
}

/** What the periods of a key count. */
async function spentOf({ keyId }: Payer): Promise<Record<string, bigint>> {
  const rows = await books.sql`SELECT kind, posted_nano FROM accounts WHERE key_id = ${keyId}`;
  return Object.fromEntries(rows.map(({ kind, posted_nano }) => [kind, posted_nano]));
}

async function billsOf(requestIds: readonly string[]) {
  const rows = await books.sql`
    SELECT request_id, -amount_nano AS charge, status, completion_tokens, description FROM transactions
    WHERE request_id = ANY (${books.sql.array([...requestIds])}::text[])`;
  return new Map(rows.map(({ request_id, ...bill }) => [request_id as string, bill]));
}

describe("whoever takes the database over", () => {
  test("charges what its predecessor had delivered, at the last checkpoint, and each thing once", async () => {
    const dead = await start();
    const { ledger } = recordingLedger(books.connect(), dead.instance);
    const stream = settlement(payer, { hasAttempt: true });
    const ended = settlement(payer, { hasAttempt: true, chargeNano: 90n });
    const zombie = settlement(payer, { hasAttempt: true, chargeNano: 70n });
    await ledger.submit([checkpoint(stream, 10n)]);
    await ledger.submit([checkpoint(stream, 25n)]);
    await ledger.submit([checkpoint(ended, 80n)]);
    await ledger.submit([settle(ended)]);
    await ledger.submit([settle(zombie)]);
    // A checkpoint that a broken connection carried out behind its settlement.
    await ledger.submit([checkpoint(zombie, 60n)]);
    await dead.lock.end({ timeout: 1 });

    const next = await start();
    expect(next.settled).toBe(2);
    const bills = await billsOf([stream, ended, zombie].map(({ requestId }) => requestId));
    expect(bills.get(stream.requestId)).toMatchObject({
      charge: 25n,
      status: 500,
      completion_tokens: 3n,
      description: "Chat completion: test/model (cut off)",
    });
    expect(bills.get(ended.requestId)).toMatchObject({ charge: 90n, status: 200 });
    expect(bills.get(zombie.requestId)).toMatchObject({ charge: 70n, status: 200 });
    expect(await attemptsOf(books.sql)).toEqual([]);
    expect(await faultsOf(books.sql)).toEqual([]);

    // What the dead one still tries comes to nothing.
    const late = ledger.submit([settle({ ...stream, chargeNano: 99n })]);
    expect(await late.catch((error) => (error as { code: string }).code)).toBe(FENCED);
    await next.lock.end({ timeout: 1 });
    const third = await start();
    expect(third.settled).toBe(0);
    await third.lock.end({ timeout: 1 });
    expect(await faultsOf(books.sql)).toEqual([]);
  }, 60_000);

  test("settles more attempts than one batch takes", async () => {
    const dead = await start();
    const { ledger } = recordingLedger(books.connect(), dead.instance);
    const streams = Array.from({ length: 1_201 }, () => settlement(payer, { hasAttempt: true }));
    await Promise.all(streams.map((stream) => ledger.submit([checkpoint(stream, 3n)])));
    await dead.lock.end({ timeout: 1 });
    const next = await start();
    expect(next.settled).toBe(1_201);
    const bills = await billsOf(streams.map(({ requestId }) => requestId));
    expect(bills.size).toBe(1_201);
    expect(await attemptsOf(books.sql)).toEqual([]);
    expect(await faultsOf(books.sql)).toEqual([]);
    await next.lock.end({ timeout: 1 });
  }, 60_000);
});

test("a gateway that is to be the only one refuses to start beside one of several, and the other way round", async () => {
  const [one, other] = [await openBooks(), await openBooks()];
  const lockOf = (of: Books) =>
    connectDatabase({ url: of.url }, { poolSize: 1, applicationName: "lock" });
  const [shared, second, exclusive, third, alone, late] = [
    lockOf(one),
    lockOf(one),
    lockOf(one),
    lockOf(other),
    lockOf(other),
    lockOf(other),
  ];
  const fresh = () => ({ id: newId("ins"), epoch: 1n });
  const refusal = (entering: Promise<unknown>) =>
    entering.then(
      () => "entered",
      (error: Error) => error.message,
    );
  await join(shared, one.sql, fresh());
  await join(second, one.sql, fresh());
  await takeOver(alone, other.sql, fresh());
  const [withCluster, withSingleNode] = await Promise.all([
    refusal(takeOver(exclusive, one.sql, fresh())),
    refusal(join(late, other.sql, fresh())),
  ]);
  expect(withCluster).toContain("another gateway is running on this database; set REDIS_URL");
  expect(withSingleNode).toContain("a single-node gateway is running on this database");
  // Once the last of the others is gone, each may.
  await Promise.all([shared, second, alone].map((lock) => lock.end({ timeout: 1 })));
  expect(await refusal(takeOver(exclusive, one.sql, fresh()))).toBe("entered");
  expect(await refusal(join(third, other.sql, fresh()))).toBe("entered");
  await Promise.all([exclusive, third, late].map((lock) => lock.end({ timeout: 1 })));
  await one.close();
  await other.close();
}, 60_000);
