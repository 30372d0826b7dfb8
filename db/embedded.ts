import { existsSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { resolve } from "node:path";
import postgres from "postgres";
import { readPostgresUrl } from "./client.ts";
import { lockDataFolder } from "./data-folder-lock.ts";
import {
  ensureCluster,
  type ServerAddress,
  type ServerSettings,
  SOCKET_PORT,
  serverArguments,
  serverUrl,
} from "./embedded/cluster.ts";
import {
  findPostgresBinaries,
  linkLibraries,
  type PostgresFolders,
  prepareDataFolder,
  prepareSocketFolder,
  removeSocketFolder,
} from "./embedded/folders.ts";
import {
  chooseServerAccount,
  EmbeddedPostgresError,
  type LaunchContext,
  planLaunch,
} from "./embedded/launch.ts";
import {
  commandLineOf,
  isPidUsed,
  isStopping,
  type PostmasterRecord,
  postmasterFilePath,
  processRuns,
  readPostmasterFile,
  servesCluster,
  waitUntil,
} from "./embedded/process-table.ts";
import {
  launchServer,
  type RunningServer,
  ServerRefusedError,
  type SupervisedServer,
  stopServer,
  superviseServer,
} from "./embedded/server.ts";

export interface EmbeddedPostgresOptions {
  /** The database cluster is in its subfolder `postgres`. */
  readonly dataDir: string;
  readonly log: (message: string) => void;
  /** Server settings in addition to, or in place of, the settings of `embedded/cluster.ts`. */
  readonly settings?: ServerSettings;
  /** "tcp" listens on 127.0.0.1 with a password. Windows has no other. */
  readonly transport?: "unix" | "tcp";
  /**
   * How long to wait, blocking, for another owner of the folder to end: see lockDataFolder. Milliseconds.
   */
  readonly lockWaitMs?: number;
}

interface EmbeddedPostgres {
  /** A URL for readPostgresUrl, because it may name a Unix socket. */
  readonly url: string;
  /** The gateway has begun to stop: a server that was asked to stop too may now wait for it. */
  announceStop(): void;
  /**
   * Stops the server and releases the data folder. Bounded in time. Never rejects because the server is dead.
   */
  stop(): Promise<void>;
}

/** Tries to start the server, because its predecessor may still be ending. */
const LAUNCH_ATTEMPTS = 4;
const LAUNCH_RETRY_MS = 500;
const TRANSIENT_REFUSAL = /lock file|shared memory|in use|could not bind/;

/**
 * Starts the Postgres that comes with the gateway, or adopts the server that a killed gateway left running on the
 * folder.
 *
 * @throws DataFolderInUseError if another process has the folder
 * @throws EmbeddedPostgresError with one line that names the remedy
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions,
): Promise<EmbeddedPostgres> {
  const folders = prepareDataFolder(options.dataDir);
  const lock = lockDataFolder(folders.dataDir, options.lockWaitMs);
  try {
    const context = prepareLaunch(folders);
    const overTcp = options.transport === "tcp" || process.platform === "win32";
    await ensureCluster(context, overTcp, options.log);
    const password = overTcp ? readPassword(folders) : undefined;
    const address: ServerAddress = overTcp
      ? { kind: "tcp", port: await findFreePort() }
      : { kind: "unix", socketDir: prepareSocketFolder(folders, context.account) };
    const settings = options.settings ?? {};
    const first = await adoptOrLaunch(context, address, settings, password);
    const supervised: SupervisedServer = {
      isRunning: ({ pid }) => processRuns(pid),
      isStopping: ({ pid }) => isStopping(folders.cluster, pid),
      end: ({ pid }) => stopServer(pid, context),
      // Clients keep their URL, so a restarted server must listen at the same address.
      restart: () => adoptOrLaunch(context, first.address, settings, password),
    };
    const supervision = superviseServer(first, supervised, options.log);
    return {
      url: serverUrl(first.address, password),
      announceStop: () => supervision.announceStop(),
      async stop() {
        await supervision.end();
        try {
          const pid = readPostmasterFile(folders.cluster)?.pid ?? 0;
          if (servesCluster(pid, folders.cluster)) await stopServer(pid, context);
          if (address.kind === "unix") removeSocketFolder(folders, address.socketDir);
        } finally {
          lock.release();
        }
      },
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/**
 * Returns the URL of the server that another process runs on this data folder, for commands that run in parallel to a
 * gateway. Returns undefined if no server is ready.
 */
export function findRunningEmbeddedPostgres(dataDir: string): string | undefined {
  if (!existsSync(resolve(dataDir))) return undefined;
  const folders = prepareDataFolder(dataDir);
  const record = readPostmasterFile(folders.cluster);
  if (record?.status !== "ready" || !servesCluster(record.pid, folders.cluster)) return undefined;
  const password = record.address.kind === "tcp" ? readPassword(folders) : undefined;
  return serverUrl(record.address, password);
}

function prepareLaunch(folders: PostgresFolders): LaunchContext {
  const binaries = findPostgresBinaries();
  const account = chooseServerAccount(folders.cluster);
  return {
    folders,
    binaries,
    account,
    libraryDirs: linkLibraries(binaries, folders.libraryLinks),
    identity: planLaunch(account, binaries.postgres, folders.dataDir),
  };
}

async function adoptOrLaunch(
  context: LaunchContext,
  address: ServerAddress,
  settings: ServerSettings,
  password: string | undefined,
): Promise<RunningServer> {
  const urlOf = (server: RunningServer) => serverUrl(server.address, password);
  for (let attempt = 1; ; attempt += 1) {
    const adopted = await settlePredecessor(context, address, settings, urlOf);
    if (adopted !== undefined) return adopted;
    try {
      return await launchServer(context, address, settings);
    } catch (error) {
      const isTransient =
        error instanceof ServerRefusedError && TRANSIENT_REFUSAL.test(error.message);
      if (!isTransient || attempt === LAUNCH_ATTEMPTS) throw error;
      await Bun.sleep(LAUNCH_RETRY_MS);
    }
  }
}

function readPassword(folders: PostgresFolders): string {
  if (!existsSync(folders.password)) {
    throw new EmbeddedPostgresError(
      `${folders.password} is missing, so the server of this data folder accepts no connection: restore it, or set DATA_DIR to another folder`,
    );
  }
  return readFileSync(folders.password, "utf8").trim();
}

async function findFreePort(): Promise<number> {
  const server = createServer();
  return await new Promise((resolvePort, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close();
      if (address !== null && typeof address === "object") resolvePort(address.port);
      else reject(new EmbeddedPostgresError("this machine has no free port on 127.0.0.1"));
    });
  });
}

