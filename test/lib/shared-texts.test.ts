import { expect, test } from "bun:test";
import { SharedTexts } from "../../src/lib/shared-texts.ts";

test("equal lists become one, whatever stands in them", () => {
  const shared = new SharedTexts();
  const list = shared.list(["files:read", "files:write"]);
  expect(shared.list(["files:read", "files:write"])).toBe(list);
  for (const other of [
    ["files:write", "files:read"],
    ['files:read","files:write'],
    [],
    ["files:read"],
  ]) {
    expect(shared.list(other)).toEqual(other);
    expect(shared.list(other)).not.toBe(list);
  }
});

test("nothing is kept of long lists, and not without bound of others", () => {
  const shared = new SharedTexts();
  const long = () => Array.from({ length: 1_000 }, (_, index) => `model-${index}`);
  expect(shared.list(long())).toEqual(long());
  expect(shared.list(long())).not.toBe(shared.list(long()));
  const first = shared.list(["first"]);
  for (let index = 0; index < 2_000; index++) shared.list([`${index}`]);
  expect(shared.list(["first"])).toEqual(first);
  expect(shared.list(["first"])).not.toBe(first);
});
