import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { appliedMigrations, MIGRATION_LOCK, migrate, tablesAfter } from "../../db/migrate.ts";
import { holdFileRemovals } from "../../db/queries/file-backups.ts";
import { claimRemovals } from "../../db/queries/files.ts";
import { findTable, isRestoreIncomplete } from "../../db/queries/restore-mark.ts";
import { LEFT_OUT } from "../../db/queries/restored-rows.ts";
import { FORMAT, PIECE_BYTES } from "../../src/main/backup/archive.ts";
import { ArchiveReader, verifyArchive } from "../../src/main/backup/archive-reader.ts";
import { ArchiveWriter } from "../../src/main/backup/archive-writer.ts";
import { runCliHere, spawnCli } from "../cli/cli-runs.ts";
import { createEmptyDatabase, type TestDatabase } from "../support/database.ts";
import {
  countFiles,
  type FilesGateway,
  s3Environment,
  startFilesGateway,
  uploaded,
} from "../support/files-gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { startS3Server } from "../support/s3-server.ts";
import { until } from "../support/until.ts";

/*
 * What a backup and a restore refuse, and what is left where they are broken off.
 */

const TIMEOUT_MS = 120_000;
const FILE_BYTES = 3_000_000;
const folder = mkdtempSync(join(tmpdir(), "gateway-backup-"));
const archive = join(folder, "small.tar");
const GATEWAY_MASTER_KEY = Buffer.from(MASTER_KEY).toString("base64");

let source: FilesGateway;
const targets: TestDatabase[] = [];

/** An empty database, and settings for a restore into it. */
async function openTarget(): Promise<{ settings: Record<string, string>; sql: Database }> {
  const target = await createEmptyDatabase();
  const sql = connectDatabase(target, { poolSize: 1, applicationName: "test" });
  targets.push({
    url: target.url,
    async drop() {
      await sql.end({ timeout: 1 });
      await target.drop();
    },
  });
  const DATA_DIR = join(folder, `data-${targets.length}`);
  return { settings: { DATABASE_URL: target.url, DATA_DIR, GATEWAY_MASTER_KEY }, sql };
}

