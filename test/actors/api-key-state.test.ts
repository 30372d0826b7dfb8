import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type ApiKeyState, apiKeyActor, KEY_PERIODS } from "../../actors/api-key/actor.ts";
import {
  changeHeld,
  emptyPeriods,
  headroom,
  hold,
  keepHolds,
  notePosted,
  rollPeriods,
  spenderState,
} from "../../actors/budget-periods/state.ts";
import { type ApiKeyRecord, INITIAL_SETTINGS, SCOPES } from "../../src/lib/api-key-record.ts";

const NOON = Date.UTC(2026, 2, 14, 12);
const DAY_MS = 86_400_000;

function record(over: Partial<ApiKeyRecord> = {}): ApiKeyRecord {
  return {
    ...INITIAL_SETTINGS,
    id: "key_1",
    organizationId: "org_1",
    kind: "secret",
    name: "One",
    keyPrefix: "gateway_sk_Ab3d",
    scopes: SCOPES,
    dailyBudgetNano: 1_000n,
    monthlyBudgetNano: 5_000n,
    createdAtMs: 0,
    ...over,
  };
}

function state(over: Partial<ApiKeyRecord> = {}, nowMs = NOON): ApiKeyState {
  return spenderState({
    id: "key_1",
    record: record(over),
    ...emptyPeriods(KEY_PERIODS, "key_1", nowMs),
    dayHeldNano: 0n,
    monthHeldNano: 0n,
    exhausted: new Map(),
  });
}

const change = (from: ApiKeyState, byNano: bigint, by: ApiKeyState = from) =>
  changeHeld(from, { dayAccount: by.day.accountId, monthAccount: by.month.accountId, byNano });

const totals = (accountIds: readonly string[], postedNano: bigint, refunds = 0n) =>
  new Map(accountIds.map((id) => [id, { creditNano: 0n, postedNano, sequence: refunds }]));

const post = (from: ApiKeyState, postedNano: bigint, by: ApiKeyState = from, refunds = 0n) =>
  notePosted(from, totals([by.day.accountId, by.month.accountId], postedNano, refunds));

describe("a key's headroom", () => {
  test("is what its budgets leave: without spend, and without what is held", () => {
    const now = change(post(state(), 300n), 200n);
    expect(headroom(now)).toEqual({
      isActive: true,
      dayAccount: "day:key_1:2026-03-14",
      monthAccount: "month:key_1:2026-03-01",
      limits: [
        {
          accountId: "day:key_1:2026-03-14",
          kind: "day",
          periodStart: "2026-03-14",
          budgetNano: 1_000n,
          remainingNano: 700n,
          availableNano: 500n,
        },
        {
          accountId: "month:key_1:2026-03-01",
          kind: "month",
          periodStart: "2026-03-01",
          budgetNano: 5_000n,
          remainingNano: 4_700n,
          availableNano: 4_500n,
        },
      ],
    });
  });

  test("has no limit where there is no budget, and one of zero where the budget is zero", () => {
    expect(headroom(state({ dailyBudgetNano: null, monthlyBudgetNano: null })).limits).toEqual([]);
    const none = headroom(state({ dailyBudgetNano: 0n, monthlyBudgetNano: null })).limits;
    expect(none).toMatchObject([{ kind: "day", availableNano: 0n }]);
  });

  test("says where the key was switched off, and where it is gone", () => {
    expect(headroom(state({ isActive: false })).isActive).toBe(false);
    expect(headroom({ ...state(), record: undefined }).isActive).toBeUndefined();
  });

  test("never falls below zero by holds that fit and charges within them, over days and months, and holds balance out", () => {
    const request = fc.record({
      hold: fc.nat({ max: 700 }),
      charge: fc.nat({ max: 700 }),
      gapMs: fc.oneof(fc.constant(0), fc.nat({ max: DAY_MS }), fc.nat({ max: 20 * DAY_MS })),
      ends: fc.nat({ max: 3 }),
    });
    fc.assert(
      fc.property(fc.array(request, { maxLength: 60 }), (requests) => {
        let nowMs = NOON;
        let now = state();
        const spent = new Map<string, bigint>();
        const running: {
          dayAccount: string;
          monthAccount: string;
          hold: bigint;
          charge: bigint;
        }[] = [];
        const finish = () => {
          const { dayAccount, monthAccount, hold: held, charge } = running.shift()!;
          for (const accountId of [dayAccount, monthAccount]) {
            const postedNano = (spent.get(accountId) ?? 0n) + charge;
            spent.set(accountId, postedNano);
            now = notePosted(now, totals([accountId], postedNano));
          }
          now = changeHeld(now, { dayAccount, monthAccount, byNano: -held });
        };
        for (const { hold: wanted, charge, gapMs, ends } of requests) {
          nowMs += gapMs;
          now = rollPeriods(now, nowMs);
          const { dayAccount, monthAccount, limits } = headroom(now);
          const held = BigInt(wanted);
          const fits = held === 0n || limits.every(({ availableNano }) => held <= availableNano);
          const after = hold(now, held);
          expect(after !== undefined).toBe(fits);
          if (after !== undefined) {
            now = after;
            const charged = BigInt(Math.min(charge, wanted));
            running.push({ dayAccount, monthAccount, hold: held, charge: charged });
          }
          for (const limit of headroom(now).limits) {
            expect(limit.availableNano).toBeGreaterThanOrEqual(0n);
          }
          for (let i = 0; i < ends && running.length > 0; i++) finish();
        }
        while (running.length > 0) finish();
        expect(now.dayHeldNano).toBe(0n);
        expect(now.monthHeldNano).toBe(0n);
        for (const [account, postedNano] of spent) {
          expect(postedNano).toBeLessThanOrEqual(account.startsWith("day") ? 1_000n : 5_000n);
        }
      }),
    );
  });
});

