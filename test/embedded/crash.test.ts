import { afterAll, expect, test } from "bun:test";
import { chownSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findRunningEmbeddedPostgres, startEmbeddedPostgres } from "../../db/embedded.ts";
import { until } from "../support/until.ts";
import {
  connectTo,
  killOwner,
  query,
  serverPid,
  startOwner,
  stopOwner,
  temporaryFolders,
} from "./owner-process.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

const log = () => {};

for (const transport of ["unix", "tcp"] as const) {
  test(
    `over ${transport}, a start after kill -9 of the owner adopts the server that still runs`,
    async () => {
      const dataDir = await folders.nextWithDatabase();
      const owner = await startOwner(dataDir, { transport });
      await query(owner.url, "CREATE TABLE kept AS SELECT 42 AS value");
      const pid = serverPid(dataDir);
      await killOwner(owner);
      const server = await startEmbeddedPostgres({ dataDir, log, transport });
      expect(serverPid(dataDir)).toBe(pid);
      expect(await query(server.url, "SELECT value FROM kept")).toEqual([{ value: 42 }]);
      await server.stop();
      expect(findRunningEmbeddedPostgres(dataDir)).toBeUndefined();
    },
    TIMEOUT_MS,
  );
}

test(
  "a start after kill -9 of owner and server has all that was committed",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const owner = await startOwner(dataDir);
    await query(owner.url, "CREATE TABLE kept AS SELECT 42 AS value");
    process.kill(serverPid(dataDir), "SIGKILL");
    await killOwner(owner);
    const server = await startEmbeddedPostgres({ dataDir, log });
    expect(await query(server.url, "SELECT value FROM kept")).toEqual([{ value: 42 }]);
    await server.stop();
  },
  TIMEOUT_MS,
);

test(
  "a postmaster.pid whose number another process has by now does not stop a start",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const first = await startEmbeddedPostgres({ dataDir, log });
    await first.stop();
    const { uid, gid } = statSync(join(dataDir, "postgres"));
    const asServer = process.getuid?.() === 0 ? { uid, gid } : {};
    const stranger = Bun.spawn(["sleep", "60"], asServer);
    const path = join(dataDir, "postgres", "postmaster.pid");
    const socketDir = join(dataDir, "postgres-socket");
    const lines = [
      stranger.pid,
      join(dataDir, "postgres"),
      1,
      5432,
      socketDir,
      "",
      "",
      "ready",
      "",
    ];
    writeFileSync(path, lines.join("\n"));
    writeFileSync(join(socketDir, ".s.PGSQL.5432.lock"), lines.join("\n"));
    if (process.getuid?.() === 0) chownSync(path, uid, gid);
    const second = await startEmbeddedPostgres({ dataDir, log });
    expect(await query(second.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    expect(stranger.exitCode).toBeNull();
    await second.stop();
    stranger.kill();
  },
  TIMEOUT_MS,
);

test(
  "an empty postmaster.pid does not stop a start",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const first = await startEmbeddedPostgres({ dataDir, log });
    await first.stop();
    writeFileSync(join(dataDir, "postgres", "postmaster.pid"), "");
    const second = await startEmbeddedPostgres({ dataDir, log });
    await second.stop();
  },
  TIMEOUT_MS,
);

test(
  "what the dead owner's connections had not committed never takes effect after the adoption",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const owner = await startOwner(dataDir);
    await query(owner.url, "CREATE TABLE ledger AS SELECT 0 AS value");
    const blocker = connectTo(owner.url);
    const late = connectTo(owner.url);
    await blocker.unsafe("BEGIN; UPDATE ledger SET value = 1");
    const update = late.unsafe("UPDATE ledger SET value = value + 10").execute();
    const lateUpdate = update.then(
      () => "took effect",
      () => "broken off",
    );
    await until("it waits for the lock", async () => {
      const waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
      return (await query(owner.url, waiting)).length === 1;
    });
    await killOwner(owner);
    const server = await startEmbeddedPostgres({ dataDir, log });
    expect(await lateUpdate).toBe("broken off");
    expect(await query(server.url, "SELECT value FROM ledger")).toEqual([{ value: 0 }]);
    await Promise.all([blocker.end({ timeout: 0 }), late.end({ timeout: 0 })]);
    await server.stop();
  },
  TIMEOUT_MS,
);

test(
  "a server left behind with other settings is restarted with ours",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const owner = await startOwner(dataDir, { settings: { max_connections: "31" } });
    await killOwner(owner);
    const server = await startEmbeddedPostgres({ dataDir, log });
    expect(await query(server.url, "SHOW max_connections")).toEqual([{ max_connections: "100" }]);
    await server.stop();
  },
  TIMEOUT_MS,
);

test("a server left behind that no longer answers is replaced", async () => {
  const dataDir = await folders.nextWithDatabase();
  const owner = await startOwner(dataDir);
  await query(owner.url, "CREATE TABLE kept AS SELECT 42 AS value");
  process.kill(serverPid(dataDir), "SIGSTOP");
  await killOwner(owner);
  const server = await startEmbeddedPostgres({ dataDir, log });
  expect(await query(server.url, "SELECT value FROM kept")).toEqual([{ value: 42 }]);
  await server.stop();
}, 60_000);

test(
  "a first start that died half-way leaves nothing that a later one stumbles over",
  async () => {
    const dataDir = folders.next();
    mkdirSync(join(dataDir, "postgres.new-left"), { recursive: true });
    writeFileSync(join(dataDir, "postgres.new-left", "PG_VERSION"), "18\n");
    const server = await startEmbeddedPostgres({ dataDir, log });
    expect(await query(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    await server.stop();
  },
  TIMEOUT_MS,
);

test(
  "a server killed under a living owner comes back at the same URL",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    let restarted = () => {};
    const noticed = new Promise<void>((resolve) => {
      restarted = resolve;
    });
    const server = await startEmbeddedPostgres({ dataDir, log: restarted });
    process.kill(serverPid(dataDir), "SIGKILL");
    await noticed;
    const answers = async (): Promise<unknown> =>
      await query(server.url, "SELECT 1 AS one").catch(() => Bun.sleep(20).then(answers));
    expect(await answers()).toEqual([{ one: 1 }]);
    await server.stop();
  },
  TIMEOUT_MS,
);

test(
  "Ctrl-C, which reaches the whole process group, does not take the server from a draining owner",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const owner = await startOwner(dataDir);
    process.kill(-owner.child.pid, "SIGINT");
    await query(owner.url, "CREATE TABLE settled AS SELECT 42 AS value");
    expect(await query(owner.url, "SELECT value FROM settled")).toEqual([{ value: 42 }]);
    expect(owner.child.exitCode).toBeNull();
    await stopOwner(owner);
    expect(findRunningEmbeddedPostgres(dataDir)).toBeUndefined();
  },
  TIMEOUT_MS,
);
