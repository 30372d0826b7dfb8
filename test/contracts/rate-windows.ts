import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { RateDecision, RateWindows } from "../../src/platform/cluster/interface.ts";

/** Rate windows in the hands of a test, which owns their time. */
export interface OwnedRateWindows {
  readonly windows: RateWindows;
  /** Milliseconds since the Unix epoch, as the windows see them. */
  nowMs(): number;
  advance(byMs: number): void | Promise<void>;
}

const WINDOW_MS = 60_000;
/** By how much windows may be late: admissions are counted in pieces of this size. */
const LATE_MS = 100;

/** Gaps between requests: bursts, a steady pace, and pauses around the length of a window. */
const gapMs = fc.oneof(
  fc.constant(0),
  fc.integer({ min: 0, max: 150 }),
  fc.integer({ min: 0, max: 5_000 }),
  fc.integer({ min: WINDOW_MS - 200, max: WINDOW_MS + 200 }),
);
const arrivals = fc.record({
  limit: fc.integer({ min: 1, max: 12 }),
  gaps: fc.array(gapMs, { minLength: 1, maxLength: 120 }),
});

/** A take of an amount, what it is recounted to, and how long after it. */
const call = fc.record({
  gapMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 9_000 }), fc.constant(WINDOW_MS)),
  bound: fc.integer({ min: 1, max: 120 }),
  reduced: fc.integer({ min: 1, max: 120 }),
  least: fc.integer({ min: 1, max: 120 }),
  usedShare: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1, noNaN: true })),
  lastsCalls: fc.integer({ min: 0, max: 6 }),
});

interface Counted {
  readonly atMs: number;
  /** Falls when the call ends. */
  amount: number;
}

function amountWithin(counted: readonly Counted[], endMs: number, lengthMs: number): number {
  return counted
    .filter(({ atMs }) => atMs <= endMs && endMs - atMs <= lengthMs)
    .reduce((sum, { amount }) => sum + amount, 0);
}

/** What holds for takes of more than one, which are recounted when it is known what they have used. */
function describeAmounts(open: () => OwnedRateWindows | Promise<OwnedRateWindows>): void {
  const limit = 100;

  test("whatever is taken and recounted: the limit holds, what fits is admitted, and Retry-After is enough", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(call, { minLength: 1, maxLength: 60 }),
        fc.boolean(),
        async (calls, isLowerable) => {
          const { windows, nowMs, advance } = await open();
          const counted: Counted[] = [];
          const running: { endsAt: number; end(): void }[] = [];
          for (const [at, one] of calls.entries()) {
            await advance(one.gapMs);
            for (const { endsAt, end } of running) if (endsAt === at) end();
            const full = one.bound;
            const least = isLowerable ? Math.min(one.least, full) : full;
            const reduced = Math.max(least, Math.min(one.reduced, full));
            const most = limit - amountWithin(counted, nowMs(), WINDOW_MS);
            const sure = limit - amountWithin(counted, nowMs(), WINDOW_MS + LATE_MS);
            const decision = await windows.take("key", limit, { full, reduced, least });
            const { isAdmitted, admittedAmount: taken, retryAfterMs, recount } = decision;
            expect(taken).toBeLessThanOrEqual(most);
            if (isAdmitted) {
              expect(taken).toBeWithin(least, full + 1);
              if (full <= sure) expect(taken).toBe(full);
              else if (taken < full) expect(taken).toBeLessThanOrEqual(reduced);
              expect(decision.remaining).toBeWithin(sure - taken, most - taken + 1);
              const own: Counted = { atMs: nowMs(), amount: taken };
              counted.push(own);
              running.push({
                endsAt: at + one.lastsCalls,
                end() {
                  own.amount = Math.floor(taken * one.usedShare);
                  recount!(own.amount);
                },
              });
              if (one.lastsCalls === 0) running.at(-1)!.end();
              continue;
            }
            expect(taken).toBe(0);
            expect(least).toBeGreaterThan(sure);
            if (least > limit) continue;
            const waitedMs = nowMs() + retryAfterMs;
            expect(amountWithin(counted, waitedMs, WINDOW_MS)).toBeLessThanOrEqual(limit - least);
            expect(retryAfterMs).toBeLessThanOrEqual(WINDOW_MS + 1);
          }
        },
      ),
      { numRuns: 150 },
    ));

  test("a refusal waits until what counts has left, and for nothing that was given back wholly", async () => {
    const { windows, advance } = await open();
    const amount = (full: number) => ({ full, reduced: full, least: full });
    const first = await windows.take("key", limit, amount(1));
    first.recount!(0);
    await advance(30_000);
    expect((await windows.take("key", limit, amount(limit))).isAdmitted).toBe(true);
    const refusal = await windows.take("key", limit, amount(1));
    expect(refusal).toMatchObject({ isAdmitted: false, retryAfterMs: WINDOW_MS + 1 });
    await advance(refusal.retryAfterMs);
    expect((await windows.take("key", limit, amount(1))).isAdmitted).toBe(true);
  });

  test("an admission is recounted in its own place, more than once, and no longer when it has left", async () => {
    const { windows, advance } = await open();
    const amount = (full: number) => ({ full, reduced: full, least: full });
    const first = await windows.take("key", limit, amount(60));
    await advance(30_000);
    const second = await windows.take("key", limit, amount(30));
    expect(second.remaining).toBe(10);
    first.recount!(20);
    expect(await windows.remaining("key", limit)).toBe(50);
    first.recount!(25);
    expect(await windows.remaining("key", limit)).toBe(45);
    await advance(30_000 + LATE_MS + 1);
    expect(await windows.remaining("key", limit)).toBe(70);
    first.recount!(0);
    expect(await windows.remaining("key", limit)).toBe(70);
    second.recount!(45);
    expect(await windows.remaining("key", limit)).toBe(55);
    second.recount!(0);
    expect(await windows.remaining("key", limit)).toBe(limit);
  });

  test("what is given back is there for the next take, whatever was admitted since", async () => {
    const { windows, advance } = await open();
    const takes: RateDecision[] = [];
    for (let i = 0; i < 50; i++) {
      takes.push(await windows.take("key", limit, { full: 2, reduced: 2, least: 2 }));
      await advance(250);
    }
    expect((await windows.take("key", limit)).isAdmitted).toBe(false);
    for (const { recount } of takes) recount!(1);
    const all = { full: 60, reduced: 60, least: 50 };
    expect(await windows.take("key", limit, all)).toMatchObject({
      admittedAmount: 50,
      remaining: 0,
    });
  });
}

