import type { Database } from "../../../db/client.ts";
import { applyMigrations, knowsMigrations, MIGRATION_LOCK } from "../../../db/migrate.ts";
import { replaceFileFolder } from "../../../db/queries/file-backups.ts";
import {
  findTable,
  markRestore,
  type RestoreMark,
  readRestoreMark,
  unmarkRestore,
} from "../../../db/queries/restore-mark.ts";
import { settleRestored, stopExternalActions } from "../../../db/queries/restored-rows.ts";
import {
  type CopiedTable,
  copyIn,
  readTables,
  setSequence,
} from "../../../db/queries/table-copies.ts";
import { assertKeysOpen, type MasterKeys } from "../../platform/master-key/master-key.ts";
import type { FileStorage } from "../../platform/storage/interface.ts";
import { ArchiveError, type Head, type Manifest, untilAborted } from "./archive.ts";
import { ArchiveReader, verifyArchive } from "./archive-reader.ts";

/** Thrown if the backup cannot be restored to this target. The message is one line. */
export class RestoreRefusedError extends Error {
  override readonly name = "RestoreRefusedError";
}

export interface RestoreTarget {
  /** A single session, which keeps locks. */
  readonly sql: Database;
  readonly storage: FileStorage;
  /** Id of the folder that the storage wrote to. Undefined if the storage has no folder, or wrote nothing. */
  fileFolderId(): string | undefined;
}

export interface RestoreOptions {
  readonly path: string;
  /** Undefined if no master key exists. */
  readonly keys: MasterKeys | undefined;
  /** True if the copy must not act on other systems. See `stopExternalActions`. */
  readonly isQuiet: boolean;
  readonly interrupted: AbortSignal;
  log(message: string): void;
}

export interface Restored {
  readonly head: Head;
  readonly manifest: Manifest;
}

/**
 * Writes an archive into an empty database and an empty storage. Before the first write it verifies the whole archive
 * and checks that the master key opens the sealed values. One transaction writes all rows, and the files before it
 * ends. If the restore is interrupted, a mark stays in the database. No gateway starts with that mark, and another
 * restore of the same archive begins again.
 *
 * @param withTarget called after the archive was found complete and the master key correct
 */
export async function restore(
  options: RestoreOptions,
  withTarget: <Result>(work: (target: RestoreTarget) => Promise<Result>) => Promise<Result>,
): Promise<Restored> {
  const { path, keys, log } = options;
  log("verifying the backup");
  const { tarBytes, digest } = await verifyArchive(path);
  const reader = new ArchiveReader(path, tarBytes);
  try {
    const head = await reader.head();
    await assertRestorable(head, keys);
    return await withTarget((target) => writeAll(options, { head, reader, digest }, target));
  } finally {
    await reader.close();
  }
}

async function assertRestorable(head: Head, keys: MasterKeys | undefined): Promise<void> {
  if (!(await knowsMigrations(head.migrations))) {
    throw new RestoreRefusedError(
      `version ${head.version} of the gateway made the backup, with migrations that this version does not have: restore it with that version or a later one`,
    );
  }
  const { masterKey } = head;
  if (masterKey === null) return;
  if (keys === undefined) {
    throw new RestoreRefusedError(
      "the backup is sealed with a master key that it does not contain: set GATEWAY_MASTER_KEY, or put the key of the original gateway into DATA_DIR/master-key",
    );
  }
  assertKeysOpen(
    {
      ...masterKey,
      salt: Buffer.from(masterKey.salt, "base64"),
      proof: Buffer.from(masterKey.proof, "base64"),
    },
    keys,
  );
}

interface OpenArchive {
  readonly head: Head;
  readonly digest: string;
  readonly reader: ArchiveReader;
}

async function writeAll(
  options: RestoreOptions,
  { head, digest, reader }: OpenArchive,
  target: RestoreTarget,
): Promise<Restored> {
  const { sql, storage } = target;
  // A gateway that starts during the restore waits for this lock.
  const [lock] = await sql<{ is_locked: boolean }[]>`
    SELECT pg_try_advisory_lock(${MIGRATION_LOCK}) AS is_locked`;
  if (!lock!.is_locked)
    throw new RestoreRefusedError("another restore or the start of a gateway is running");
  await begin(target, { archive: digest, createdAt: head.createdAt, hasFiles: head.hasFiles });
  const manifest = await sql.begin(async (transaction) => {
    const state = head.migrations.length;
    await applyMigrations(transaction, 0, state);
    const names = head.tables.map(({ name }) => name);
    const present = new Set((await readTables(transaction, names)).map(({ name }) => name));
    for await (const item of reader.items()) {
      const bytes = untilAborted(item.bytes(), options.interrupted);
      if (item.kind === "files") await writeFile(storage, item.name, bytes);
      else await copyIn(transaction, tableOf(item.name, head, present), bytes);
    }
    const written = await reader.manifest();
    assertAllThere(head, written, reader);
    for (const sequence of written.sequences) await setSequence(transaction, sequence);
    options.log("applying later migrations");
    await applyMigrations(transaction, state);
    await settleRestored(transaction);
    if (options.isQuiet) await stopExternalActions(transaction);
    if (head.hasFiles) await replaceFileFolder(transaction, target.fileFolderId());
    await unmarkRestore(transaction);
    return written;
  });
  await sql`ANALYZE`;
  return { head, manifest };
}

/** Throws RestoreRefusedError if the target has data that this restore would not write again. */
async function begin(
  { sql, storage }: RestoreTarget,
  mark: RestoreMark & { readonly archive: string },
): Promise<void> {
  const table = await findTable(sql);
  if (table !== undefined) {
    throw new RestoreRefusedError(
      `the database is not empty (it has ${table}): restore into an empty one`,
    );
  }
  const earlier = await readRestoreMark(sql);
  if (earlier?.archive === mark.archive) return;
  const mayHaveFiles = earlier?.hasFiles ?? false;
  if ((mayHaveFiles || mark.hasFiles) && !(await storage.isEmpty())) {
    throw new RestoreRefusedError(
      mayHaveFiles
        ? `a restore of another backup${earlier?.createdAt ? `, of ${earlier.createdAt},` : ""} was interrupted, and the storage has files of it: restore that backup again, or empty the folder or bucket first`
        : "the storage already has files: restore into an empty folder or bucket, or take the backup --without-files",
    );
  }
  await markRestore(sql, mark);
}

function tableOf(name: string, head: Head, present: ReadonlySet<string>): CopiedTable {
  const table = head.tables.find((candidate) => candidate.name === name);
  if (table !== undefined && present.has(name)) return table;
  throw new ArchiveError(`the backup has a table ${name} that this version does not know`);
}

async function writeFile(
  storage: FileStorage,
  key: string,
  bytes: AsyncIterable<Uint8Array>,
): Promise<void> {
  // An interrupted restore may have left a part of the file.
  await storage.remove(key);
  const writer = storage.write(key);
  try {
    for await (const piece of bytes) await writer.write(piece);
    await writer.finish();
  } catch (error) {
    await writer.abort();
    throw error;
  }
}

function assertAllThere(head: Head, manifest: Manifest, reader: ArchiveReader): void {
  const isWhole =
    reader.files === manifest.files.count &&
    head.tables.every(({ name }) => {
      const read = reader.tables.get(name);
      return read !== undefined && read.sha256 === manifest.tables[name]?.sha256;
    });
  if (!isWhole) throw new ArchiveError("the backup differs from its manifest");
}
