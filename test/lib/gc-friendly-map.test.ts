import { expect, test } from "bun:test";
import fc from "fast-check";
import { GcFriendlyMap } from "../../src/lib/gc-friendly-map.ts";

test("holds what a Map holds, whatever is put in, replaced and taken out", () => {
  const step = fc.tuple(
    fc.constantFrom("set", "set", "delete"),
    fc.constantFrom("a", "b", "c", "d"),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const map = new GcFriendlyMap<{ at: number }>();
      const expected = new Map<string, { at: number }>();
      for (const [at, [what, key]] of steps.entries()) {
        if (what === "set") {
          map.set(key, { at });
          expected.set(key, { at });
        } else {
          expect(map.delete(key)).toEqual(expected.get(key));
          expected.delete(key);
        }
        expect(map.size).toBe(expected.size);
        for (const name of ["a", "b", "c", "d"]) {
          expect(map.has(name)).toBe(expected.has(name));
          expect(map.get(name)).toEqual(expected.get(name));
        }
      }
    }),
  );
});
