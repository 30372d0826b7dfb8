import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Hold } from "../../src/billing/ledger/interface.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import type { Trouble } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { faultsOf, holdsOf, postedOf } from "./books.ts";
import { codeOfAny, openSharedGrounds, type SharedGrounds } from "./shared-grounds.ts";

let grounds: SharedGrounds;
beforeAll(async () => {
  grounds = await openSharedGrounds();
});
afterAll(() => grounds.close());

describe("a connection that breaks", () => {
  const TROUBLES: Trouble[] = ["cut before it arrives", "cut while it runs", "lose its reply"];

  test.each(TROUBLES)(
    "(%s) leaves every hold, checkpoint, release and charge exactly once",
    async (trouble) => {
      const shared = await grounds.open(grounds.proxy.url);
      const payer = await grounds.payerWith(1_000_000n);
      const step = async (text: string, work: () => Promise<unknown>): Promise<void> => {
        const { cuts } = grounds.proxy;
        grounds.proxy.arm(trouble, text);
        await work();
        expect(grounds.proxy.cuts).toBeGreaterThan(cuts);
      };
      const requests = Array.from({ length: 4 }, () => requestOf(payer, 100));
      const holds: Hold[] = [];
      for (const request of requests) {
        await step(request.requestId, async () => holds.push(await shared.money.hold(request)));
      }
      expect((await holdsOf(grounds.books.sql)).sort()).toEqual(
        holds.map((held) => held.requestId).sort(),
      );
      expect(await faultsOf(grounds.books.sql)).toEqual([]);
      const [plain, streamed, released, last] = holds as [Hold, Hold, Hold, Hold];
      await step(plain.requestId, () => shared.money.settle(plain, figures(70n)));
      await step(streamed.requestId, () => shared.money.checkpoint(streamed, figures(30n)));
      await step(streamed.requestId, () => shared.money.settle(streamed, figures(80n)));
      await step(released.requestId, async () => {
        shared.money.release(released);
        await until("it is given back", async () => {
          return (
            !(await holdsOf(grounds.books.sql)).includes(released.requestId) && !shared.isBusy()
          );
        });
      });
      await shared.money.settle(last, figures(10n));
      const request = requestOf(payer, 100);
      await step(request.requestId, async () => {
        const begun = await shared.money.hold(request);
        await shared.money.settle(begun, figures(50n));
      });
      const charged = [plain, streamed, last, request].map(({ requestId }) => requestId);
      expect(await postedOf(grounds.books.sql, charged)).toHaveLength(4);
      expect(await grounds.spentOf(payer)).toBe(70n + 80n + 10n + 50n);
      await grounds.expectWhole(shared);
    },
    60_000,
  );

  test("leaves no session behind that could still carry its statement out when its request is long over", async () => {
    const shared = await grounds.open(grounds.proxy.url);
    const payer = await grounds.payerWith(1_000n);
    // As the server sees the session of a connection that broke before its statement began.
    const left = grounds.books.connect(1, grounds.books.url, {
      applicationName: `ledger ${shared.instance.id}`,
      settings: {},
    });
    const ended = codeOfAny(left`SELECT pg_sleep(60)`);
    await until("it is there", async () => {
      const [row] = await grounds.books.sql<{ sessions: number }[]>`
        SELECT count(*)::int AS sessions FROM pg_stat_activity WHERE wait_event = 'PgSleep'
          AND datname = current_database()`;
      return row!.sessions === 1;
    });
    const request = requestOf(payer, 900);
    grounds.proxy.arm("cut before it arrives", request.requestId);
    const held = await shared.money.hold(request);
    expect(await ended).toBe("CONNECTION_CLOSED");
    shared.money.release(held);
    await grounds.expectWhole(shared);
  }, 60_000);
});