describe("periods", () => {
  test.each([
    ["within a day", "2026-03-14T23:59:59.999Z", "2026-03-14", "2026-03-01"],
    ["at midnight", "2026-03-15T00:00:00.000Z", "2026-03-15", "2026-03-01"],
    ["at the end of a month", "2026-04-01T00:00:00.000Z", "2026-04-01", "2026-04-01"],
    ["into 29 February of a leap year", "2028-02-29T00:00:00.000Z", "2028-02-29", "2028-02-01"],
    ["out of February of a leap year", "2028-03-01T00:00:00.000Z", "2028-03-01", "2028-03-01"],
    ["at the end of a year", "2027-01-01T00:00:00.000Z", "2027-01-01", "2027-01-01"],
  ])("are those of the time: %s", (_, time, day, month) => {
    const rolled = rollPeriods(state(), Date.parse(time));
    expect(rolled.day.accountId).toBe(`day:key_1:${day}`);
    expect(rolled.month.accountId).toBe(`month:key_1:${month}`);
  });

  test("begin with nothing spent and nothing held, while the month goes on with both", () => {
    const before = change(post(state(), 400n), 100n);
    const after = rollPeriods(before, NOON + DAY_MS);
    expect(after).toMatchObject({ dayHeldNano: 0n, monthHeldNano: 100n });
    expect([after.day.postedNano, after.month.postedNano]).toEqual([0n, 400n]);
  });

  test("take nothing of what was admitted in the one before: it settles there", () => {
    const before = change(state(), 100n);
    const after = change(rollPeriods(before, NOON + DAY_MS), 30n);
    const settled = change(post(after, 80n, before), -100n, before);
    expect(settled).toMatchObject({ dayHeldNano: 30n, monthHeldNano: 30n });
    expect([settled.day.postedNano, settled.month.postedNano]).toEqual([0n, 80n]);
  });

  test("do not go back with a clock that is set back, neither by a turn nor by a reload", () => {
    const later = change(rollPeriods(change(state(), 500n), NOON + DAY_MS), 40n);
    expect(rollPeriods(later, NOON)).toEqual(later);
    const reloaded = keepHolds(later, state({}, NOON));
    expect(reloaded.day).toEqual(later.day);
    expect(reloaded.dayHeldNano).toBe(40n);
    // What ends now must not be taken from what was never counted there.
    const ended = change(reloaded, -500n, state());
    expect(ended.dayHeldNano).toBe(40n);
    expect(ended.monthHeldNano).toBe(40n);
  });
});

