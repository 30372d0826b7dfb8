import { Database } from "bun:sqlite";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface DataFolderLock {
  release(): void;
}

export class DataFolderInUseError extends Error {
  override readonly name = "DataFolderInUseError";
}

/** Keeps locks from the garbage collector, which would close the file and so release the lock. */
const heldLocks = new Set<Database>();

/** A killed process keeps its lock until the kernel has removed it. */
const DYING_HOLDER_MS = 1_000;

/**
 * Claims a data folder for this process. SQLite's exclusive lock is a record lock of the kernel: it ends with the
 * process in every case, and child processes do not inherit it. Blocks for at most `waitMs`.
 *
 * @throws DataFolderInUseError if another process, or this one, has the folder.
 */
export function lockDataFolder(dataDir: string, waitMs = DYING_HOLDER_MS): DataFolderLock {
  const path = join(dataDir, "lock.sqlite");
  const holderPath = join(dataDir, "lock.pid");
  createPrivateFile(path);
  const database = openForLocking(path);
  try {
    database.run(`PRAGMA busy_timeout = ${waitMs}`);
    // The open transaction is the lock. In exclusive locking mode, two processes that start together would each keep
    // the shared lock that the other waits for, and both would fail.
    database.run("BEGIN EXCLUSIVE");
  } catch (error) {
    database.close();
    if ((error as { code?: unknown }).code === "SQLITE_BUSY") {
      throw new DataFolderInUseError(
        `the data folder ${dataDir} is in use by ${holder(holderPath)}: stop it, or set DATA_DIR to another folder`,
      );
    }
    throw new Error(`cannot lock ${path}: ${(error as Error).message}`);
  }
  heldLocks.add(database);
  writeFileSync(holderPath, `${process.pid}\n`, { mode: 0o600 });
  return {
    release() {
      if (!heldLocks.delete(database)) return;
      database.close();
    },
  };
}

/**
 * Creates the file for its owner alone. Other users could take a shared lock of a readable file and so lock the owner
 * out. An existing file is never opened, because closing any descriptor of it would release this process's own lock.
 */
function createPrivateFile(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as { code?: unknown }).code !== "EEXIST") throw error;
  }
}

function openForLocking(path: string): Database {
  try {
    return new Database(path, { readwrite: true, create: false });
  } catch (error) {
    throw new Error(`cannot open ${path}: ${(error as Error).message}`);
  }
}

function holder(path: string): string {
  try {
    return `process ${Number.parseInt(readFileSync(path, "utf8"), 10)}`;
  } catch {
    return "another process";
  }
}
