import { hostname, userInfo } from "node:os";
import { resolve } from "node:path";
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
import { isLeftAlone, joinAsGuest } from "../../../db/queries/database-server.ts";
import type { Author } from "../../lib/author.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type Environment, EnvironmentReader } from "../../platform/config/environment.ts";
import { readSettings, type Settings } from "../../platform/config/settings.ts";
import type { CommandContext } from "./command.ts";

/** The owner of the data folder may be starting its server, or stopping it. */
const NEIGHBOUR_PATIENCE_MS = 10_000;
const NEIGHBOUR_RETRY_MS = 100;
/** How long a server of our own is left to commands that came to use it beside us. */
const GUEST_PATIENCE_MS = 10_000;
const END_TIMEOUT_SECONDS = 1;
/** Above the time that a connection may take. */
const ANSWER_TIMEOUT_MS = CONNECT_TIMEOUT_SECONDS * 1_000 + 2_000;

export type DatabaseSettings = Pick<OperatorSettings, "databaseUrl" | "dataDir">;

interface OperatorDatabase {
  readonly target: DatabaseTarget;
  /** Named by DATABASE_URL; started here; or started by another process on the same data folder. */
  readonly origin: "configured" | "own" | "neighbour";
  stop(): Promise<void>;
}

interface Connected {
  readonly database: OperatorDatabase;
  readonly sql: Database;
}

/** Does work on the gateway's database, with a schema that is up to date. */
export function withDatabase<Result>(
  context: CommandContext,
  work: (sql: Database, settings: OperatorSettings) => Promise<Result>,
): Promise<Result> {
  const settings = readOperatorSettings(context.environment, context.cwd);
  return withServer(settings, context.log, async (sql, target) => {
    if ((await readMigrationState(sql)).pending.length > 0) await migrate(target, context.log);
    return work(sql, settings);
  });
}

/** Does work on the gateway's database, whatever its schema. Throws database_unavailable. */
export async function withServer<Result>(
  settings: DatabaseSettings,
  log: (message: string) => void,
  work: (sql: Database, target: DatabaseTarget) => Promise<Result>,
): Promise<Result> {
  const connected = await connect(settings, log);
  try {
    return await work(connected.sql, connected.database.target);
  } finally {
    if (connected.database.origin === "own") await guestsGone(connected.sql);
    await disconnect(connected);
  }
}

async function connect(
  settings: DatabaseSettings,
  log: (message: string) => void,
): Promise<Connected> {
  const deadlineMs = performance.now() + NEIGHBOUR_PATIENCE_MS;
  for (;;) {
    const database = await openDatabase(settings, log, deadlineMs);
    const sql = connectDatabase(database.target, {
      ...{ poolSize: 1, applicationName: "gateway-cli" },
      // Every act on this connection is the caller's.
      settings: { "gateway.author": JSON.stringify(commandLineAuthor()) },
    });
    try {
      await assertAnswers(database, sql);
      if (database.origin === "neighbour") await assertStays(sql);
      return { database, sql };
    } catch (error) {
      await disconnect({ database, sql });
      // A neighbour that is just ending takes its server with it: then we start our own.
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

/** A user without an entry in the list of users, as in some containers, has a number alone. */
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
 * The configured database, or the embedded one: where a gateway or another command runs its server, that
 * one is used, otherwise it is started for the time being.
 *
 * @throws DataFolderInUseError where the data folder is taken and no server comes up
 */
async function openDatabase(
  { databaseUrl, dataDir }: DatabaseSettings,
  log: (message: string) => void,
  deadlineMs: number,
): Promise<OperatorDatabase> {
  if (databaseUrl !== undefined) return foreign(databaseUrl, "configured");
  for (;;) {
    try {
      const own = await startEmbeddedPostgres({ dataDir, log });
      return { target: { url: own.url }, origin: "own", stop: () => own.stop() };
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
 * Throws database_unavailable with what fails. The driver itself would try without end if connections are
 * accepted and closed immediately.
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

/** What a command sets for its session must not be found by another one's. */
async function assertUsableBy(sql: Database, target: DatabaseTarget): Promise<void> {
  const probe = connectDatabase(target, { poolSize: 1, applicationName: "gateway-cli-probe" });
  try {
    await assertUsable(sql, probe);
  } finally {
    void probe.end({ timeout: 0 });
  }
}

/**
 * A command that is about to end its server would cut off the work of one that connects to it in that moment.
 */
async function assertStays(sql: Database): Promise<void> {
  if (await joinAsGuest(sql)) return;
  throw new GatewayError("database_unavailable", "the server of the data folder is being stopped");
}

async function guestsGone(sql: Database): Promise<void> {
  try {
    await waitUntil(() => isLeftAlone(sql), GUEST_PATIENCE_MS);
  } catch {
    // The server is gone already; its end is what was to be decided.
  }
}

export interface OperatorSettings
  extends Pick<Settings, "databaseUrl" | "plan" | "startingCreditNanoUsd"> {
  /** Absolute. */
  readonly dataDir: string;
}

/**
 * What commands need of the configuration. The rest is left alone, so that a key can be revoked from a
 * shell that lacks the gateway's other secrets. Throws ConfigError.
 */
export function readOperatorSettings(environment: Environment, cwd: string): OperatorSettings {
  const reader = new EnvironmentReader(environment);
  const { databaseUrl, plan, startingCreditNanoUsd } = readSettings(reader);
  const dataDir = resolve(cwd, reader.text("DATA_DIR") ?? "");
  return { databaseUrl, plan, startingCreditNanoUsd, dataDir };
}

/** Rejects where the answer takes longer; what was asked is not waited for any more. */
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
