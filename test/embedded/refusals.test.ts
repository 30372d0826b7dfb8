import { afterAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { temporaryFolders } from "./owner-process.ts";

const TIMEOUT_MS = 60_000;
const folders = temporaryFolders();
afterAll(() => folders.remove());

const log = () => {};

test("a cluster of another major version is refused with the way out, and left as it is", async () => {
  const dataDir = folders.next();
  mkdirSync(join(dataDir, "postgres"), { recursive: true });
  writeFileSync(join(dataDir, "postgres", "PG_VERSION"), "16\n");
  const start = startEmbeddedPostgres({ dataDir, log });
  await expect(start).rejects.toThrow(
    /^\S+ is of Postgres 16, but this gateway contains Postgres \d+: dump it with the version that created it and restore the dump into a new folder, or set DATA_DIR to another folder$/,
  );
  expect(readFileSync(join(dataDir, "postgres", "PG_VERSION"), "utf8")).toBe("16\n");
});

test("a folder with something else in the cluster's place is refused, and left as it is", async () => {
  const dataDir = folders.next();
  mkdirSync(join(dataDir, "postgres"), { recursive: true });
  writeFileSync(join(dataDir, "postgres", "notes.txt"), "mine");
  const start = startEmbeddedPostgres({ dataDir, log });
  await expect(start).rejects.toThrow("is not a Postgres cluster");
  expect(readFileSync(join(dataDir, "postgres", "notes.txt"), "utf8")).toBe("mine");
});

test(
  "a server that does not start says why in one line, and the folder stays free",
  async () => {
    const dataDir = folders.next();
    const start = startEmbeddedPostgres({ dataDir, log, settings: { no_such_setting: "1" } });
    await expect(start).rejects.toThrow(
      /^the embedded Postgres did not start: unrecognized configuration parameter "no_such_setting" \(.*\)$/,
    );
    const server = await startEmbeddedPostgres({ dataDir, log });
    await server.stop();
  },
  TIMEOUT_MS,
);

test(
  "a missing password file is named",
  async () => {
    const dataDir = folders.next();
    const first = await startEmbeddedPostgres({ dataDir, log, transport: "tcp" });
    await first.stop();
    rmSync(join(dataDir, "postgres.password"));
    const start = startEmbeddedPostgres({ dataDir, log, transport: "tcp" });
    await expect(start).rejects.toThrow("postgres.password is missing");
  },
  TIMEOUT_MS,
);
