import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { runCliProcess, spawnCli } from "../cli/cli-runs.ts";
import { firstKeys, Grounds, killServer } from "../crash/gateway-process.ts";
import { addSealedWebhooks, base64, newKey, openedBy } from "../master-key/sealed-database.ts";
import { copyDatabase } from "../support/migrated-data-dir.ts";
import { findTestRedis } from "../support/redis.ts";
import { IS_THOROUGH } from "../support/thorough.ts";
import { until } from "../support/until.ts";
import { call, refusal, stop } from "./key-gateway.ts";
import { workersOf } from "./worker-pids.ts";

const TIMEOUT_MS = 120_000;
const BATCH_ROWS = 100;
const redis = process.platform === "linux" ? await findTestRedis() : undefined;
const grounds = new Grounds("generated-key");
afterAll(() => grounds.clear());

let used: { readonly dataDir: string; readonly key: string };
beforeAll(async () => {
  const dataDir = await grounds.newDataDirWithDatabase();
  const gateway = grounds.launch({ dataDir });
  const baseUrl = await gateway.listening;
  const { secret_key: key } = firstKeys(dataDir);
  for (const name of ["one", "two"]) expect(await call(baseUrl, key, name)).toBe(false);
  await stop(gateway);
  used = { dataDir, key };
}, TIMEOUT_MS);

/** A copy of a data folder whose gateway has answered "one" and "two", and was stopped. */
async function usedFolder() {
  const dataDir = grounds.newDataDir();
  await copyDatabase(used.dataDir, dataDir);
  const path = join(dataDir, "master-key");
  copyFileSync(join(used.dataDir, "master-key"), path);
  return { dataDir, path, nextPath: `${path}.next`, key: used.key };
}

async function startAndReplay(dataDir: string, key: string, calls: readonly string[]) {
  const gateway = grounds.launch({ dataDir });
  const baseUrl = await gateway.listening;
  for (const name of calls) expect(await call(baseUrl, key, name)).toBe(true);
  return { gateway, baseUrl };
}

const keyIn = (path: string): Buffer => Buffer.from(readFileSync(path, "utf8").trim(), "base64");
const modeOf = (path: string): number => statSync(path).mode & 0o777;
const rotate = (dataDir: string) =>
  runCliProcess({ DATA_DIR: dataDir }, "master-key", "rotate", "--json");

async function look<Result>(dataDir: string, work: (sql: Database) => Promise<Result>) {
  const url = findRunningEmbeddedPostgres(dataDir)!;
  const sql = connectDatabase({ url }, { poolSize: 2, applicationName: "test" });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

describe("a generated key", () => {
  test(
    "that is lost, cut or another one is not made anew: the start is refused, and goes on once it is back",
    async () => {
      const { dataDir, path, key } = await usedFolder();
      const kept = `${path}.kept`;
      copyFileSync(path, kept);
      rmSync(path);
      expect(await refusal(grounds.launch({ dataDir }))).toContain(`is missing (${path})`);
      expect(existsSync(path)).toBe(false);
      const doctor = await runCliProcess({ DATA_DIR: dataDir, PORT: "0" }, "doctor");
      expect(doctor.stdout).toMatch(/wrong\s+sealed values/);
      const wrong = base64(newKey());
      writeFileSync(path, `${wrong}\n`);
      const line = await refusal(grounds.launch({ dataDir }), wrong, base64(keyIn(kept)));
      expect(line).toStartWith(`the key in ${path} is not the master key`);
      expect(line).toContain("restore that file from a backup");
      // test/start/master-key-files.test.ts tries more of what is no key.
      writeFileSync(path, wrong.slice(0, 20));
      expect(await refusal(grounds.launch({ dataDir }))).toContain(`${path} does not hold a key`);
      renameSync(kept, path);
      await stop((await startAndReplay(dataDir, key, ["one"])).gateway);
    },
    TIMEOUT_MS,
  );

  test(
    "is replaced while no gateway runs, in a file of its owner alone, and is never printed",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      const before = keyIn(path);
      const run = await rotate(dataDir);
      expect(run.exitCode).toBe(0);
      expect(JSON.parse(run.stdout)).toEqual({ state: "begun", resealed: 2, unreadable: 0 });
      const after = keyIn(path);
      expect(after.equals(before)).toBe(false);
      expect(modeOf(path)).toBe(0o600);
      expect(existsSync(nextPath)).toBe(false);
      for (const secret of [before, after]) {
        expect(run.stdout + run.stderr).not.toContain(base64(secret));
      }
      const { gateway } = await startAndReplay(dataDir, key, ["one", "two"]);
      expect(gateway.stdout()).not.toContain("is being replaced");
      expect(await look(dataDir, (sql) => openedBy(sql, before, after))).toEqual({
        opened: [0, 2],
        lost: 0,
      });
      await stop(gateway);
    },
    TIMEOUT_MS,
  );

  test(
    "is replaced by several rotations at once as if by one after the other",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      const before = keyIn(path);
      const runs = await Promise.all([1, 2, 3].map(() => rotate(dataDir)));
      const refused = runs.filter(({ exitCode }) => exitCode !== 0);
      for (const { stderr } of refused) expect(stderr).toContain("another rotation");
      expect(refused.length).toBeLessThan(3);
      expect(existsSync(nextPath)).toBe(false);
      const { gateway } = await startAndReplay(dataDir, key, ["one"]);
      const after = keyIn(path);
      expect(await look(dataDir, (sql) => openedBy(sql, before, after))).toEqual({
        opened: [0, 2],
        lost: 0,
      });
      await stop(gateway);
    },
    TIMEOUT_MS,
  );

  test.skipIf(!IS_THOROUGH)(
    "is replaced beside a gateway once that was restarted, which goes on all the while",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      const before = keyIn(path);
      const unknowing = await startAndReplay(dataDir, key, ["one"]);
      const refused = await rotate(dataDir);
      expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
      expect(refused.stderr).toContain("restart each with both keys");
      expect(keyIn(path).equals(before)).toBe(true);
      const next = keyIn(nextPath);
      expect(modeOf(nextPath)).toBe(0o600);
      expect(await call(unknowing.baseUrl, key, "three")).toBe(false);
      await stop(unknowing.gateway);
      const { gateway, baseUrl } = await startAndReplay(dataDir, key, ["one", "three"]);
      expect(await call(baseUrl, key, "four")).toBe(false);
      expect((await rotate(dataDir)).exitCode).toBe(0);
      for (const name of ["one", "three", "four"]) {
        expect(await call(baseUrl, key, name)).toBe(true);
      }
      expect(await call(baseUrl, key, "five")).toBe(false);
      expect(await look(dataDir, (sql) => openedBy(sql, before, next))).toEqual({
        opened: [0, 5],
        lost: 0,
      });
      expect(keyIn(path).equals(next)).toBe(true);
      expect(existsSync(nextPath)).toBe(false);
      await stop(gateway);
      await stop((await startAndReplay(dataDir, key, ["one", "three", "four", "five"])).gateway);
    },
    TIMEOUT_MS,
  );
});

