import { describe, expect, test } from "bun:test";
import type { ParallelSlots } from "../../src/cluster/interface.ts";

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
