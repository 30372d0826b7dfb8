import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { resolve } from "node:path";
import { lockDataFolder } from "./data-folder-lock.ts";
import {
  ensureCluster,
  type ServerAddress,
  type ServerSettings,
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
import { settlePredecessor } from "./embedded/predecessor.ts";
import {
  isStopping,
  processRuns,
  readPostmasterFile,
  servesCluster,
} from "./embedded/process-table.ts";
import {
  launchServer,
  type RunningServer,
  ServerRefusedError,
  stopServer,
} from "./embedded/server.ts";
import { type SupervisedServer, superviseServer } from "./embedded/supervise.ts";

export interface EmbeddedPostgresOptions {
  /** The cluster lives in its folder `postgres`. */
  readonly dataDir: string;
  readonly log: (message: string) => void;
  /** Server settings beyond, or in place of, those of server-settings.ts. */
  readonly settings?: ServerSettings;
  /** "tcp" listens on 127.0.0.1 with a password, and is the only one on Windows. */
  readonly transport?: "unix" | "tcp";
  /** How long to wait, blocking, for another holder of the folder to be gone: see lockDataFolder. */
  readonly lockWaitMs?: number;
}

export interface EmbeddedPostgres {
  /** For readPostgresUrl, because it may name a Unix socket. */
  readonly url: string;
  /** The gateway has begun to stop: from now on a server that was asked to stop too may wait for it. */
  announceStop(): void;
  /** Shuts the server down and gives the data folder up. Bounded; never rejects for a dead server. */
  stop(): Promise<void>;
}

/** Start-up of a server whose predecessor is just ending may meet it. */
const LAUNCH_ATTEMPTS = 4;
const LAUNCH_RETRY_MS = 500;
const PASSING_REFUSAL = /lock file|shared memory|in use|could not bind/;

/**
 * Starts the Postgres that comes with the gateway, or adopts the one that a killed gateway left
 * running on the same folder.
 *
 * @throws DataFolderInUseError where another process has the folder
 * @throws EmbeddedPostgresError with one line that names the way out
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
      // Clients keep the URL that they were given, so a restarted server has to listen at the same.
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
 * The URL of the server that another process runs on this data folder, for commands beside a running
 * gateway; undefined where none is ready.
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
      const passing = error instanceof ServerRefusedError && PASSING_REFUSAL.test(error.message);
      if (!passing || attempt === LAUNCH_ATTEMPTS) throw error;
      await Bun.sleep(LAUNCH_RETRY_MS);
    }
  }
}

function readPassword(folders: PostgresFolders): string {
  if (!existsSync(folders.password)) {
    throw new EmbeddedPostgresError(
      `${folders.password} is missing, without which the server of this data folder accepts no connection: restore it, or point DATA_DIR elsewhere`,
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
