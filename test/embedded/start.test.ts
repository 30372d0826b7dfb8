import { afterAll, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { query, temporaryFolders } from "./owner-process.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

const log = () => {};

test(
  "a first start makes a durable database in UTF-8, with UTC and an order that no system decides",
  async () => {
    const server = await startEmbeddedPostgres({ dataDir: folders.next(), log });
    try {
      const rows = await query(
        server.url,
        `SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit,
           current_setting('full_page_writes') AS pages, current_setting('server_encoding') AS encoding,
           current_setting('timezone') AS timezone, lower('É') AS lowered, 'Z' < 'a' AS by_code`,
      );
      expect(rows).toEqual([
        {
          fsync: "on",
          commit: "on",
          pages: "on",
          encoding: "UTF8",
          timezone: "UTC",
          lowered: "é",
          by_code: true,
        },
      ]);
    } finally {
      await server.stop();
    }
  },
  TIMEOUT_MS,
);

test(
  "a later start finds the data again",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const first = await startEmbeddedPostgres({ dataDir, log });
    await query(first.url, "CREATE TABLE kept AS SELECT 42 AS value");
    await first.stop();
    const second = await startEmbeddedPostgres({ dataDir, log });
    const rows = await query(second.url, "SELECT value FROM kept");
    await second.stop();
    expect(rows).toEqual([{ value: 42 }]);
  },
  TIMEOUT_MS,
);

test(
  "after stop nothing answers and the folder is free",
  async () => {
    const dataDir = await folders.nextWithDatabase();
    const first = await startEmbeddedPostgres({ dataDir, log });
    await first.stop();
    await expect(query(first.url, "SELECT 1")).rejects.toThrow();
    const second = await startEmbeddedPostgres({ dataDir, log });
    await second.stop();
  },
  TIMEOUT_MS,
);

test(
  "stop does not wait for connections that are still open",
  async () => {
    const server = await startEmbeddedPostgres({ dataDir: await folders.nextWithDatabase(), log });
    const sleeping = query(server.url, "SELECT pg_sleep(600)").then(
      () => "ended",
      () => "broken off",
    );
    const running =
      "SELECT count(*)::int AS count FROM pg_stat_activity WHERE query ~ '^SELECT pg_sl'";
    while ((await query(server.url, running))[0]?.count !== 1) await Bun.sleep(5);
    await server.stop();
    expect(await sleeping).toBe("broken off");
  },
  TIMEOUT_MS,
);

test(
  "only the server's own user reaches the socket and the files",
  async () => {
    const dataDir = folders.next();
    const server = await startEmbeddedPostgres({ dataDir, log });
    try {
      for (const name of ["postgres", "postgres-socket", "postgres.log", "lock.sqlite"]) {
        expect([name, statSync(join(dataDir, name)).mode & 0o077]).toEqual([name, 0]);
      }
      expect(await query(server.url, "SHOW listen_addresses")).toEqual([{ listen_addresses: "" }]);
    } finally {
      await server.stop();
    }
  },
  TIMEOUT_MS,
);

test(
  "a data folder whose path is too long for a socket works, with quotes and spaces in it too",
  async () => {
    const dataDir = join(folders.next(), `a "quoted", spaced\\ 'name' ${"x".repeat(100)}`);
    const server = await startEmbeddedPostgres({ dataDir, log });
    try {
      expect(await query(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    } finally {
      await server.stop();
    }
  },
  TIMEOUT_MS,
);

test(
  "over TCP nobody gets in without the password",
  async () => {
    const dataDir = folders.next();
    const server = await startEmbeddedPostgres({ dataDir, log, transport: "tcp" });
    try {
      expect(await query(server.url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
      const wrong = new URL(server.url);
      wrong.password = "wrong";
      await expect(query(wrong.href, "SELECT 1")).rejects.toThrow("password authentication failed");
      expect(statSync(join(dataDir, "postgres.password")).mode & 0o077).toBe(0);
    } finally {
      await server.stop();
    }
  },
  TIMEOUT_MS,
);
