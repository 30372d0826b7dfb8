import { existsSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { join, resolve } from "node:path";
import {
  CONNECT_TIMEOUT_SECONDS,
  connectDatabase,
  type Database,
  type DatabaseTarget,
} from "../../../db/client.ts";
import { assertUsable, describeFailure } from "../../../db/connect-failure.ts";
import { DataFolderInUseError } from "../../../db/data-folder-lock.ts";
import { waitUntil } from "../../../db/embedded/process-table.ts";
import { findRunningEmbeddedPostgres, startEmbeddedPostgres } from "../../../db/embedded.ts";
import { migrate, readMigrationState } from "../../../db/migrate.ts";
import { isOnlyConnection, joinAsGuest } from "../../../db/queries/database-server.ts";
import type { Author } from "../../lib/author.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type Environment, EnvironmentReader } from "../../platform/config/environment.ts";
import { readSettings, type Settings } from "../../platform/config/settings.ts";
import type { CommandContext } from "./command.ts";

/** Milliseconds to wait for the process that owns the data folder, which may be starting or stopping its server. */
const MAX_NEIGHBOUR_WAIT_MS = 10_000;
const NEIGHBOUR_RETRY_MS = 100;
/** Milliseconds for which a server that this command started stays open for other commands that use it. */
const MAX_GUEST_WAIT_MS = 10_000;
const END_TIMEOUT_SECONDS = 1;
/** Milliseconds to wait for the first answer. Longer than a connection may take. */
const ANSWER_TIMEOUT_MS = CONNECT_TIMEOUT_SECONDS * 1_000 + 2_000;

export type DatabaseSettings = Pick<OperatorSettings, "databaseUrl" | "dataDir">;

interface OperatorDatabase {
  readonly target: DatabaseTarget;
  /** Configured by DATABASE_URL, started here, or started by another process on the same data folder. */
  readonly origin: "configured" | "started" | "neighbour";
  stop(): Promise<void>;
}

interface Connected {
  readonly database: OperatorDatabase;
  readonly sql: Database;
}

/**
 * Runs work on the gateway's database, after it has brought the schema up to date. Throws if there is no embedded
 * database yet, unless `mayCreate` is true.
 */
export async function withDatabase<Result>(
  context: CommandContext,
  work: (sql: Database, settings: OperatorSettings) => Promise<Result>,
  { mayCreate = false } = {},
): Promise<Result> {
  const settings = readOperatorSettings(context.environment, context.cwd);
  if (!mayCreate) assertDatabaseExists(settings);
  return withServer(settings, context.log, async (sql, target) => {
    if ((await readMigrationState(sql)).pending.length > 0) await migrate(target, context.log);
    return work(sql, settings);
  });
}

/** Throws if opening the embedded database would create it, as in a wrong folder. */
export function assertDatabaseExists({ databaseUrl, dataDir }: DatabaseSettings): void {
  if (databaseUrl !== undefined || existsSync(join(dataDir, "postgres"))) return;
  const found = existsSync(dataDir) ? "has no database" : "does not exist";
  throw new Error(
    `the data folder ${dataDir} ${found}: start the gateway once, or set DATA_DIR or DATABASE_URL as for the gateway`,
  );
}

/** Runs work on the gateway's database without a change of its schema. Throws database_unavailable. */
export async function withServer<Result>(
  settings: DatabaseSettings,
  log: (message: string) => void,
  work: (sql: Database, target: DatabaseTarget) => Promise<Result>,
): Promise<Result> {
  const connected = await connect(settings, log);
  try {
    return await work(connected.sql, connected.database.target);
  } finally {
    if (connected.database.origin === "started") await waitForGuests(connected.sql);
    await disconnect(connected);
  }
}

async function connect(
  settings: DatabaseSettings,
  log: (message: string) => void,
): Promise<Connected> {
  const deadlineMs = performance.now() + MAX_NEIGHBOUR_WAIT_MS;
  for (;;) {
    const database = await openDatabase(settings, log, deadlineMs);
    const sql = connectDatabase(database.target, {
      ...{ poolSize: 1, applicationName: "gateway-cli" },
      // The audit log attributes every act on this connection to the caller of the command.
      settings: { "gateway.author": JSON.stringify(commandLineAuthor()) },
    });
    try {
      await assertAnswers(database, sql);
      if (database.origin === "neighbour") await assertStays(sql);
      return { database, sql };
    } catch (error) {
      await disconnect({ database, sql });
      // The neighbour may be stopping its server. The next attempt then starts one here.
      if (database.origin !== "neighbour" || performance.now() > deadlineMs) throw error;
      await Bun.sleep(NEIGHBOUR_RETRY_MS);
    }
  }
}

function commandLineAuthor(): Author {
  const user = userName();
  const origin = { address: null, user_agent: null, request_id: null };
  return { kind: "cli", id: user, name: `${user}@${hostname()}`, via: "cli", ...origin };
}

/** Returns the name of the user, or its number if it has no name, as in some containers. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? "unknown");
  }
}

async function disconnect({ database, sql }: Connected): Promise<void> {
  await sql.end({ timeout: END_TIMEOUT_SECONDS });
  await database.stop();
}

/**
 * Opens the configured database, or the embedded one. Uses the embedded server of a running gateway or command;
 * otherwise starts one for the duration of this command.
 *
 * @throws DataFolderInUseError if another process uses the data folder and no server answers
 */
async function openDatabase(
  { databaseUrl, dataDir }: DatabaseSettings,
  log: (message: string) => void,
  deadlineMs: number,
): Promise<OperatorDatabase> {
  if (databaseUrl !== undefined) return foreign(databaseUrl, "configured");
  for (;;) {
    try {
      const server = await startEmbeddedPostgres({ dataDir, log });
      return { target: { url: server.url }, origin: "started", stop: () => server.stop() };
    } catch (error) {
      if (!(error instanceof DataFolderInUseError)) throw error;
      const url = findRunningEmbeddedPostgres(dataDir);
      if (url !== undefined) return foreign(url, "neighbour");
      if (performance.now() > deadlineMs) throw error;
      await Bun.sleep(NEIGHBOUR_RETRY_MS);
    }
  }
}

function foreign(url: string, origin: OperatorDatabase["origin"]): OperatorDatabase {
  return { target: { url }, origin, stop: async () => {} };
}

/**
 * Throws database_unavailable with the failure if the database does not answer. The driver itself would retry without end
 * if connections are accepted and closed immediately.
 */
async function assertAnswers({ origin, target }: OperatorDatabase, sql: Database): Promise<void> {
  try {
    await within<unknown>(
      ANSWER_TIMEOUT_MS,
      origin === "configured" ? assertUsableBy(sql, target) : sql`SELECT 1`.then(() => undefined),
    );
  } catch (error) {
    throw new GatewayError("database_unavailable", describeFailure(error), { cause: error });
  }
}

/** Throws if the database cannot be used, for example through a pooler that shares one session among commands. */
async function assertUsableBy(sql: Database, target: DatabaseTarget): Promise<void> {
  const probe = connectDatabase(target, { poolSize: 1, applicationName: "gateway-cli-probe" });
  try {
    await assertUsable(sql, probe);
  } finally {
    void probe.end({ timeout: 0 });
  }
}

/**
 * Throws if the server is being stopped by its owner. Without this check, a command that connects at that moment would
 * lose its connection in the middle of its work.
 */
async function assertStays(sql: Database): Promise<void> {
  if (await joinAsGuest(sql)) return;
  throw new GatewayError("database_unavailable", "the server of the data folder is stopping");
}

async function waitForGuests(sql: Database): Promise<void> {
  try {
    await waitUntil(() => isOnlyConnection(sql), MAX_GUEST_WAIT_MS);
  } catch {
    // The server has already stopped, so there are no guests to wait for.
  }
}

export interface OperatorSettings
  extends Pick<Settings, "databaseUrl" | "plan" | "startingCreditNanoUsd"> {
  /** Absolute path. */
  readonly dataDir: string;
}

/**
 * Reads the settings that commands need. Other settings are not checked, so that a key can be revoked from a shell
 * without the gateway's other secrets. Throws ConfigError.
 */
export function readOperatorSettings(environment: Environment, cwd: string): OperatorSettings {
  const reader = new EnvironmentReader(environment);
  const { databaseUrl, plan, startingCreditNanoUsd } = readSettings(reader);
  const dataDir = resolve(cwd, reader.text("DATA_DIR") ?? "");
  return { databaseUrl, plan, startingCreditNanoUsd, dataDir };
}

/** Returns the answer. Rejects if it takes longer than `timeoutMs`; the work itself is not stopped. */
export async function within<Answer>(timeoutMs: number, answer: Promise<Answer>): Promise<Answer> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => late.reject(new Error(`no answer within ${timeoutMs / 1000} s`)),
    timeoutMs,
  );
  try {
    return await Promise.race([answer, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