/*
 * State of the server that a killed gateway has left. The process that postmaster.pid names decides, while we hold the
 * lock of the data folder:
 *
 *   none        no file, or its process has ended: Postgres removes the file itself at its start
 *   stranger    the number belongs to another process now, or to an ended one that was never collected: Postgres
 *               would fail to start, so the file is removed here
 *   hidden      no visible process, but its socket answers (another container): rejected
 *   busy        starting, recovering or stopping: the start waits
 *   ready       adopted if it has our command line and answers, otherwise stopped
 */
type Predecessor = "none" | "stranger" | "hidden" | "busy" | "ready";

/** Longest recovery of a crashed predecessor. Equals READY_TIMEOUT_MS of our own server. */
const BUSY_TIMEOUT_MS = 600_000;
/**
 * A server that restarts after a crash of one connection still reports to be ready for a moment.
 */
const ANSWER_TIMEOUT_MS = 5_000;
const SOCKET_TIMEOUT_MS = 2_000;
const DYING_TIMEOUT_MS = 2_000;
/** Time between the creation of postmaster.pid and its content. */
const EMPTY_FILE_GRACE_MS = 200;
const TAKE_OVER_TIMEOUT_MS = 5_000;

/**
 * Adopts the server that a killed gateway left, or removes what would block a new one. Returns undefined for the
 * latter.
 */
