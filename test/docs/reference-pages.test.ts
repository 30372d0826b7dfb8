import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { Value } from "typebox/value";
import { ERROR_TABLE } from "../../src/http/error-response.ts";
import { EVENT_DEFINITIONS, type EventType } from "../../src/lib/events/event-types.ts";
import { commandName } from "../../src/main/cli/command.ts";
import { COMMANDS } from "../../src/main/cli/commands.ts";

const root = join(import.meta.dir, "..", "..");
const read = (path: string): Promise<string> => Bun.file(join(root, path)).text();

interface Row {
  /** The heading of the row's section. */
  readonly heading: string;
  readonly cells: readonly string[];
}

/** Returns the rows of all tables of a page, without their heads. */
function tableRows(page: string): Row[] {
  let heading = "";
  const rows: Row[] = [];
  for (const line of page.split("\n")) {
    heading = /^#+ (.+)$/.exec(line)?.[1] ?? heading;
    if (!/^\| `/.test(line)) continue;
    rows.push({
      heading,
      cells: line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    });
  }
  return rows;
}

const codesIn = (text: string): string[] =>
  [...text.matchAll(/`([^`]+)`/g)].map(([, code]) => code!);

test("the pages of errors list each code once, with its status and type", async () => {
  const listed: { code: string; status: string; type: string }[] = [];
  for (const path of ["docs/reference/errors.md", "docs/reference/errors-administration.md"]) {
    for (const { heading, cells } of tableRows(await read(path))) {
      // A section of several statuses has them in the second column.
      const status = /^\d{3}/.exec(cells[1]!)?.[0] ?? heading;
      const type = `${heading} ${cells[1]}`;
      for (const code of codesIn(cells[0]!)) listed.push({ code, status, type });
    }
  }
  expect(listed.map(({ code }) => code).sort()).toEqual(Object.keys(ERROR_TABLE).sort());
  const wrong = listed.filter(({ code, status, type }) => {
    const entry = ERROR_TABLE[code as keyof typeof ERROR_TABLE];
    return !status.startsWith(String(entry.status)) || !type.includes(entry.type);
  });
  expect(wrong).toEqual([]);
});

/** Headers that every client or proxy of HTTP sends, which need no explanation. */
const ORDINARY_HEADERS = new Set([
  "accept-encoding",
  "access-control-request-headers",
  "content-encoding",
  "content-length",
  "cookie",
  "host",
  "origin",
  "sec-fetch-site",
  "transfer-encoding",
  "upgrade",
  "user-agent",
]);

/** The folders whose code reads requests, or writes answers and deliveries. */
const HEADER_SOURCES =
  "src/{http,inference,jobs,billing,accounts,webhooks,main,lib}/**/*.ts src/dashboard/*.ts".split(
    " ",
  );
/** Code that reads the answers of other servers. */
const READS_ANSWERS = /\/(?:tools|cli)\/|retry-after/;

async function headersInCode(): Promise<Set<string>> {
  const names = new Set<string>();
  for (const pattern of HEADER_SOURCES) {
    for await (const path of new Glob(pattern).scan({ cwd: root })) {
      const source = await read(path);
      const written = /"((?:x-gateway|x-ratelimit|gateway-webhook)-[a-z-]+)"/gi;
      for (const [, name] of source.matchAll(written)) names.add(name!.toLowerCase());
      if (READS_ANSWERS.test(path)) continue;
      for (const [, name] of source.matchAll(/headers\s*\.(?:get|has)\("([^"]+)"\)/g))
        names.add(name!);
      const exposed = /EXPOSED_HEADERS = \[([^\]]+)\]/.exec(source)?.[1] ?? "";
      for (const [, name] of exposed.matchAll(/"([^"]+)"/g)) names.add(name!);
    }
  }
  return names;
}

test("the page of headers has each header that the code reads or sends", async () => {
  const listed = new Set<string>();
  for (const { cells } of tableRows(await read("docs/reference/headers.md"))) {
    for (const name of codesIn(cells[0]!)) listed.add(name.toLowerCase());
  }
  const inCode = [...(await headersInCode())].filter((name) => !ORDINARY_HEADERS.has(name));
  expect(inCode.length).toBeGreaterThan(40);
  expect(inCode.filter((name) => !listed.has(name)).sort()).toEqual([]);

  let sources = "";
  for await (const path of new Glob("src/**/*.ts").scan({ cwd: root })) sources += await read(path);
  sources = sources.toLowerCase();
  expect([...listed].filter((name) => !new RegExp(`["\\s{]${name}["\\s:]`).test(sources))).toEqual(
    [],
  );
});

test("the page of events has an example of each event, which is the sample of its definition", async () => {
  const page = await read("docs/reference/webhook-events.md");
  const sections = [...page.matchAll(/^## `([^`]+)`\n\n(.+)\n\n```json\n([\s\S]*?)\n```/gm)];
  expect(sections.map(([, type]) => type)).toEqual([...EVENT_DEFINITIONS.keys()]);
  for (const [, type, summary, example] of sections) {
    const definition = EVENT_DEFINITIONS.get(type as EventType)!;
    const { id, created_at, ...event } = JSON.parse(example!);
    expect([typeof id, typeof created_at]).toEqual(["string", "string"]);
    expect(event).toEqual({ type, data: definition.sample });
    expect({ type, isValid: Value.Check(definition.payload, event.data) }).toEqual({
      type,
      isValid: true,
    });
    expect(summary!.replaceAll("`", "")).toBe(definition.summary.replaceAll("`", ""));
  }
});

test("the page of metrics explains each metric of the code, and each in its printed list", async () => {
  const page = await read("docs/reference/metrics.md");
  const explained = new Map(
    tableRows(page).map(({ cells }) => [codesIn(cells[0]!)[0]!, cells[1]!]),
  );
  const printed = /```text\n([\s\S]*?)\n```/
    .exec(page)![1]!
    .split("\n")
    .map((line) => line.split(" "));
  expect(printed.filter(([name, type]) => explained.get(name!) !== type)).toEqual([]);
  const inCode = new Set<string>();
  for (const pattern of [
    "src/platform/telemetry/*.ts",
    "src/main/compose/*.ts",
    "src/webhooks/*.ts",
  ]) {
    for await (const path of new Glob(pattern).scan({ cwd: root })) {
      for (const [, name] of (await read(path)).matchAll(/"(gateway_[a-z_]+)"/g)) inCode.add(name!);
    }
  }
  const processMetrics = [...explained.keys()].filter((name) => name.startsWith("process_"));
  expect([...explained.keys()].sort()).toEqual([...inCode, ...processMetrics].sort());
});

test("the pages of the command line have each command with each of its options", async () => {
  const pages = ["docs/reference/cli.md", "docs/reference/cli-configuration.md"];
  const page = (await Promise.all(pages.map(read))).join("\n");
  const sections = new Map(
    page.split(/^## /m).map((section) => [section.slice(0, section.indexOf("\n")), section]),
  );
  for (const command of COMMANDS) {
    const section = sections.get(`\`${commandName(command)}\``) ?? "";
    const listed = [...section.matchAll(/^\| `--([a-z-]+)/gm)].map(([, name]) => name);
    expect({ command: commandName(command), listed }).toEqual({
      command: commandName(command),
      listed: Object.keys(command.options),
    });
  }
});