async function waitsForLock(sql: Database): Promise<boolean> {
  const rows = await sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'gateway-backup' AND wait_event_type = 'Lock'`;
  return rows.length > 0;
}

function sourceSettings(): Record<string, string> {
  return { DATABASE_URL: source.databaseUrl, DATA_DIR: source.dataDir };
}

/** Fails where the refused restore has written anything. */
async function expectRefused(
  settings: Record<string, string>,
  sql: Database,
  reason: RegExp,
  path = archive,
): Promise<void> {
  const run = await runCliHere(settings, "restore", path);
  expect(run.exitCode).toBe(1);
  expect(run.stderr).toMatch(reason);
  expect(await findTable(sql)).toBeUndefined();
  expect(await isRestoreIncomplete(sql)).toBeFalse();
  expect(await countFiles(settings.DATA_DIR!)).toBe(0);
}

beforeAll(async () => {
  source = await startFilesGateway();
  const content = new Uint8Array(FILE_BYTES);
  for (let at = 0; at < FILE_BYTES; at += 60_000) {
    crypto.getRandomValues(content.subarray(at, at + 60_000));
  }
  await uploaded(source, "user_data", content);
  const made = await runCliHere(sourceSettings(), "backup", archive);
  expect(made.exitCode).toBe(0);
}, TIMEOUT_MS);
afterAll(async () => {
  await Promise.all(targets.map((target) => target.drop()));
  await source?.stop();
  rmSync(folder, { recursive: true, force: true });
}, TIMEOUT_MS);

test("an archive that is cut off anywhere, or has another byte anywhere, is refused before anything is written", async () => {
  const whole = await readFile(archive);
  const other = join(folder, "other.tar");
  const places = [0, 1, 511, 512, 513, whole.length - 100, whole.length - 2, whole.length - 1];
  for (let n = 1; n < 40; n++) places.push(Math.floor((whole.length * n) / 40) + n);
  for (const place of places) {
    await writeFile(other, whole.subarray(0, place));
    await expect(verifyArchive(other)).rejects.toThrow("not a complete backup");
    whole[place]! ^= 1;
    await writeFile(other, whole);
    whole[place]! ^= 1;
    await expect(verifyArchive(other)).rejects.toThrow("not a complete backup");
  }
  const { settings, sql } = await openTarget();
  await writeFile(other, whole.subarray(0, whole.length - 1));
  await expectRefused(settings, sql, /not a complete backup.*Nothing was written/, other);
  rmSync(other);
}, 60_000);

test("another master key, and none, are refused before anything is written", async () => {
  const { settings, sql } = await openTarget();
  const wrong = { ...settings, GATEWAY_MASTER_KEY: Buffer.alloc(32, 1).toString("base64") };
  await expectRefused(wrong, sql, /GATEWAY_MASTER_KEY is not the master key/);
  const { GATEWAY_MASTER_KEY: _, ...none } = settings;
  await expectRefused(none, sql, /GATEWAY_MASTER_KEY/);
});

test("a database that is not empty, and a folder with files, are refused and stay as they are", async () => {
  const { settings, sql } = await openTarget();
  await sql`CREATE TABLE mine (id int)`;
  const run = await runCliHere(settings, "restore", archive);
  expect(run).toMatchObject({ exitCode: 1 });
  expect(run.stderr).toContain("the database is not empty (it has mine)");
  expect(await isRestoreIncomplete(sql)).toBeFalse();
  await sql`DROP TABLE mine`;
  const beside = { ...settings, DATA_DIR: source.dataDir };
  const refused = await runCliHere(beside, "restore", archive);
  expect(refused.stderr).toContain("the storage already has files");
  expect(await findTable(sql)).toBeUndefined();
  expect(await countFiles(source.dataDir)).toBe(1);
});

test("a restore that is killed leaves a database on which no gateway starts, and which the next restore fills", async () => {
  const { settings, sql } = await openTarget();
  const holder = connectDatabase(
    { url: settings.DATABASE_URL! },
    { poolSize: 1, applicationName: "holder" },
  );
  for (const isAtItsEnd of [false, true]) {
    const child = spawnCli(settings, "restore", archive);
    await until("the restore has begun", () => isRestoreIncomplete(sql), 30_000);
    // The last statement of a restore waits for this.
    await holder`BEGIN`;
    await holder`LOCK TABLE restore_under_way IN ACCESS SHARE MODE`;
    if (isAtItsEnd) await until("all is written", () => waitsForLock(sql), 30_000);
    child.kill("SIGKILL");
    await child.exited;
    await holder`ROLLBACK`;
    await until("its session has ended", async () => {
      const rows = await sql`SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'gateway-backup'`;
      return rows.length === 0;
    });
    expect(await isRestoreIncomplete(sql)).toBeTrue();
    expect(await findTable(sql)).toBeUndefined();
    await expect(migrate({ url: settings.DATABASE_URL! })).rejects.toThrow("was interrupted");
  }
  await holder.end();
  expect((await runCliHere(settings, "doctor")).stdout).toContain("was interrupted");
  // With files of this one, no other is restored.
  const other = join(folder, "later.tar");
  expect(await runCliHere(sourceSettings(), "backup", other)).toMatchObject({ exitCode: 0 });
  const refused = await runCliHere(settings, "restore", other);
  expect(refused).toMatchObject({ exitCode: 1 });
  expect(refused.stderr).toContain("a restore of another backup");
  expect(await isRestoreIncomplete(sql)).toBeTrue();
  expect(await runCliHere(settings, "restore", archive)).toMatchObject({ exitCode: 0 });
  expect(await isRestoreIncomplete(sql)).toBeFalse();
  await migrate({ url: settings.DATABASE_URL! });
  const [row] = await sql`SELECT count(*)::int AS files FROM files`;
  expect(row!.files).toBe(1);
  expect(await countFiles(settings.DATA_DIR!)).toBe(1);
}, 90_000);

test("a backup that is killed leaves nothing under its name, and the next one runs", async () => {
  const path = join(folder, "killed.tar");
  await source.sql.begin(async (holder) => {
    await holder`LOCK TABLE vector_store_vectors IN ACCESS EXCLUSIVE MODE`;
    const backup = spawnCli(sourceSettings(), "backup", path);
    await until(
      "the backup is in the middle of the tables",
      () => waitsForLock(source.sql),
      30_000,
    );
    backup.kill("SIGKILL");
    await backup.exited;
  });
  expect(readdirSync(folder).some((name) => /^killed\.tar\..+\.part$/.test(name))).toBeTrue();
  expect(existsSync(path)).toBeFalse();
  expect(await runCliHere(sourceSettings(), "backup", path)).toMatchObject({ exitCode: 0 });
  await verifyArchive(path);
}, 60_000);

test("stored bytes stay while a backup copies files, and a second backup is refused", async () => {
  const backup = connectDatabase(
    { url: source.databaseUrl },
    { poolSize: 1, applicationName: "test" },
  );
  await source.sql`INSERT INTO file_removals (storage_key, due_at)
    VALUES ('obj_removed_later', now() - interval '1 day')`;
  try {
    expect(await holdFileRemovals(backup)).toBeTrue();
    expect(await claimRemovals(source.sql, 10)).toEqual([]);
    const second = await runCliHere(sourceSettings(), "backup", join(folder, "second.tar"));
    expect(second.stderr).toContain("another backup of this database is running");
    expect(readdirSync(folder).some((name) => name.startsWith("second.tar"))).toBeFalse();
  } finally {
    await backup.end();
  }
  await until("removals go on", async () => {
    const [row] = await source.sql`SELECT attempts FROM file_removals
      WHERE storage_key = 'obj_removed_later'`;
    return (
      row === undefined || row.attempts > 0 || (await claimRemovals(source.sql, 10)).length > 0
    );
  });
}, 60_000);

test("a quiet copy sends nothing, pays nothing and runs nothing", async () => {
  const organization = source.organizationId;
  await source.sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
    VALUES ('whk_quiet', ${organization}, 'https://example.com', '{*}', true, '', now())`;
  await source.sql`INSERT INTO webhook_queues (webhook_id) VALUES ('whk_quiet')`;
  await source.sql`INSERT INTO outbox (event_id, organization_id, type, data)
    VALUES ('evt_quiet', ${organization}, 'key.updated', '{}')`;
  await source.sql`INSERT INTO auto_replenish (organization_id, is_enabled, amount_nano, due_at)
    VALUES (${organization}, true, 1, now() + interval '1 hour')`;
  await source.sql`UPDATE accounts SET replenish_below_nano = 1 WHERE organization_id = ${organization}`;
  await source.sql`INSERT INTO batches
      (id, organization_id, key_id, endpoint, input_file, status, created_at, expires_at, due_at)
    VALUES ('batch_quiet', ${organization}, 'key', '/v1/embeddings', 'file', 'in_progress', now(),
      now() + interval '1 day', now() + interval '1 hour')`;
  const path = join(folder, "quiet.tar");
  expect(await runCliHere(sourceSettings(), "backup", path)).toMatchObject({ exitCode: 0 });
  const { settings, sql } = await openTarget();
  expect(await runCliHere(settings, "restore", "--quiet", path)).toMatchObject({ exitCode: 0 });
  const [state] = await sql`SELECT
    (SELECT count(*) FROM webhooks WHERE enabled)::int AS webhooks,
    (SELECT count(*) FROM webhook_queues WHERE due_at IS NOT NULL)::int AS queues,
    (SELECT count(*) FROM unnumbered_events)::int AS events,
    (SELECT array_agg(DISTINCT status) FROM deliveries) AS deliveries,
    (SELECT count(*) FROM auto_replenish WHERE is_enabled OR due_at IS NOT NULL)::int AS replenishments,
    (SELECT count(*) FROM accounts WHERE replenish_below_nano IS NOT NULL)::int AS thresholds,
    (SELECT count(*) FROM batches WHERE due_at IS NOT NULL)::int AS batches`;
  expect(state).toMatchObject({
    webhooks: 0,
    queues: 0,
    events: 0,
    replenishments: 0,
    thresholds: 0,
    batches: 0,
  });
  for (const status of state!.deliveries ?? []) expect(status).not.toBe("pending");
}, 60_000);

