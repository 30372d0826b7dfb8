import { afterAll, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { lockDataFolder } from "../../db/data-folder-lock.ts";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import {
  firstLine,
  killOwner,
  query,
  startOwner,
  stopOwner,
  temporaryFolders,
} from "./owner-process.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

test(
  "a second process on the same folder is refused in one line that names the first, which goes on",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const first = await startOwner(dataDir);
    const second = await startOwner(dataDir);
    expect(second.refusal).toBe(
      `the data folder ${dataDir} is in use by process ${first.child.pid}: stop it, or set DATA_DIR to another folder`,
    );
    expect(await query(first.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    await stopOwner(first);
  },
  TIMEOUT_MS,
);

test(
  "of two first starts at the same time one wins and the other is refused",
  async () => {
    const dataDir = folders.next();
    const owners = await Promise.all([startOwner(dataDir), startOwner(dataDir)]);
    const winners = owners.filter((owner) => owner.url !== undefined);
    const refusals = owners.flatMap((owner) => owner.refusal ?? []);
    expect(winners).toHaveLength(1);
    expect(refusals).toEqual([expect.stringContaining("is in use by")]);
    expect(await query(winners[0]?.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    await Promise.all(winners.map(stopOwner));
  },
  TIMEOUT_MS,
);

test(
  "of two processes that claim a folder in the same instant exactly one has it",
  async () => {
    // Cold processes: the way to the lock is long enough then for the two to meet on it.
    for (let round = 1; round <= 12; round += 1) {
      const dataDir = folders.next();
      mkdirSync(dataDir);
      const atMs = Date.now() + 120;
      const racers = [startRacer(dataDir, atMs), startRacer(dataDir, atMs)];
      const said = await Promise.all(racers.map((racer) => firstLine(racer.stdout)));
      for (const racer of racers) racer.stdin.end();
      expect(said.toSorted()).toEqual(["refused", "won"]);
    }
  },
  TIMEOUT_MS,
);

test(
  "the lock is free the moment its holder is killed, although the holder's server still runs",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const owner = await startOwner(dataDir);
    expect(() => lockDataFolder(dataDir, 0)).toThrow("is in use by");
    await killOwner(owner);
    const lock = lockDataFolder(dataDir);
    expect(findRunningEmbeddedPostgres(dataDir)).toBe(owner.url);
    lock.release();
  },
  TIMEOUT_MS,
);

test("a lock holds against its own process, and until its release", () => {
  const dataDir = folders.next();
  mkdirSync(dataDir);
  const first = lockDataFolder(dataDir);
  expect(() => lockDataFolder(dataDir, 0)).toThrow("is in use by");
  expect(() => lockDataFolder(dataDir, 0)).toThrow("is in use by");
  first.release();
  const second = lockDataFolder(dataDir);
  first.release();
  expect(() => lockDataFolder(dataDir, 0)).toThrow("is in use by");
  second.release();
});

test(
  "a command beside a running gateway finds its server",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    expect(findRunningEmbeddedPostgres(dataDir)).toBeUndefined();
    const owner = await startOwner(dataDir);
    const url = findRunningEmbeddedPostgres(dataDir);
    expect(await query(url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    await stopOwner(owner);
    expect(findRunningEmbeddedPostgres(dataDir)).toBeUndefined();
  },
  TIMEOUT_MS,
);

function startRacer(dataDir: string, atMs: number) {
  const script = join(import.meta.dir, "lock-racer.ts");
  return Bun.spawn([process.execPath, script, dataDir, String(atMs)], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
}
