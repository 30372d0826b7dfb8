import { type Database, type DatabaseTransaction, inOneSnapshot } from "../../../db/client.ts";
import { appliedMigrations, MIGRATION_LOCK, tablesAfter } from "../../../db/migrate.ts";
import { readServerVersion } from "../../../db/queries/database-server.ts";
import {
  holdFileRemovals,
  holdsFileRemovals,
  readStorageKeys,
} from "../../../db/queries/file-backups.ts";
import { readMasterKey } from "../../../db/queries/master-key.ts";
import { LEFT_OUT } from "../../../db/queries/restored-rows.ts";
import {
  copyOut,
  readSequences,
  readTables,
  type SequenceState,
} from "../../../db/queries/table-copies.ts";
import { version } from "../../../package.json";
import { type Clock, sleep } from "../../lib/clock.ts";
import {
  type FileStorage,
  ObjectMissingError,
  StorageError,
} from "../../platform/storage/interface.ts";
import { type Ending, FORMAT, type Head, type Manifest, untilAborted } from "./archive.ts";
import type { ArchiveWriter } from "./archive-writer.ts";

export interface BackupOptions {
  /** A single session, which keeps locks and settings. */
  readonly sql: Database;
  /** Undefined if the bytes of files are left out. */
  readonly storage: FileStorage | undefined;
  readonly interrupted: AbortSignal;
  readonly clock: Clock;
  log(message: string): void;
}

export interface Backup {
  readonly tables: number;
  readonly tableBytes: number;
  readonly files: number;
  readonly fileBytes: number;
  /** Storage keys of files that are in the rows and missing in the storage. */
  readonly missingFiles: readonly string[];
}

const MAX_MISSING_LISTED = 1_000;
/**
 * Milliseconds between checks of the session. The checks also keep it open, because networks drop silent connections.
 */
const SESSION_CHECK_MS = 10_000;
/** Milliseconds for which an unavailable storage is retried, for example during its restart. */
const MAX_STORAGE_WAIT_MS = 60_000;
const STORAGE_RETRY_MS = 1_000;

/**
 * Writes a snapshot of all rows, and the bytes of the files that they name, while gateways run. Until the backup ends,
 * no gateway removes stored bytes, so every file of the snapshot is included. Migrations wait until then.
 */
export async function takeBackup(
  options: BackupOptions,
  archive: Pick<ArchiveWriter, "addJson" | "addItem">,
): Promise<Backup> {
  const { sql, storage, interrupted, clock, log } = options;
  await sql`SELECT pg_advisory_lock_shared(${MIGRATION_LOCK})`;
  if (!(await holdFileRemovals(sql))) throw new Error("another backup of this database is running");
  const rows = await inSnapshot(sql, (snapshot) => copyRows(options, snapshot, archive));
  if (rows.storageKeys.length > 0) {
    // Checked first, because in a wrong folder all files would seem to be lost.
    await storage!.assertOurs();
    log(`copying ${rows.storageKeys.length} files`);
  }
  const files = { count: 0, bytes: 0 };
  const missing: string[] = [];
  let checkedAtMs = 0;
  for (const key of rows.storageKeys) {
    if (interrupted.aborted) throw new Error("interrupted");
    if (clock.nowMs() - checkedAtMs > SESSION_CHECK_MS) {
      await assertStillHeld(sql);
      checkedAtMs = clock.nowMs();
    }
    const bytes = await openFile(options, storage!, key);
    const ending = bytes && (await archive.addItem(`files/${key}`, bytes));
    if (ending === undefined) missing.push(key);
    else {
      files.count++;
      files.bytes += ending.bytes;
    }
  }
  await assertStillHeld(sql);
  const missingFiles = missing.slice(0, MAX_MISSING_LISTED);
  const manifest: Manifest = {
    tables: rows.endings,
    sequences: rows.sequences,
    files,
    missingFiles,
  };
  await archive.addJson("manifest.json", manifest);
  return {
    tables: Object.keys(rows.endings).length,
    tableBytes: Object.values(rows.endings).reduce((sum, { bytes }) => sum + bytes, 0),
    files: files.count,
    fileBytes: files.bytes,
    missingFiles: missing,
  };
}

/**
 * Runs the work in a snapshot and returns its result. Ends the session if the work fails, because the rest of a table
 * may still be in transit.
 */
async function inSnapshot<Result>(
  sql: Database,
  work: (snapshot: DatabaseTransaction) => Promise<Result>,
): Promise<Result> {
  let failure: unknown;
  const noteFailure = (error: unknown): never => {
    failure = error;
    void sql.end({ timeout: 0 });
    throw error;
  };
  try {
    return await inOneSnapshot(sql, (snapshot) => work(snapshot).catch(noteFailure));
  } catch (error) {
    throw failure ?? error;
  }
}

async function assertStillHeld(sql: Database): Promise<void> {
  if (await holdsFileRemovals(sql)) return;
  throw new Error("the connection to the database was lost while files were copied: try again");
}

interface CopiedRows {
  readonly endings: Record<string, Ending>;
  readonly sequences: readonly SequenceState[];
  /** Storage keys of the files. About 60 bytes of memory each. */
  readonly storageKeys: readonly string[];
}

async function copyRows(
  { storage, interrupted, clock, log }: BackupOptions,
  snapshot: DatabaseTransaction,
  archive: Pick<ArchiveWriter, "addJson" | "addItem">,
): Promise<CopiedRows> {
  const migrations = await appliedMigrations(snapshot);
  const last = migrations.at(-1);
  if (last === undefined) throw new Error("nothing to back up: the database is empty");
  const names = (await tablesAfter(last.createdAtMs)).filter((name) => !(name in LEFT_OUT));
  const tables = await readTables(snapshot, names);
  const masterKey = await readMasterKey(snapshot);
  const head: Head = {
    format: FORMAT,
    version,
    createdAt: new Date(clock.nowMs()).toISOString(),
    postgres: (await readServerVersion(snapshot)).text,
    migrations,
    tables,
    hasFiles: storage !== undefined,
    masterKey: masterKey
      ? {
          ...masterKey,
          salt: Buffer.from(masterKey.salt).toString("base64"),
          proof: Buffer.from(masterKey.proof).toString("base64"),
        }
      : null,
  };
  await archive.addJson("head.json", head);
  log(`copying ${tables.length} tables`);
  const endings: Record<string, Ending> = {};
  for (const table of tables) {
    endings[table.name] = await archive.addItem(
      `tables/${table.name}`,
      untilAborted(await copyOut(snapshot, table), interrupted),
    );
  }
  const storageKeys: string[] = [];
  if (storage !== undefined) {
    for await (const key of readStorageKeys(snapshot)) storageKeys.push(key);
  }
  return { endings, sequences: await readSequences(snapshot, tables), storageKeys };
}

/**
 * Returns the bytes of a file, or undefined if the file is missing in the storage. Reading it then fails, also after a
 * restore.
 */
async function openFile(
  { clock, interrupted, log }: BackupOptions,
  storage: FileStorage,
  key: string,
): Promise<AsyncIterable<Uint8Array> | undefined> {
  const untilMs = clock.nowMs() + MAX_STORAGE_WAIT_MS;
  for (;;) {
    try {
      return untilAborted(await storage.read(key), interrupted);
    } catch (error) {
      if (error instanceof ObjectMissingError) return undefined;
      const isWaiting = error instanceof StorageError && clock.nowMs() < untilMs;
      if (!isWaiting || interrupted.aborted) throw error;
      log(`${error.message}: trying again`);
      await sleep(clock, STORAGE_RETRY_MS);
    }
  }
}