async function settlePredecessor(
  context: LaunchContext,
  address: ServerAddress,
  settings: ServerSettings,
  urlOf: (server: RunningServer) => string,
): Promise<RunningServer | undefined> {
  const { cluster } = context.folders;
  await waitUntil(() => readPostmasterFile(cluster)?.pid !== 0, EMPTY_FILE_GRACE_MS);
  await waitUntil(async () => (await judge(cluster, address)) !== "busy", BUSY_TIMEOUT_MS);
  // The socket of a server that is being killed may answer for a moment after its process is no longer visible.
  await waitUntil(async () => (await judge(cluster, address)) !== "hidden", DYING_TIMEOUT_MS);
  const record = readPostmasterFile(cluster);
  switch (await judge(cluster, address)) {
    case "none":
      return undefined;
    case "stranger":
      removeLeftovers(cluster, address);
      return undefined;
    case "hidden":
      throw new EmbeddedPostgresError(
        `a Postgres server that this process cannot see (process ${record?.pid ?? "unknown"}, perhaps in another container) runs on ${cluster}: stop it first`,
      );
    case "busy":
      throw new EmbeddedPostgresError(
        `the Postgres server ${record?.pid} on ${cluster} has been ${record?.status} for ${BUSY_TIMEOUT_MS / 60_000} minutes: see ${context.folders.log}`,
      );
    case "ready":
      return record && (await adoptOrStop(record, context, settings, urlOf));
  }
}

async function judge(clusterDir: string, address: ServerAddress): Promise<Predecessor> {
  const record = readPostmasterFile(clusterDir);
  if (record !== undefined && servesCluster(record.pid, clusterDir)) {
    return record.status === "ready" ? "ready" : "busy";
  }
  if (await socketAnswers(address)) return "hidden";
  if (record === undefined) return "none";
  return record.pid === 0 || isPidUsed(record.pid) ? "stranger" : "none";
}

async function adoptOrStop(
  record: PostmasterRecord,
  context: LaunchContext,
  settings: ServerSettings,
  urlOf: (server: RunningServer) => string,
): Promise<RunningServer | undefined> {
  const args = serverArguments(context.folders.cluster, record.address, settings);
  const wanted = [context.binaries.postgres, ...args].join(" ");
  const server = { pid: record.pid, address: record.address };
  const answers = await waitUntil(() => takeOver(urlOf(server)), ANSWER_TIMEOUT_MS);
  if (answers && commandLineOf(record.pid) === wanted) return server;
  await stopServer(record.pid, context, answers ? "fast" : "immediate");
  return undefined;
}

/**
 * Removes files that Postgres would take for files of a live server, because another process has the process number in
 * them.
 */
function removeLeftovers(clusterDir: string, address: ServerAddress): void {
  rmSync(postmasterFilePath(clusterDir), { force: true });
  if (address.kind === "tcp") return;
  rmSync(socketPath(address.socketDir), { force: true });
  rmSync(`${socketPath(address.socketDir)}.lock`, { force: true });
}

/**
 * Returns true if the server answers. First it ends the connections of the dead gateway, so that none of their running
 * statements takes effect later: those that wait for a lock until none is left, then those that hold one, whose end
 * would release the waiting ones.
 */
async function takeOver(url: string): Promise<boolean> {
  const address = readPostgresUrl(url);
  const sql = postgres(address.url, { path: address.path, max: 1, onnotice: () => {} });
  const othersEnded = async (): Promise<boolean> => {
    const others = await sql`
      WITH others AS MATERIALIZED (
        SELECT pid, wait_event_type IS NOT DISTINCT FROM 'Lock' AS is_waiting FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
      )
      SELECT pg_terminate_backend(pid) FROM others
      WHERE is_waiting OR NOT EXISTS (SELECT 1 FROM others WHERE is_waiting)`;
    return others.length === 0;
  };
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("no answer")), TAKE_OVER_TIMEOUT_MS);
  try {
    return await Promise.race([waitUntil(othersEnded, TAKE_OVER_TIMEOUT_MS), late]);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
    await sql.end({ timeout: 0 });
  }
}

async function socketAnswers(address: ServerAddress): Promise<boolean> {
  if (address.kind === "tcp" || !existsSync(socketPath(address.socketDir))) return false;
  const socket = connect(socketPath(address.socketDir));
  try {
    return await new Promise<boolean>((resolve) => {
      socket.once("connect", () => resolve(true));
      socket.once("error", () => resolve(false));
      socket.setTimeout(SOCKET_TIMEOUT_MS, () => resolve(false));
    });
  } finally {
    socket.destroy();
  }
}

function socketPath(socketDir: string): string {
  return `${socketDir}/.s.PGSQL.${SOCKET_PORT}`;
}
