import { expect, test } from "bun:test";
import { drawIcons, ICONS_FILE } from "./icon-sources.ts";

test("the inlined icons are those of their packages", async () => {
  const inlined = await Bun.file(ICONS_FILE).json();
  expect(JSON.parse(await drawIcons())).toEqual(inlined);
});
