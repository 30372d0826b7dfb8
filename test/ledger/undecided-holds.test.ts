import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { HoldQueue } from "../../src/billing/ledger/hold-queue.ts";
import { HoldDeadlines } from "../../src/billing/ledger/hold-wait-queue.ts";
import { PendingHold } from "../../src/billing/ledger/pending-hold.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { openClusteredMoney } from "../contracts/clustered-money.ts";
import { codeOf, figures, requestOf } from "../contracts/money/owned-money.ts";
import { until } from "../support/until.ts";
import { faultsOf, holdsOf, type Payer } from "./books.ts";
import { lockAccount, untilWaiting } from "./standing-in-the-way.ts";

const PATIENCE_MS = 1_800;
const MAX_WAIT_MS = 2_000;
const MAX_LAST_LOOK_MS = 500;
const MAX_QUEUED_HOLDS = 20_000;
const RELEASE_RETRY_MS = 1_000;

let owned: Awaited<ReturnType<typeof openClusteredMoney>>;
beforeAll(async () => {
  owned = await openClusteredMoney();
});
afterAll(() => owned.close());

async function expectAllFree(payer: Payer, tokens: number): Promise<void> {
  await until("nothing is held", async () => (await holdsOf(owned.sql)).length === 0);
  expect(owned.money.outstandingHolds).toBe(0);
  const held = await owned.money.hold(requestOf(payer, tokens));
  await owned.money.settle(held, figures(0n));
  expect(await faultsOf(owned.sql)).toEqual([]);
}

describe("where the database does not answer in time", () => {
  test("a hold fails with 503, and is given back where it is granted afterwards", async () => {
    const payer = await owned.addOrganization(1_000n);
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const asked = codeOf(owned.money.hold(requestOf(payer, 1_000)));
    await untilWaiting(owned.sql);
    // This one stands behind it and is not even asked for.
    const queued = codeOf(owned.money.hold(requestOf(payer, 1_000)));
    owned.clock.advance(PATIENCE_MS - 1);
    owned.clock.advance(1);
    expect(await Promise.all([asked, queued])).toEqual([
      "database_unavailable",
      "database_unavailable",
    ]);
    await unlock();
    await expectAllFree(payer, 1_000);
  });

  test("a request that waited for others fails with 503 at its last look, and holds nothing", async () => {
    const payer = await owned.addOrganization(1_000n);
    const running = await owned.money.hold(requestOf(payer, 600));
    const waiting = owned.money.hold(requestOf(payer, 500));
    await until("it waits", () => !owned.isBusy());
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const outcome = codeOf(waiting);
    owned.clock.advance(MAX_WAIT_MS);
    await untilWaiting(owned.sql);
    owned.clock.advance(MAX_LAST_LOOK_MS);
    expect(await outcome).toBe("database_unavailable");
    owned.money.release(running);
    await unlock();
    await expectAllFree(payer, 1_000);
  });
});

test("a release that the database refuses is tried again until it is written", async () => {
  const payer = await owned.addOrganization(1_000n);
  const held = await owned.money.hold(requestOf(payer, 1_000));
  await owned.sql`ALTER FUNCTION ledger_exchange_batch RENAME TO ledger_exchange_batch_away`;
  owned.money.release(held);
  for (let failures = 1; failures <= 2; failures++) {
    await until("it is refused", () => owned.backgroundErrors.length === failures);
    if (failures < 2) owned.clock.advance(RELEASE_RETRY_MS);
  }
  await owned.sql`ALTER FUNCTION ledger_exchange_batch_away RENAME TO ledger_exchange_batch`;
  owned.clock.advance(RELEASE_RETRY_MS);
  await expectAllFree(payer, 1_000);
});

test("holds wait for the ledger in bounded number: a further one is told that the gateway is overloaded", () => {
  const clock = new VirtualClock();
  const desk = new HoldQueue(clock, new HoldDeadlines(clock), () => {});
  const pending = () =>
    new PendingHold(requestOf({ organizationId: "org_1", keyId: "key_1" }, 1), {
      granted() {},
      refused() {},
    });
  for (let i = 0; i < MAX_QUEUED_HOLDS; i++) desk.submit(pending());
  expect(() => desk.submit(pending())).toThrow(expect.objectContaining({ code: "overloaded" }));
  expect(desk.take().length).toBeLessThanOrEqual(256);
  desk.submit(pending());
});
