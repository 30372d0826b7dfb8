import { describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { GroupCommit } from "../../db/ledger/group-commit.ts";
import type { HoldSource } from "../../db/ledger/rows.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { checkpointOf, settlement } from "./books.ts";
import { traceEffect } from "./recording-ledger.ts";

const PAYER = { organizationId: "org_delayed", keyId: "key_delayed" };

/** Ends when everything that is due now has been written. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** A ledger that has just begun a commit. Commits take no time. `commits` has the numbers of charges of later commits. */
async function openLedger(options: { readonly isDraining?: boolean; holdQueue?: HoldSource } = {}) {
  const clock = new VirtualClock();
  const commits: number[] = [];
  const ledger = new GroupCommit({
    // Nothing but the function below writes.
    sql: undefined as unknown as Database,
    instance: { id: "ins_delayed", epoch: 1n },
    onFenced() {},
    onGuardViolated() {},
    endEarlierTry: () => Promise.resolve(),
    isDraining: () => options.isDraining === true,
    commitBatch(_sql, _instance, { settlements }) {
      commits.push(settlements.length);
      return Promise.resolve({ accountIds: [], totals: new Map(), verdicts: new Map() });
    },
    clock,
  });
  ledger.subscribe({ holdQueue: options.holdQueue, committed() {}, refund() {} });
  const charge = (...callsMs: number[]) => {
    for (const latencyMs of callsMs) {
      void ledger.submit([{ kind: "settle", settlement: settlement(PAYER, { latencyMs }) }]);
    }
    return turns();
  };
  const advance = (byMs: number) => {
    clock.advance(byMs);
    return turns();
  };
  await charge(500);
  expect(commits.splice(0)).toEqual([1]);
  return { ledger, commits, charge, advance };
}

describe("charges that wait together", () => {
  test("are written 1 % of their call after the last commit began, with those that come meanwhile", async () => {
    const { commits, charge, advance } = await openLedger();
    await charge(300, 300);
    await advance(2);
    await charge(300);
    expect(commits).toEqual([]);
    await advance(1);
    expect(commits).toEqual([3]);
  });

  test("are delayed by at most 5 ms, however long their calls took", async () => {
    const { commits, charge, advance } = await openLedger();
    await charge(60_000, 600_000);
    await advance(4);
    expect(commits).toEqual([]);
    await advance(1);
    expect(commits).toEqual([2]);
  });

  test("wait no longer than the shortest call allows, whether it was first or came later", async () => {
    const { commits, charge, advance } = await openLedger();
    await charge(400, 200);
    await advance(2);
    expect(commits).toEqual([2]);
    await charge(500, 500);
    await advance(1);
    await charge(200);
    expect(commits).toEqual([2]);
    await advance(1);
    expect(commits).toEqual([2, 3]);
  });

  test("are not delayed longer by a charge that comes later", async () => {
    const { commits, charge, advance } = await openLedger();
    await charge(300, 300);
    await advance(2);
    await charge(500);
    await advance(1);
    expect(commits).toEqual([3]);
  });

  test("are written immediately if the last commit began long enough ago", async () => {
    const { commits, charge, advance } = await openLedger();
    await advance(3);
    await charge(300, 300);
    expect(commits).toEqual([2]);
  });
});

describe("not delayed is", () => {
  test("a charge that waits alone", async () => {
    const { commits, charge } = await openLedger();
    await charge(500);
    expect(commits).toEqual([1]);
  });

  test("a call shorter than 100 ms, nor are those that it finds waiting", async () => {
    const { commits, charge, advance } = await openLedger();
    await charge(99, 500);
    expect(commits).toEqual([2]);
    await charge(500, 500);
    await advance(1);
    expect(commits).toEqual([2]);
    await charge(99);
    expect(commits).toEqual([2, 3]);
  });

  test("a checkpoint, a release or a statement, nor are charges that wait with it", async () => {
    const { ledger, commits, charge } = await openLedger();
    const running = settlement(PAYER, { latencyMs: 500 });
    const { requestId, orgAccount, dayAccount, monthAccount } = running;
    const accounts = { orgAccount, dayAccount, monthAccount };
    const others = [
      { kind: "checkpoint", checkpoint: checkpointOf(running) },
      { kind: "release", release: { requestId, ...accounts, hasAttempt: false } },
      traceEffect("not delayed"),
    ] as const;
    for (const [at, other] of others.entries()) {
      await charge(500, 500);
      expect(commits).toHaveLength(at);
      // The last one fails, because there is no database.
      ledger.submit([other]).catch(() => {});
      await turns();
      expect(commits.at(-1)).toBe(2);
      expect(commits).toHaveLength(at + 1);
    }
  });

  test("a hold, nor are charges that wait with it", async () => {
    let waiting = 0;
    const holdQueue: HoldSource = {
      get hasWork() {
        return waiting > 0;
      },
      take() {
        waiting = 0;
        return [];
      },
    };
    const { ledger, commits, charge } = await openLedger({ holdQueue });
    await charge(500, 500);
    expect(commits).toEqual([]);
    waiting = 1;
    ledger.wake();
    await turns();
    expect(commits).toEqual([2]);
    waiting = 1;
    await charge(500, 500);
    expect(commits).toEqual([2, 2]);
  });

  test("any charge of a process that drains or closes", async () => {
    const draining = await openLedger({ isDraining: true });
    await draining.charge(500, 500);
    expect(draining.commits).toEqual([2]);
    const closing = await openLedger();
    await closing.charge(500, 500);
    expect(closing.commits).toEqual([]);
    await closing.ledger.close();
    expect(closing.commits).toEqual([2]);
  });
});