describe("a rotation of a generated key that is broken off loses nothing", () => {
  test(
    "in the middle, with gateway, rotation and server killed: it starts, and is brought to its end",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      writeFileSync(nextPath, `${base64(newKey())}\n`, { mode: 0o600 });
      const [before, next] = [keyIn(path), keyIn(nextPath)];
      const { gateway } = await startAndReplay(dataDir, key, ["one"]);
      const count = 2 * BATCH_ROWS;
      await look(dataDir, async (sql) => {
        const hooks = await addSealedWebhooks(sql, before, count);
        const holder = await sql.reserve();
        await holder`BEGIN`;
        await holder`SELECT 1 FROM webhooks WHERE id = ${hooks[count - 1]!} FOR UPDATE`;
        const rotation = spawnCli({ DATA_DIR: dataDir }, "master-key", "rotate");
        await until("a batch is sealed anew", async () => {
          const { opened } = await openedBy(sql, next);
          return opened[0]! > 0;
        });
        rotation.kill("SIGKILL");
        await rotation.exited;
        gateway.signal("SIGKILL");
        await gateway.exited;
        killServer(dataDir);
      });
      expect(keyIn(path).equals(before)).toBe(true);
      const again = await startAndReplay(dataDir, key, ["one"]);
      expect(again.gateway.stdout()).toContain("the master key is being replaced");
      const { opened, lost } = await look(dataDir, (sql) => openedBy(sql, before, next));
      expect(lost).toBe(0);
      expect(opened[0]).toBeGreaterThan(0);
      expect(opened[1]).toBeGreaterThan(0);
      await stop(again.gateway);
      const run = await rotate(dataDir);
      expect(JSON.parse(run.stdout)).toMatchObject({ state: "resumed", unreadable: 0 });
      expect(keyIn(path).equals(next)).toBe(true);
      expect(existsSync(nextPath)).toBe(false);
      const { gateway: last } = await startAndReplay(dataDir, key, ["one"]);
      const ended = await look(dataDir, (sql) => openedBy(sql, before, next));
      expect(ended).toEqual({ opened: [0, opened[0]! + opened[1]!], lost: 0 });
      await stop(last);
    },
    TIMEOUT_MS,
  );

  test(
    "between the database's end of it and the file's: it starts, and another run only renames",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      const before = keyIn(path);
      expect((await rotate(dataDir)).exitCode).toBe(0);
      const next = keyIn(path);
      // As it stood before the rename.
      renameSync(path, nextPath);
      writeFileSync(path, `${base64(before)}\n`, { mode: 0o600 });
      const { gateway } = await startAndReplay(dataDir, key, ["one"]);
      expect(gateway.stdout()).toContain("the master key is being replaced");
      await stop(gateway);
      const run = await rotate(dataDir);
      expect(JSON.parse(run.stdout)).toEqual({ state: "done", resealed: 0, unreadable: 0 });
      expect(keyIn(path).equals(next)).toBe(true);
      expect(existsSync(nextPath)).toBe(false);
      await stop((await startAndReplay(dataDir, key, ["one"])).gateway);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(redis === undefined || !IS_THOROUGH)("workers", () => {
  test(
    "know both keys of a rotation, those too that are started again after it",
    async () => {
      const { dataDir, path, nextPath, key } = await usedFolder();
      writeFileSync(nextPath, `${base64(newKey())}\n`, { mode: 0o600 });
      const next = keyIn(nextPath);
      const gateway = grounds.launch({
        dataDir,
        environment: { REDIS_URL: redis!.url },
        parameters: ["--workers", "2"],
      });
      const baseUrl = await gateway.listening;
      expect(gateway.stdout()).toContain("the master key is being replaced");
      expect(await call(baseUrl, key, "three")).toBe(false);
      expect((await rotate(dataDir)).exitCode).toBe(0);
      expect(keyIn(path).equals(next)).toBe(true);
      const workers = workersOf(gateway);
      expect(workers).toHaveLength(2);
      for (const pid of workers) process.kill(pid, "SIGKILL");
      await until("others serve in their place", () =>
        call(baseUrl, key, "one").catch(() => false),
      );
      expect(await call(baseUrl, key, "three")).toBe(true);
      expect(gateway.stderr()).toBe("");
      await stop(gateway);
    },
    TIMEOUT_MS,
  );
});