describe("spend", () => {
  test("only grows: of two totals the larger is the newer, in whatever order they come", () => {
    fc.assert(
      fc.property(fc.array(fc.bigInt({ min: 0n, max: 10_000n }), { minLength: 1 }), (totals) => {
        const now = totals.reduce((from, total) => post(from, total), state());
        expect(now.day.postedNano).toBe(totals.reduce((a, b) => (a > b ? a : b)));
      }),
    );
  });

  test("falls by a refund: behind one more of them a smaller total is the newer, told or loaded", () => {
    const refunded = post(post(state(), 600n), 100n, state(), 1n);
    expect(refunded.day).toMatchObject({ postedNano: 100n, refunds: 1n });
    expect(post(refunded, 500n).month).toMatchObject({ postedNano: 100n, refunds: 1n });
    expect(keepHolds(post(state(), 600n), refunded).day).toMatchObject({ postedNano: 100n });
    expect(keepHolds(refunded, post(state(), 600n)).day).toMatchObject({ postedNano: 100n });
  });

  test("of another account is not this one's", () => {
    const before = state();
    expect(notePosted(before, totals(["day:key_2:2026-03-14"], 9n))).toBe(before);
  });

  test("newer than a loaded snapshot stays, and so do holds; the record is the loaded one", () => {
    const before = change(post(state(), 600n), 50n);
    const loaded = post(state({ dailyBudgetNano: 2_000n, name: "Renamed" }), 500n);
    const merged = keepHolds(before, loaded);
    expect(merged.record).toEqual(loaded.record);
    expect(merged).toMatchObject({ day: { postedNano: 600n }, dayHeldNano: 50n });
    expect(merged.dayRoomNano).toBe(1_400n);
    const newer = keepHolds(before, post(state(), 700n));
    expect(newer).toMatchObject({ day: { postedNano: 700n }, dayHeldNano: 50n });
  });

  test("of a period that began after the last look is the loaded one", () => {
    const before = change(post(state(), 600n), 50n);
    const merged = keepHolds(before, post(state({}, NOON + DAY_MS), 5n));
    expect(merged).toMatchObject({ day: { postedNano: 5n }, dayHeldNano: 0n });
    expect(merged).toMatchObject({ month: { postedNano: 600n }, monthHeldNano: 50n });
  });
});

describe("the actor of a key", () => {
  const { verbs, mayPassivate } = apiKeyActor;
  const context = { nowMs: NOON, random: () => 0 };
  const period = {
    id: "day:key_1:2026-03-14",
    kind: "day" as const,
    organizationId: "org_1",
    keyId: "key_1",
    periodStart: "2026-03-14",
    isNearlySpent: false,
  };

  test("emits that a budget is exhausted once for each period", () => {
    const first = verbs.exhausted(state(), [period]);
    expect(first.effects).toHaveLength(1);
    expect(verbs.exhausted(first.state, [period]).effects).toBeUndefined();
    const month = { ...period, id: "month:key_1:2026-03-01", kind: "month" as const };
    expect(verbs.exhausted(first.state, [period, month]).effects).toHaveLength(1);
    const tomorrow = rollPeriods(first.state, NOON + DAY_MS);
    expect(verbs.exhausted(tomorrow, [period]).effects).toHaveLength(1);
  });

  test("asks for the threshold of 100 % at a later 402, once, when the budget is nearly spent", () => {
    const first = verbs.exhausted(state(), [period]);
    const spent = { ...period, isNearlySpent: true };
    const second = verbs.exhausted(first.state, [spent]);
    expect(second.effects).toHaveLength(1);
    expect(verbs.exhausted(second.state, [spent]).effects).toBeUndefined();
    expect(verbs.exhausted(second.state, [period]).effects).toBeUndefined();
  });

  test("changes what is asked, and nothing of a key that is gone", () => {
    const update = { changed: { dailyBudgetNano: 5n }, eventId: "evt_1" };
    const turn = verbs.update(change(state(), 7n), update, context);
    expect(turn.reply).toBe(true);
    expect(turn.state.record).toEqual(record({ dailyBudgetNano: 5n }));
    expect(turn.state.dayHeldNano).toBe(7n);
    const removed = verbs.remove(turn.state, { eventId: "evt_2" });
    expect(removed.state.record).toBeUndefined();
    expect(removed.state.dayHeldNano).toBe(7n);
    expect(verbs.update(removed.state, update, context)).toMatchObject({ reply: false });
    expect(verbs.update(removed.state, update, context).effects).toBeUndefined();
    expect(verbs.remove(removed.state, { eventId: "evt_3" }).effects).toBeUndefined();
  });

  test("stays in memory while something of it is held", () => {
    expect(mayPassivate!(state())).toBe(true);
    const held = change(state(), 1n);
    expect(mayPassivate!(held)).toBe(false);
    expect(mayPassivate!(rollPeriods(held, NOON + DAY_MS))).toBe(false);
    expect(mayPassivate!(change(held, -1n))).toBe(true);
  });
});
