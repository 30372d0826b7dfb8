import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  assertLockedDown,
  PythonStartError,
} from "../../../src/inference/tools/code-interpreter/python-process.ts";
import { type Attempt, HARMFUL, HARMLESS, SOCKETS } from "./attempts.ts";
import { hasSeccomp, sayWhySkipped } from "./platform.ts";

const SCRIPT = join(import.meta.dir, "locked-script.ts");
const folder = mkdtempSync(join(tmpdir(), "gateway-lock-down-"));
let paths: string[] = [];
let server: Bun.Server<undefined>;

beforeAll(() => {
  server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request) {
      paths.push(new URL(request.url).pathname);
      return new Response();
    },
  });
});

afterAll(async () => {
  await server.stop(true);
  rmSync(folder, { recursive: true });
});

/** Interfaces of Bun that the script tries. */
const CALLS = [
  "fs.readFileSync",
  "fs.readFileSync of /proc",
  "fs.readdirSync",
  "fs.writeFileSync",
  "Bun.file",
  "Bun.spawn",
  "Bun.listen",
  "dns.lookup",
  "fetch",
  "net.connect",
];
const WORKER = "a file in a Worker";

async function outputOf(
  mode: "locked" | "open" | "twice",
  attempts: readonly Attempt[],
  calls: readonly string[],
): Promise<string> {
  paths = [];
  const tries = [JSON.stringify(attempts), JSON.stringify(calls)];
  const command = [SCRIPT, mode, ...tries, String(server.port), folder];
  const child = Bun.spawn([process.execPath, "--no-env-file", ...command], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  return new Response(child.stdout).text();
}

async function outcomesOf(
  ...tries: Parameters<typeof outputOf>
): Promise<Readonly<Record<string, string>>> {
  return JSON.parse(await outputOf(...tries));
}

sayWhySkipped();

describe.skipIf(!hasSeccomp)("a process that has locked itself down", () => {
  test("gets no file, socket, process or privilege from the kernel, native code included", async () => {
    const attempts = [...SOCKETS, ...HARMLESS, ...HARMFUL];
    const outcomes = await outcomesOf("locked", attempts, []);
    const refused = attempts.filter(
      ({ numbers }) => numbers[process.arch === "x64" ? 0 : 1] !== null,
    );
    for (const { name } of refused) expect([name, outcomes[name]]).toEqual([name, "errno 1"]);
    expect(refused.length).toBeGreaterThan(200);
  }, 60_000);

  test("falls back from clone3, whose flags no filter sees, to clone", async () => {
    const clone3: Attempt = { name: "clone3", numbers: [435, 435], args: ["structure", 88] };
    expect((await outcomesOf("locked", [clone3], [])).clone3).toBe("errno 38");
  }, 60_000);

  test("gets none of them from Bun's interfaces, and its requests never arrive", async () => {
    const outcomes = await outcomesOf("locked", [], CALLS);
    for (const name of CALLS) expect([name, outcomes[name]]).toEqual([name, "failed"]);
    expect(paths).toEqual(["/before"]);
    expect(existsSync(join(folder, "written"))).toBe(false);
  }, 60_000);

  test("cannot start a Worker: Bun ends with the attempt", async () => {
    expect(await outputOf("locked", [], [WORKER])).toBe("");
  }, 60_000);
});

test.skipIf(!hasSeccomp)(
  "a lock-down that is refused throws, and no code after it runs",
  async () => {
    expect(await outputOf("twice", HARMLESS, CALLS)).toBe("");
  },
  60_000,
);

test("a process without the filter is no place for Python, as the gateway sees it from outside", async () => {
  await expect(assertLockedDown(process.pid)).rejects.toBeInstanceOf(PythonStartError);
});

test.skipIf(!hasSeccomp)(
  "the same tries succeed in a process that is not locked down",
  async () => {
    const outcomes = await outcomesOf("open", HARMLESS, [...CALLS, WORKER]);
    for (const { name } of HARMLESS) expect([name, outcomes[name]]).toEqual([name, "done"]);
    // There may be no resolver.
    for (const name of [...CALLS.filter((one) => one !== "dns.lookup"), WORKER]) {
      expect([name, outcomes[name]]).toEqual([name, "done"]);
    }
    expect(paths).toEqual(["/before", "/after"]);
    expect(existsSync(join(folder, "written"))).toBe(true);
  },
  60_000,
);