/** Admissions of the list that lie in the window that ends at `endMs`, both ends included. */
export function countWithin(
  admittedMs: readonly number[],
  endMs: number,
  lengthMs: number,
): number {
  return admittedMs.filter((ms) => ms <= endMs && endMs - ms <= lengthMs).length;
}

/** What every implementation of rate windows keeps. */
export function describeRateWindows(
  open: () => OwnedRateWindows | Promise<OwnedRateWindows>,
): void {
  const property = async (
    check: (owned: OwnedRateWindows, limit: number, gaps: number[]) => Promise<void>,
  ) =>
    fc.assert(
      fc.asyncProperty(arrivals, async ({ limit, gaps }) => check(await open(), limit, gaps)),
      { numRuns: 150 },
    );

  describe("what remains", () => {
    test("is what further takes admit, and asking for it takes none", () =>
      property(async ({ windows, advance }, limit, gaps) => {
        for (const gap of gaps.slice(0, 30)) {
          await advance(gap);
          const before = await windows.remaining("key", limit);
          expect(await windows.remaining("key", limit)).toBe(before);
          const taken = await windows.take("key", limit);
          expect(taken.isAdmitted).toBe(before > 0);
          expect(taken.remaining).toBe(Math.max(0, before - 1));
          expect(await windows.remaining("key", limit)).toBe(taken.remaining);
        }
      }));

    test("is the whole limit for a key that took nothing", async () => {
      const { windows } = await open();
      expect(await windows.remaining("unused", 7)).toBe(7);
      expect((await windows.take("unused", 7)).remaining).toBe(6);
    });
  });

  describe("whatever the times at which requests come", () => {
    test("no 60 seconds ever see more admissions than the limit", () =>
      property(async ({ windows, nowMs, advance }, limit, gaps) => {
        const admittedMs: number[] = [];
        for (const gap of gaps) {
          await advance(gap);
          if ((await windows.take("key", limit)).isAdmitted) admittedMs.push(nowMs());
        }
        for (const endMs of admittedMs) {
          expect(countWithin(admittedMs, endMs, WINDOW_MS)).toBeLessThanOrEqual(limit);
        }
      }));

    test("nothing is refused that fits, but for the last tenth of a second", () =>
      property(async ({ windows, nowMs, advance }, limit, gaps) => {
        const admittedMs: number[] = [];
        for (const gap of gaps) {
          await advance(gap);
          if ((await windows.take("key", limit)).isAdmitted) admittedMs.push(nowMs());
          else {
            expect(countWithin(admittedMs, nowMs(), WINDOW_MS + LATE_MS)).toBeGreaterThanOrEqual(
              limit,
            );
          }
        }
      }));

    test("whoever comes back after Retry-After is admitted, and was not sent away for longer than need be", () =>
      property(async ({ windows, nowMs, advance }, limit, gaps) => {
        const admittedMs: number[] = [];
        for (const gap of gaps) {
          await advance(gap);
          const { isAdmitted, retryAfterMs } = await windows.take("key", limit);
          if (isAdmitted) {
            expect(retryAfterMs).toBe(0);
            admittedMs.push(nowMs());
            continue;
          }
          const fitsMs = admittedMs.at(-limit)! + WINDOW_MS;
          expect(nowMs() + retryAfterMs).toBeGreaterThanOrEqual(fitsMs);
          expect(nowMs() + retryAfterMs).toBeLessThanOrEqual(fitsMs + LATE_MS);
          await advance(retryAfterMs);
          expect((await windows.take("key", limit)).isAdmitted).toBe(true);
          admittedMs.push(nowMs());
        }
      }));

    test("a refusal never asks for more than a minute, and who waits that long is admitted", () =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 0, max: 1_000 }),
          fc.array(fc.integer({ min: 0, max: 250 }), { minLength: 1, maxLength: 6 }),
          async (offsetMs, gaps) => {
            const { windows, advance } = await open();
            await advance(offsetMs);
            for (const gap of gaps) {
              await advance(gap);
              expect((await windows.take("key", gaps.length)).isAdmitted).toBe(true);
            }
            const { isAdmitted, retryAfterMs } = await windows.take("key", gaps.length);
            expect(isAdmitted).toBe(false);
            // Both ends of a minute belong to it; the way to the client and back takes longer than that.
            expect(retryAfterMs).toBeLessThanOrEqual(WINDOW_MS + 1);
            await advance(WINDOW_MS + 1);
            expect((await windows.take("key", gaps.length)).isAdmitted).toBe(true);
          },
        ),
      ));

    test("the numbers of the headers describe the window that ends now", () =>
      property(async ({ windows, nowMs, advance }, limit, gaps) => {
        const admittedMs: number[] = [];
        for (const gap of gaps) {
          await advance(gap);
          const decision = await windows.take("key", limit);
          if (decision.isAdmitted) admittedMs.push(nowMs());
          expect(decision.limit).toBe(limit);
          const most = limit - countWithin(admittedMs, nowMs(), WINDOW_MS);
          const least = limit - countWithin(admittedMs, nowMs(), WINDOW_MS + LATE_MS);
          expect(decision.remaining).toBeGreaterThanOrEqual(Math.max(0, least));
          expect(decision.remaining).toBeLessThanOrEqual(most);
          const oldestMs = admittedMs.find((ms) => nowMs() - ms <= WINDOW_MS);
          if (oldestMs !== undefined) {
            expect(decision.resetMs).toBeLessThanOrEqual(oldestMs + WINDOW_MS + LATE_MS);
          }
          expect(decision.resetMs).toBeGreaterThan(nowMs());
        }
      }));
  });

  describeAmounts(open);

  test("each key has a window of its own", async () => {
    const { windows } = await open();
    expect((await windows.take("one", 1)).isAdmitted).toBe(true);
    expect((await windows.take("one", 1)).isAdmitted).toBe(false);
    expect((await windows.take("two", 1)).isAdmitted).toBe(true);
  });

  test("a refusal takes nothing from those who come afterwards", async () => {
    const { windows, advance } = await open();
    await windows.take("key", 1);
    for (let i = 0; i < 50; i++) {
      await advance(1_000);
      expect((await windows.take("key", 1)).isAdmitted).toBe(false);
    }
    await advance(WINDOW_MS - 50_000 + LATE_MS);
    expect((await windows.take("key", 1)).isAdmitted).toBe(true);
  });

  test("a limit that changes counts what was admitted under the one before", async () => {
    const { windows, advance } = await open();
    const take = async (limit: number): Promise<RateDecision> => windows.take("key", limit);
    for (let i = 0; i < 5; i++) expect((await take(5)).isAdmitted).toBe(true);
    expect(await take(3)).toMatchObject({ isAdmitted: false, remaining: 0, limit: 3 });
    expect(await take(7)).toMatchObject({ isAdmitted: true, remaining: 1 });
    await advance(WINDOW_MS / 2);
    expect(await take(7)).toMatchObject({ isAdmitted: true, remaining: 0 });
    // Of the seven, six leave together, so one of three is left then.
    const { retryAfterMs } = await take(3);
    await advance(retryAfterMs);
    expect(await take(3)).toMatchObject({ isAdmitted: true, remaining: 1 });
  });
}
