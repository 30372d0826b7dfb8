import { describe, expect, test } from "bun:test";
import type { ParallelSlots } from "../../src/platform/cluster/interface.ts";

const limit = (max: number) => ({ id: crypto.randomUUID(), max });

/** What holds of places in any implementation. */
export function describeParallelSlots(open: () => Promise<ParallelSlots>): void {
  describe("places of calls", () => {
    test("are as many as the limit says, and free again when they are given back", async () => {
      const slots = await open();
      const three = [limit(3)];
      for (let round = 0; round < 3; round++) {
        const taken = await Promise.all(Array.from({ length: 20 }, () => slots.take(three)));
        expect(taken.filter(Boolean)).toHaveLength(3);
        expect(await slots.take(three)).toBeFalse();
        for (let i = 0; i < 3; i++) slots.release(three);
      }
    });

    test("within two limits are taken in both or in none", async () => {
      const slots = await open();
      const [wide, narrow] = [limit(3), limit(1)];
      expect(await slots.take([narrow, wide])).toBeTrue();
      expect(await slots.take([narrow, wide])).toBeFalse();
      expect(await Promise.all([slots.take([wide]), slots.take([wide])])).toEqual([true, true]);
      expect(await slots.take([wide])).toBeFalse();
      slots.release([narrow, wide]);
      expect(await slots.take([wide])).toBeTrue();
      expect(await slots.take([narrow])).toBeTrue();
    });

    test("are left free by half to others by a call that spares them, whatever else is asked for in the same turn", async () => {
      const slots = await open();
      const four = limit(4);
      const sparing = { ...four, reservesHalf: true };
      const asked = [sparing, four, sparing, sparing, four, sparing];
      const taken = await Promise.all(asked.map((one) => slots.take([one])));
      expect(taken).toEqual([true, true, false, false, true, false]);
      expect(await slots.take([four])).toBeTrue();
      slots.release([four]);
      slots.release([four]);
      expect(await slots.take([sparing])).toBeFalse();
      slots.release([sparing]);
      expect(await slots.take([sparing])).toBeTrue();
      const single = limit(1);
      expect(await slots.take([{ ...single, reservesHalf: true }])).toBeTrue();
    });

    test("that are given back are reported", async () => {
      const slots = await open();
      const heard: string[] = [];
      slots.onFree((id) => heard.push(id));
      const one = limit(1);
      expect(await slots.take([one])).toBeTrue();
      slots.release([one]);
      expect(heard).toContain(one.id);
    });
  });
}