test("what is left out exists, and no table that is copied refers to it", async () => {
  const { sql } = source;
  const names = Object.keys(LEFT_OUT);
  const tables = await sql<{ name: string; refers: number }[]>`
    SELECT c.relname::text AS name, (SELECT count(*) FROM pg_constraint f
      JOIN pg_class r ON r.oid = f.conrelid
      WHERE f.confrelid = c.oid AND f.contype = 'f'
        AND r.relname <> ALL (${sql.array(names)}::text[]))::int AS refers
    FROM pg_class c WHERE c.relkind = 'r' AND c.relname = ANY (${sql.array(names)}::text[])`;
  expect(tables.map(({ name }) => name).sort()).toEqual(names.sort());
  for (const { name, refers } of tables) expect({ name, refers }).toEqual({ name, refers: 0 });
});

test("every table of the database is copied or left out by name", async () => {
  const { sql } = source;
  const tables = await sql<{ name: string }[]>`SELECT relname::text AS name FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace ORDER BY relname`;
  const known = await tablesAfter((await appliedMigrations(sql)).at(-1)!.createdAtMs);
  expect(tables.map(({ name }) => name)).toEqual(known.sort());
});

test("a start with nothing to migrate does not wait for a backup", async () => {
  const backup = connectDatabase(
    { url: source.databaseUrl },
    { poolSize: 1, applicationName: "test" },
  );
  try {
    await backup`SELECT pg_advisory_lock_shared(${MIGRATION_LOCK})`;
    await migrate({ url: source.databaseUrl });
  } finally {
    await backup.end();
  }
}, 60_000);

