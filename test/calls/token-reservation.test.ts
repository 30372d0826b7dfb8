import { describe, expect, test } from "bun:test";
import type { CostBound } from "../../src/inference/call/endpoint.ts";
import { TokenReservations } from "../../src/inference/call/token-reservation.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { MemoryRateWindows } from "../../src/platform/cluster/memory.ts";

const WINDOW_MS = 60_100;

/** A key of 1,000 tokens a minute, and what is left of them. */
function keyOf1000() {
  const clock = new VirtualClock();
  const rates = new MemoryRateWindows(clock);
  const key = { id: "key", rateLimitTpm: 1_000, limited: "This API key" };
  const take = (bound: Partial<CostBound>, isLimitExplicit = true, isLowPriority = false) =>
    TokenReservations.take(
      { rates, clock },
      [{ ...key, isLowPriority }],
      {
        ...{ fixedFemto: 0, perUnitFemto: 0, units: 0, fixedTokens: 0, perUnitTokens: 1 },
        ...bound,
      },
      isLimitExplicit,
    );
  return { take, clock, left: () => rates.remaining("key:tokens", 1_000) };
}

describe("a call of one step", () => {
  test("counts for the most it can use until it ends, then for what it has used, and the first end stands", async () => {
    const { take, left } = keyOf1000();
    const call = (await take({ fixedTokens: 100, units: 200, perUnitTokens: 2 }))!;
    expect(left()).toBe(500);
    expect(call.outputLimit).toBeUndefined();
    call.end(70);
    expect(left()).toBe(930);
    call.end(0);
    expect(left()).toBe(930);
  });

  test("counts for no more than was taken, whatever a provider reports", async () => {
    const { take, left } = keyOf1000();
    (await take({ fixedTokens: 300 }))!.end(1e18);
    expect(left()).toBe(700);
  });

  test("is lowered to 4,096 units, or to what is left where that is 256, unless it states its limit", async () => {
    const { take, left } = keyOf1000();
    const running = (await take({ fixedTokens: 100 }))!;
    const lowered = (await take({ fixedTokens: 10, units: 5_000, perUnitTokens: 2 }, false))!;
    expect(lowered.outputLimit).toBe(445);
    expect(left()).toBe(0);
    lowered.lowerTo(300);
    expect(left()).toBe(290);
    const refused = { code: "rate_limit_exceeded", retryAfterSeconds: 60 };
    await expect(take({ fixedTokens: 35, units: 5_000 }, false)).rejects.toMatchObject(refused);
    await expect(take({ fixedTokens: 35, units: 256 })).rejects.toMatchObject(refused);
    expect((await take({ fixedTokens: 34, units: 5_000 }, false))!.outputLimit).toBe(256);
    running.end(0);
  });

  test("that gives way finds half of the limit, or room for itself where it takes more", async () => {
    const { take, clock, left } = keyOf1000();
    const refused = { code: "rate_limit_exceeded" };
    const first = (await take({ fixedTokens: 400 }, true, true))!;
    await expect(take({ fixedTokens: 101 }, true, true)).rejects.toMatchObject(refused);
    const live = (await take({ fixedTokens: 600 }))!;
    await expect(take({ fixedTokens: 1 }, true, true)).rejects.toMatchObject(refused);
    first.end(0);
    live.end(100);
    expect(left()).toBe(900);
    await expect(take({ fixedTokens: 901 }, true, true)).rejects.toMatchObject(refused);
    clock.advance(WINDOW_MS);
    expect(await take({ fixedTokens: 901 }, true, true)).toBeDefined();
  });

  test("that could never be admitted says which limit of output would be", async () => {
    const { take, left } = keyOf1000();
    const never = (message: string, param: string | null) => ({
      ...{ code: "request_exceeds_rate_limit", param },
      message: expect.stringContaining(message),
    });
    await expect(take({ fixedTokens: 100, units: 451, perUnitTokens: 2 })).rejects.toMatchObject(
      never("Set max_tokens to at most 450.", "max_tokens"),
    );
    await expect(take({ fixedTokens: 1_001 }, false)).rejects.toMatchObject(
      never("Its input alone can use up to 1001", null),
    );
    expect(left()).toBe(1_000);
  });

  test("without tokens takes none", async () => {
    const { take, left } = keyOf1000();
    expect(await take({})).toBeUndefined();
    expect(left()).toBe(1_000);
  });
});

describe("a call of several steps", () => {
  test("counts each by its bound when it begins, and by what it has used when the next one does", async () => {
    const { take, left, clock } = keyOf1000();
    const call = (await take({ fixedTokens: 100, units: 200 }))!;
    await clock.advance(10_000);
    expect(await call.reserveStep(150, 400)).toBe(true);
    expect(left()).toBe(450);
    await clock.advance(WINDOW_MS - 10_000);
    // The first step has left the window, the second one has not.
    expect(left()).toBe(600);
    expect(await call.reserveStep(150 + 90, 910)).toBe(true);
    expect(left()).toBe(0);
    call.end(150 + 90 + 10);
    expect(left()).toBe(900);
  });

  test("is refused a step that does not fit, and keeps what the steps before have used", async () => {
    const { take, left } = keyOf1000();
    const call = (await take({ fixedTokens: 500 }))!;
    expect(await call.reserveStep(200, 801)).toBe(false);
    expect(await call.reserveStep(200, 600)).toBe(true);
    expect(await call.reserveStep(200, 300)).toBe(true);
    expect(left()).toBe(500);
    expect(await call.reserveStep(200, 450)).toBe(true);
    expect(left()).toBe(350);
    call.end(200 + 320);
    expect(left()).toBe(480);
  });

  test("whose first step turns out to be longer takes the rest, and is refused with 429", async () => {
    const { take, left } = keyOf1000();
    const call = (await take({ fixedTokens: 300 }))!;
    expect(await call.reserveStep(0, 500)).toBe(true);
    expect(left()).toBe(500);
    await expect(call.reserveStep(0, 1_001)).rejects.toMatchObject({ code: "rate_limit_exceeded" });
    call.end(0);
    expect(left()).toBe(1_000);
  });
});
