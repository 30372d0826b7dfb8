import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import {
  type SendSlot,
  SendSlots,
  type SendTarget,
  SLOW_ATTEMPT_MS,
} from "../../src/webhooks/send-slots.ts";

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

const at = (organizationId: string, host = `${organizationId}.test`): SendTarget => ({
  organizationId,
  host,
});

interface Taken {
  readonly place: SendTarget;
  slot: SendSlot | undefined;
}

/** Takes, and tells when there was room. */
function taking(slots: SendSlots, place: SendTarget): Taken {
  const taken: Taken = { place, slot: undefined };
  const slot = slots.take(place);
  if (slot instanceof Promise) void slot.then((granted) => (taken.slot = granted));
  else taken.slot = slot;
  return taken;
}

const insideOf = (all: readonly Taken[]) => all.filter(({ slot }) => slot !== undefined).length;

describe("attempts", () => {
  test("are no more than the bound at a time, and none waits while there is room for it", async () => {
    const slots = new SendSlots(4, new VirtualClock());
    const all = Array.from({ length: 10 }, (_, i) => taking(slots, at(`org_${i}`)));
    for (let done = 0; done < 6; done++) {
      await settle();
      expect(insideOf(all)).toBe(4 + done);
      expect(slots.inFlight).toBe(4);
      all.find(({ slot }, i) => slot !== undefined && i >= done)!.slot!.release();
    }
  });

  test("of one organization are a quarter of all at most, so that there is room for others", async () => {
    const slots = new SendSlots(8, new VirtualClock());
    const greedy = Array.from({ length: 100 }, (_, i) => taking(slots, at("greedy", `h${i}.test`)));
    const others = ["one", "other", "one"].map((name) => taking(slots, at(name)));
    await settle();
    expect([insideOf(greedy), insideOf(others)]).toEqual([2, 3]);
    others[0]!.slot!.release();
    await settle();
    expect(insideOf(greedy)).toBe(2);
    greedy[0]!.slot!.release();
    await settle();
    expect(insideOf(greedy)).toBe(3);
  });

  test("for one receiver are half of all at most, whoever they belong to", async () => {
    const slots = new SendSlots(8, new VirtualClock());
    const popular = Array.from({ length: 20 }, (_, i) => taking(slots, at(`org_${i}`, "one.test")));
    const other = taking(slots, at("other"));
    await settle();
    expect([insideOf(popular), insideOf([other])]).toEqual([4, 1]);
  });

  test("that cannot wait take nothing where there is no room", () => {
    const slots = new SendSlots(2, new VirtualClock());
    const [a, b] = [slots.tryTake(at("a")), slots.tryTake(at("b"))];
    expect([a === undefined, b === undefined, slots.tryTake(at("c"))]).toEqual([
      false,
      false,
      undefined,
    ]);
    a!.release();
    // Twice does no harm.
    a!.release();
    expect(slots.tryTake(at("c"))).toBeDefined();
    expect(slots.inFlight).toBe(2);
  });

  test("of the organization with the least under way go first", async () => {
    const slots = new SendSlots(8, new VirtualClock());
    const held = [
      ...["a", "a", "b", "c", "d", "e", "f", "g"].map((name) => slots.tryTake(at(name))!),
    ];
    const [more, newcomer] = [taking(slots, at("b")), taking(slots, at("new"))];
    held.at(-1)!.release();
    await settle();
    expect([insideOf([more]), insideOf([newcomer])]).toEqual([0, 1]);
  });
});

describe("receivers that answer late", () => {
  /** Slots of which some are held by a receiver that has turned slow. */
  async function withSlowReceiver() {
    const clock = new VirtualClock();
    const slots = new SendSlots(16, clock);
    const first = slots.tryTake(at("org_slow", "slow.test"))!;
    clock.advance(SLOW_ATTEMPT_MS + 1);
    first.release();
    return { clock, slots };
  }

  test("have an eighth of all for each, and half of all together", async () => {
    const { clock, slots } = await withSlowReceiver();
    const one = Array.from({ length: 5 }, (_, i) => taking(slots, at(`org_${i}`, "slow.test")));
    await settle();
    expect(insideOf(one)).toBe(2);
    // Sixteen receivers that nobody knows yet, of as many organizations, and none of them answers.
    const unknown = Array.from({ length: 14 }, (_, i) => taking(slots, at(`new_${i}`)));
    await settle();
    expect(insideOf(unknown)).toBe(14);
    clock.advance(SLOW_ATTEMPT_MS + 1);
    for (const { slot } of unknown) slot!.release();
    const again = Array.from({ length: 14 }, (_, i) => taking(slots, at(`new_${i}`)));
    const fast = Array.from({ length: 8 }, (_, i) => taking(slots, at(`fast_${i}`)));
    await settle();
    expect([insideOf(again), insideOf(fast)]).toEqual([6, 8]);
  });

  test("leave the others' attempts alone, and those that wait for them too", async () => {
    const { slots } = await withSlowReceiver();
    const waiting = Array.from({ length: 1_000 }, (_, i) =>
      taking(slots, at(`org_${i}`, "slow.test")),
    );
    for (let round = 0; round < 50; round++) {
      const slot = slots.take(at("quick", "quick.test"));
      expect(slot).not.toBeInstanceOf(Promise);
      (slot as SendSlot).release();
    }
    await settle();
    expect(insideOf(waiting)).toBe(2);
  });

  test("are fast ones again once they answer at once, also to those that wait", async () => {
    const { slots } = await withSlowReceiver();
    const waiting = Array.from({ length: 8 }, (_, i) => taking(slots, at(`o${i}`, "slow.test")));
    await settle();
    expect(insideOf(waiting)).toBe(2);
    waiting[0]!.slot!.release();
    await settle();
    expect(insideOf(waiting)).toBeGreaterThan(7);
  });
});
