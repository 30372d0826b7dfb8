import { existsSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { connectDatabase, type Database, type DatabaseTarget } from "../../../../db/client.ts";
import { claimFileFolder, readFileFolderId } from "../../../../db/queries/files.ts";
import { systemClock } from "../../../lib/clock.ts";
import { CLI } from "../../../lib/command-line.ts";
import { readMasterKeys } from "../../../platform/config/access-keys.ts";
import { EnvironmentReader } from "../../../platform/config/environment.ts";
import { readS3 } from "../../../platform/config/settings.ts";
import { ArchiveWriter } from "../../backup/archive-writer.ts";
import { type RestoreTarget, restore } from "../../backup/restore.ts";
import { type Backup, takeBackup } from "../../backup/take-backup.ts";
import { createStorage } from "../../compose/files.ts";
import { knownMasterKeys } from "../../start/master-key.ts";
import { type Command, type CommandContext, type Report, UsageError } from "../command.ts";
import {
  assertDatabaseExists,
  type OperatorSettings,
  readOperatorSettings,
  withServer,
} from "../operator-database.ts";

const WITHOUT_FILES = "without-files";

const take: Command = {
  noun: "backup",
  summary:
    "Writes a consistent snapshot of all rows, and the stored files, to an archive while gateways run.",
  options: {
    [WITHOUT_FILES]: {
      meaning: "leave out the bytes of stored files, for a bucket with its own backup",
    },
  },
  positional: "FOLDER-OR-FILE",
  isPositionalFile: true,
  run: async ({ options, positional }, context) => {
    const path = archivePath(needed(positional, "backup", "a folder or a file"), context);
    const settings = readOperatorSettings(context.environment, context.cwd);
    assertDatabaseExists(settings);
    return withSession(settings, context, async (sql) => {
      const storage = createStorage(storageSettings(settings, context), systemClock, {
        read: () => readFileFolderId(sql),
        claim: (id) => claimFileFolder(sql, id),
      });
      const hasFiles = options[WITHOUT_FILES] === undefined;
      const archive = await ArchiveWriter.create(path);
      try {
        const { interrupted, log } = context;
        const made = await takeBackup(
          { sql, storage: hasFiles ? storage : undefined, interrupted, clock: systemClock, log },
          archive,
        );
        await archive.finish();
        return backupReport(path, archive.bytes, made, hasFiles);
      } catch (error) {
        await archive.abort();
        throw error;
      }
    });
  },
};

/**
 * Returns the path of the archive. If `named` is a folder, the file name contains the time. Throws UsageError if the
 * file exists.
 */
function archivePath(named: string, { cwd, nowMs }: CommandContext): string {
  const path = resolve(cwd, named);
  if (!existsSync(path)) return path;
  const time = new Date(nowMs()).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const file = statSync(path).isDirectory() ? join(path, `gateway-${time}.backup.tar`) : path;
  if (existsSync(file)) throw new UsageError(`${file} already exists`);
  return file;
}

function backupReport(path: string, bytes: number, made: Backup, hasFiles: boolean): Report {
  const { tables, tableBytes, files, fileBytes, missingFiles } = made;
  const lines = [
    `${path}: ${size(bytes)}, from ${tables} tables (${size(tableBytes)}) and ${files} files (${size(fileBytes)}).`,
    ...(missingFiles.length === 0
      ? []
      : [`${missingFiles.length} files are missing in the storage, and so in the backup.`]),
    ...(hasFiles
      ? []
      : ["The backup does not contain the bytes of stored files: back them up after it."]),
    "The backup does not contain the master key: keep a copy elsewhere. Nothing can be restored without it.",
  ];
  return { data: { path, bytes, ...made }, text: `${lines.join("\n")}\n` };
}

const putBack: Command = {
  noun: "restore",
  summary: "Writes a backup into an empty database and an empty data folder or bucket.",
  options: {
    quiet: {
      meaning: "for a copy next to the original: disables webhooks, payments, jobs and batches",
    },
  },
  positional: "FILE",
  isPositionalFile: true,
  run: async ({ options, positional }, context) => {
    const path = resolve(context.cwd, needed(positional, "restore", "a file"));
    if (!existsSync(path)) throw new UsageError(`${path} does not exist`);
    const settings = readOperatorSettings(context.environment, context.cwd);
    const { interrupted, log } = context;
    const isQuiet = options.quiet !== undefined;
    const keys = knownMasterKeys({
      ...readMasterKeys(new EnvironmentReader(context.environment), settings.databaseUrl),
      dataDir: settings.dataDir,
    });
    const { head, manifest } = await restore({ path, keys, isQuiet, interrupted, log }, (work) =>
      withSession(settings, context, (sql) => work(restoreTarget(sql, settings, context))),
    );
    const { createdAt, version } = head;
    const lines = [
      `Restored the state of ${createdAt}: ${head.tables.length} tables and ${manifest.files.count} files.`,
      ...(head.hasFiles
        ? []
        : ["The backup does not contain stored files: copy them to their storage."]),
      ...(isQuiet ? ["Webhooks, payments, jobs and batches are disabled."] : []),
      `Start one gateway, then run "${CLI} doctor".`,
    ];
    const data = {
      created_at: createdAt,
      version,
      tables: head.tables.length,
      files: manifest.files.count,
      missing_files: manifest.missingFiles,
      quiet: isQuiet,
    };
    return { data, text: `${lines.join("\n")}\n` };
  },
};

function restoreTarget(
  sql: Database,
  settings: OperatorSettings,
  context: CommandContext,
): RestoreTarget {
  let folderId: string | undefined;
  const storage = createStorage(storageSettings(settings, context), systemClock, {
    read: async () => folderId,
    async claim(id) {
      folderId = id;
      return id;
    },
  });
  return { sql, storage, fileFolderId: () => folderId };
}

function storageSettings({ dataDir }: OperatorSettings, { environment }: CommandContext) {
  return { dataDir, s3: readS3(new EnvironmentReader(environment)) };
}

/** Session settings of a backup or restore. They override the timeouts of the role, because the work may take long. */
const SESSION_SETTINGS = {
  statement_timeout: "0",
  lock_timeout: "0",
  idle_in_transaction_session_timeout: "0",
};

function withSession<Result>(
  settings: OperatorSettings,
  { log }: CommandContext,
  work: (sql: Database) => Promise<Result>,
): Promise<Result> {
  return withServer(settings, log, async (_, target: DatabaseTarget) => {
    const applicationName = "gateway-backup";
    const sql = connectDatabase(target, {
      poolSize: 1,
      applicationName,
      settings: SESSION_SETTINGS,
    });
    try {
      return await work(sql);
    } finally {
      await sql.end({ timeout: 5 });
    }
  });
}

function needed(positional: string | undefined, command: string, what: string): string {
  if (positional !== undefined) return positional;
  throw new UsageError(`${command} needs ${what}`);
}

const UNITS = ["bytes", "KB", "MB", "GB", "TB"];

function size(bytes: number): string {
  const unit = bytes < 1_000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  return `${unit === 0 ? bytes : (bytes / 1_000 ** unit).toPrecision(3)} ${UNITS[unit]}`;
}

export const backupCommands: readonly Command[] = [take, putBack];
