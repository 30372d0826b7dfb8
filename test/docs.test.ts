import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { MAX_LINE_BYTES } from "../src/jobs/files/json-lines-check.ts";
import { uploadForm } from "../src/jobs/files/routes.ts";
import {
  CONFIG_VARIABLES,
  VARIABLE_GROUPS,
  variablesTable,
} from "../src/platform/config/variables.ts";
import { clientsTable } from "./clients/table.ts";

const root = join(import.meta.dir, "..");
const read = (path: string): Promise<string> => Bun.file(join(root, path)).text();
const pages = ["*.md", "docs/**/*.md", "examples/**/*.md"]
  .flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: root })])
  .sort();

test.each([...VARIABLE_GROUPS])(
  "the table of the variables of %s is the configuration's own",
  async (group) => {
    const reference = pages.filter((page) => page.startsWith("docs/reference/configuration"));
    const texts = await Promise.all(reference.map(read));
    const table = `<!-- variables: ${group} -->\n${variablesTable(group)}\n<!-- /variables -->`;
    expect(texts.filter((text) => text.includes(table))).toHaveLength(1);
  },
);

test("the table of clients is made of their tests", async () => {
  expect(await read("docs/guides/clients/index.md")).toContain(
    `<!-- clients -->\n${clientsTable()}\n<!-- /clients -->`,
  );
});

test("the README has at most 150 lines", async () => {
  expect((await read("README.md")).split("\n").length).toBeLessThanOrEqual(151);
});

test("every path on the map exists, and every source folder is on it", async () => {
  const page = await read("docs/explanation/architecture.md");
  const map = page.match(/```\n(src\/lib\/[\s\S]*?)```/)![1]!;
  const paths = map
    .trim()
    .split("\n")
    .map((line) => line.split(/\s/)[0]!);
  expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  for await (const folder of new Glob("src/*").scan({ cwd: root, onlyFiles: false })) {
    expect({ folder, isOnMap: map.includes(folder) }).toEqual({ folder, isOnMap: true });
  }
});

test("the page of questions answers twenty of them with files that exist", async () => {
  const page = await read("docs/explanation/where-is.md");
  const files = [...page.matchAll(/^\| [^|]+\? \| `([^`]+)` \|$/gm)].map(([, file]) => file!);
  expect(files.length).toBeGreaterThanOrEqual(20);
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});

describe.each(pages)("%s", (page) => {
  test("names only scripts that exist", async () => {
    const { scripts } = await Bun.file(join(root, "package.json")).json();
    for (const [, script] of (await read(page)).matchAll(/bun run (?!cli)([a-z:]+)/g)) {
      expect(Object.keys(scripts)).toContain(script!);
    }
  });

  test("links only to pages and headings that exist", async () => {
    for (const [, link] of (await read(page)).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path, heading] = link!.split("#");
      const target = path === "" ? page : join(dirname(page), path!);
      expect({ link, exists: existsSync(join(root, target)) }).toEqual({ link, exists: true });
      if (heading === undefined) continue;
      expect(headingIds(await read(target))).toContain(heading);
    }
  });

  test("names only source files that exist", async () => {
    const named = (await read(page)).matchAll(
      /`((?:src|actors|db|test|docs)\/[\w./-]+\.(?:ts|md|json))`/g,
    );
    const missing = [...named]
      .map(([, path]) => path!)
      .filter((path) => !existsSync(join(root, path)));
    expect(missing).toEqual([]);
  });
});

test("alerts and the Grafana dashboard name only metrics that the gateway has", async () => {
  const sources = new Glob("src/**/*.ts").scan({ cwd: root });
  const known = new Set(["process_cpu_seconds_total", "process_resident_memory_bytes"]);
  for await (const path of sources) {
    for (const [, name] of (await read(path)).matchAll(/"(gateway_[a-z_]+)"/g)) known.add(name!);
  }
  for (const path of [
    "docs/deploy/prometheus-rules.yml",
    "docs/deploy/grafana-dashboard.json",
    "docs/guides/operate/monitoring.md",
  ]) {
    const named = (await read(path)).matchAll(/\b((?:gateway|process)_[a-z]+_[a-z_]+)/g);
    const metrics = [...named].map(([, name]) => name!.replace(/_(bucket|sum|count)$/, ""));
    expect({ path, count: metrics.length }).not.toEqual({ path, count: 0 });
    expect(metrics.filter((name) => !known.has(name))).toEqual([]);
  }
});

test("the files of deployments name only variables that the gateway reads", async () => {
  const known = new Set(CONFIG_VARIABLES.map(({ name }) => name));
  for await (const path of new Glob("docs/deploy/**/*").scan({ cwd: root })) {
    const named = (await read(path)).matchAll(/\b((?:GATEWAY|S3)_[A-Z_]+|\w+_URL)\b/g);
    const unknown = [...named].map(([, name]) => name!).filter((name) => !known.has(name));
    expect({ path, unknown }).toEqual({ path, unknown: [] });
  }
});

/** As GitHub makes them. */
function headingIds(page: string): string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, text]) =>
    text!
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

test("the files page and the description state how long a line of an uploaded file may be", async () => {
  const limit = `at most ${MAX_LINE_BYTES / 1024 / 1024} MB`;
  expect(await read("docs/reference/api/files.md")).toContain(`each line of ${limit}`);
  expect(JSON.stringify(uploadForm)).toContain(`Each line of both has ${limit}`);
});

test("each message on the page of troubleshooting is one of the gateway's", async () => {
  let sources = "";
  for await (const path of new Glob("{src,db}/**/*.ts").scan({ cwd: root })) {
    sources += await read(path);
  }
  const rows = (await read("docs/guides/troubleshooting.md")).matchAll(/^\| (`.+?) \|/gm);
  const parts = [...rows]
    .flatMap(([, cell]) => [...cell!.matchAll(/`([^`]+)`/g)])
    .flatMap(([, message]) => message!.split("…"))
    .map((part) => part.trim());
  expect(parts.length).toBeGreaterThan(20);
  expect(parts.filter((part) => !sources.includes(part))).toEqual([]);
});
