import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { CONFIG_VARIABLES } from "../src/config/variables.ts";
import { MAX_LINE_BYTES } from "../src/files/json-lines-check.ts";
import { uploadForm } from "../src/files/schema.ts";

const root = join(import.meta.dir, "..");
const readme = await Bun.file(join(root, "README.md")).text();

test("the README's configuration table is the configuration's own", () => {
  const rows = CONFIG_VARIABLES.map(
    ({ name, default: text, meaning }) =>
      `| \`${name}\` | ${text === null ? "unset" : `\`${text}\``} | ${meaning} |`,
  );
  const table = readme.split("\n").filter((line) => /^\| `[A-Z]/.test(line));
  expect(table).toEqual(rows);
});

test("every place on the README's map exists, and every source folder is on it", async () => {
  const map = readme.match(/```\n(src\/main\.ts[\s\S]*?)```/)![1]!;
  const places = map
    .trim()
    .split("\n")
    .map((line) => line.split(/\s/)[0]!);
  const missing = places.filter((place) => !existsSync(join(root, place.replace(/<.*$/, ""))));
  expect(missing).toEqual([]);
  const folders = new Bun.Glob("src/*").scan({ cwd: root, onlyFiles: false });
  for await (const folder of folders) {
    expect({ folder, isOnMap: map.includes(folder) }).toEqual({ folder, isOnMap: true });
  }
});

test("every command that the README names is a script", async () => {
  const { scripts } = await Bun.file(join(root, "package.json")).json();
  for (const [, script] of readme.matchAll(/bun run (?!cli)([a-z:]+)/g)) {
    expect(Object.keys(scripts)).toContain(script!);
  }
});

test("the README and the description tell how long a line of an uploaded file may be", () => {
  const limit = `at most ${MAX_LINE_BYTES / 1024 / 1024} MB`;
  expect(readme).toContain(`each line of ${limit}`);
  expect(JSON.stringify(uploadForm)).toContain(`each line of both ${limit}`);
});
