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
import { quietRestored, settleRestored } from "../../../db/queries/restored-rows.ts";
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

/** What a restore would write into is not empty, or not the right one. The message is one line. */
export class RestoreRefusedError extends Error {
  override readonly name = "RestoreRefusedError";
}

export interface RestoreTarget {
  /** One session, of which locks are kept. */
  readonly sql: Database;
  readonly storage: FileStorage;
  /** The id of the folder that the storage wrote to; undefined where it is none, or it wrote nothing. */
  fileFolderId(): string | undefined;
}

export interface RestoreOptions {
  readonly path: string;
  /** Undefined where there is none. */
  readonly keys: MasterKeys | undefined;
  /** The copy is to leave the world alone: see quietRestored. */
  readonly isQuiet: boolean;
  readonly interrupted: AbortSignal;
  log(message: string): void;
}

export interface Restored {
  readonly head: Head;
  readonly manifest: Manifest;
}

/**
 * Writes an archive into an empty database and an empty storage. Before the first write the whole archive is
 * verified, and the master key is proven to open what is sealed. All rows are written in one transaction, the
 * files before it ends; where it is broken off, a mark stays in the database, with which no gateway starts, and a
 * further restore of the same archive begins again.
 *
 * @param withTarget called once the archive is known to be whole and openable
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
      `the backup was made by version ${head.version} of the gateway, with migrations that this version does not have: restore it with that version or a later one`,
    );
  }
  const { masterKey } = head;
  if (masterKey === null) return;
  if (keys === undefined) {
    throw new RestoreRefusedError(
      "the backup is sealed with a master key, which is not in it: set GATEWAY_MASTER_KEY, or put the key of the backed up gateway into DATA_DIR/master-key",
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
  // A gateway that starts meanwhile waits for it.
  const [lock] = await sql<{ is_taken: boolean }[]>`
    SELECT pg_try_advisory_lock(${MIGRATION_LOCK}) AS is_taken`;
  if (!lock!.is_taken)
    throw new RestoreRefusedError("another restore or a gateway's start is running");
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
    options.log("bringing what was restored up to date");
    await applyMigrations(transaction, state);
    await settleRestored(transaction);
    if (options.isQuiet) await quietRestored(transaction);
    if (head.hasFiles) await replaceFileFolder(transaction, target.fileFolderId());
    await unmarkRestore(transaction);
    return written;
  });
  await sql`ANALYZE`;
  return { head, manifest };
}

/** Throws RestoreRefusedError where something is there that this restore would not write again. */
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
        ? `a restore of another backup${earlier?.createdAt ? `, of ${earlier.createdAt},` : ""} was broken off, and the storage has files of it: restore that one again, or empty the folder or bucket first`
        : "the storage already has files: restore into an empty folder or bucket, or take the backup --without-files",
    );
  }
  await markRestore(sql, mark);
}

function tableOf(name: string, head: Head, present: ReadonlySet<string>): CopiedTable {
  const table = head.tables.find((one) => one.name === name);
  if (table !== undefined && present.has(name)) return table;
  throw new ArchiveError(`the backup has a table ${name}, which this version does not know`);
}

async function writeFile(
  storage: FileStorage,
  key: string,
  bytes: AsyncIterable<Uint8Array>,
): Promise<void> {
  // Of an earlier try.
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
  if (!isWhole) throw new ArchiveError("the backup is not what its manifest says");
}