test("a piece that unpacks to more than a piece holds is refused", async () => {
  const path = join(folder, "bomb.tar");
  const writer = await ArchiveWriter.create(path);
  await writer.addJson("head.json", { format: FORMAT });
  const bomb = await Bun.zstdCompress(new Uint8Array(64 * PIECE_BYTES));
  expect(bomb.byteLength).toBeLessThan(PIECE_BYTES);
  await writer.add("tables/files/000000.zst", bomb);
  await writer.finish();
  const reader = new ArchiveReader(path, (await verifyArchive(path)).tarBytes);
  try {
    await reader.head();
    const { value } = await reader.items().next();
    await expect(value!.bytes().next()).rejects.toThrow("differs from the written data");
  } finally {
    await reader.close();
  }
});

test("a role that owns its database and has no other right restores", async () => {
  const { settings, sql } = await openTarget();
  const url = new URL(settings.DATABASE_URL!);
  const [name, role] = [url.pathname.slice(1), `role_${crypto.randomUUID().slice(0, 8)}`];
  await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'a-password'`);
  await sql.unsafe(`ALTER DATABASE ${name} OWNER TO ${role}`);
  url.username = role;
  url.password = "a-password";
  try {
    const own = { ...settings, DATABASE_URL: url.href };
    expect(await runCliHere(own, "restore", archive)).toMatchObject({ exitCode: 0 });
    const [row] = await sql`SELECT count(*)::int AS files FROM files`;
    expect(row!.files).toBe(1);
  } finally {
    await sql.unsafe(`REASSIGN OWNED BY ${role} TO current_user`);
    await sql.unsafe(`DROP OWNED BY ${role}`);
    await sql.unsafe(`DROP ROLE ${role}`);
  }
}, 60_000);

test("files move between a folder and a bucket; a bucket with files is refused", async () => {
  const s3 = startS3Server();
  try {
    const bucket = await openTarget();
    const settings = { ...bucket.settings, ...s3Environment(s3) };
    expect(await runCliHere(settings, "restore", archive)).toMatchObject({ exitCode: 0 });
    expect(s3.bucket.objects.size).toBe(1);
    const back = join(folder, "bucket.tar");
    // Away for longer than a request is sent again.
    let failures = 4;
    s3.faults.push({
      matches: (method, url) => method === "GET" && url.pathname.includes("/files/"),
      answer: () => (failures-- > 0 ? new Response("later", { status: 503 }) : undefined),
    });
    expect(await runCliHere(settings, "backup", back)).toMatchObject({ exitCode: 0 });
    const other = await openTarget();
    const second = { ...other.settings, ...s3Environment(s3) };
    const refused = await runCliHere(second, "restore", back);
    expect(refused.stderr).toContain("the storage already has files");
    expect(await runCliHere(other.settings, "restore", back)).toMatchObject({ exitCode: 0 });
    expect(await countFiles(other.settings.DATA_DIR!)).toBe(1);
    const [mark] = await other.sql`SELECT id FROM file_stores WHERE kind = 'folder'`;
    const path = join(other.settings.DATA_DIR!, "files", ".storage-id");
    expect((await readFile(path, "utf8")).trim()).toBe(mark!.id);
  } finally {
    await s3.stop();
  }
}, 60_000);
