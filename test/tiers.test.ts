import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import measuredSeconds from "./durations.json";
import { belongsTo, LONG, MEASURING } from "./tiers.ts";

test.each([...LONG, ...MEASURING, ...Object.keys(measuredSeconds)])(
  "%s, which a tier names, exists",
  (place) => {
    expect(existsSync(join(import.meta.dir, "..", place))).toBe(true);
  },
);

test("a folder's files belong to it, and a file's namesakes do not", () => {
  expect(belongsTo("test/crash/kill.test.ts", LONG)).toBe(true);
  expect(belongsTo("test/crash-free.test.ts", LONG)).toBe(false);
});
