import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { PostgresBinaries, PostgresFolders } from "./folders.ts";
import { EmbeddedPostgresError, type LaunchContext, spawnAs } from "./launch.ts";

/** Address at which the server listens. */
export type ServerAddress =
  | { readonly kind: "unix"; readonly socketDir: string }
  | { readonly kind: "tcp"; readonly port: number };

export type ServerSettings = Readonly<Record<string, string>>;

/** Port in the name of the Unix socket. No TCP port is opened for it. */
export const SOCKET_PORT = 5432;
const SUPERUSER = "postgres";

const SETTINGS: ServerSettings = {
  shared_buffers: "64MB",
  max_connections: "100",
  max_wal_size: "1GB",
  wal_level: "minimal",
  max_wal_senders: "0",
  max_logical_replication_workers: "0",
  // Makes the ledger durable.
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  autovacuum: "on",
  jit: "off",
  // Saves three worker processes, because the data fits in memory.
  io_method: "sync",
  timezone: "UTC",
  log_timezone: "UTC",
  // Keeps errors of statements out of the server's log. The gateway reports them. In the log, requests could fill the
  // disk, and their values would be stored.
  log_min_messages: "log",
  log_min_error_statement: "panic",
  log_error_verbosity: "terse",
  log_checkpoints: "off",
  log_line_prefix: "%m [%p] ",
  logging_collector: "off",
};

/** Returns the server's command line after the program's name. */
export function serverArguments(
  clusterDir: string,
  address: ServerAddress,
  extra: ServerSettings,
): string[] {
  const listening: ServerSettings =
    address.kind === "unix"
      ? {
          listen_addresses: "",
          port: String(SOCKET_PORT),
          unix_socket_directories: `"${address.socketDir.replaceAll('"', '""')}"`,
          unix_socket_permissions: "0700",
        }
      : {
          listen_addresses: "127.0.0.1",
          port: String(address.port),
          unix_socket_directories: "",
        };
  const settings = { ...SETTINGS, ...extra, ...listening };
  const pairs = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  return ["-D", clusterDir, ...pairs];
}

/** Returns a URL for readPostgresUrl of db/client.ts. */
export function serverUrl(address: ServerAddress, password: string | undefined): string {
  if (address.kind === "unix") {
    const folder = encodeURIComponent(address.socketDir);
    return `postgres://${SUPERUSER}@localhost:${SOCKET_PORT}/postgres?host=${folder}`;
  }
  const login = password === undefined ? SUPERUSER : `${SUPERUSER}:${password}`;
  return `postgres://${login}@127.0.0.1:${address.port}/postgres`;
}

const UNFINISHED_PREFIX = "postgres.new-";

/**
 * Creates the database cluster at the first start, in a temporary folder that is moved when it is complete. So after a
 * crash a later start finds no incomplete cluster.
 */
export async function ensureCluster(
  context: LaunchContext,
  withPassword: boolean,
  log: (message: string) => void,
): Promise<void> {
  const { folders, binaries } = context;
  if (existsSync(join(folders.cluster, "PG_VERSION"))) return checkVersion(folders, binaries);
  if (existsSync(folders.cluster) && readdirSync(folders.cluster).length > 0) {
    throw new EmbeddedPostgresError(
      `${folders.cluster} is not a Postgres cluster: remove it, or set DATA_DIR to another folder`,
    );
  }
  removeUnfinished(folders);
  log(`creating a database in ${folders.cluster}`);
  const unfinished = join(folders.dataDir, UNFINISHED_PREFIX + crypto.randomUUID());
  mkdirSync(unfinished, { mode: 0o700 });
  giveToServer(context, unfinished);
  if (withPassword) writePassword(context);
  await runInitdb(context, unfinished, withPassword);
  renameSync(unfinished, folders.cluster);
  syncFolder(folders.dataDir);
}

function checkVersion(folders: PostgresFolders, binaries: PostgresBinaries): void {
  const version = readFileSync(join(folders.cluster, "PG_VERSION"), "utf8").trim();
  if (version === binaries.majorVersion) return;
  throw new EmbeddedPostgresError(
    `${folders.cluster} is of Postgres ${version}, but this gateway contains Postgres ${binaries.majorVersion}: dump it with the version that created it and restore the dump into a new folder, or set DATA_DIR to another folder`,
  );
}

/**
 * Removes incomplete clusters. A later start removes a folder that an orphaned initdb still writes to.
 */
function removeUnfinished(folders: PostgresFolders): void {
  for (const name of readdirSync(folders.dataDir)) {
    if (!name.startsWith(UNFINISHED_PREFIX)) continue;
    try {
      rmSync(join(folders.dataDir, name), { recursive: true, force: true });
    } catch {}
  }
}

function writePassword(context: LaunchContext): void {
  const { password } = context.folders;
  const secret = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("hex");
  writeFileSync(password, `${secret}\n`, { mode: 0o600 });
  giveToServer(context, password);
}

function giveToServer({ account }: LaunchContext, path: string): void {
  if (account === undefined) return;
  try {
    chownSync(path, account.uid, account.gid);
  } catch (error) {
    throw new EmbeddedPostgresError(
      `cannot give ${path} to user ${account.name}, as whom the embedded Postgres runs (${(error as Error).message}): start as a normal user, or set DATABASE_URL`,
    );
  }
}

async function runInitdb(
  context: LaunchContext,
  clusterDir: string,
  withPassword: boolean,
): Promise<void> {
  const command = [
    ...[context.binaries.initdb, "-D", clusterDir, "-U", SUPERUSER, "--no-instructions"],
    // C order is the fastest and never changes with the system's libraries. Letters beyond ASCII still have upper and
    // lower case.
    ...["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
    // Only the server's own user can enter the socket's folder.
    ...["--auth-local=trust", "--auth-host=scram-sha-256"],
    ...(withPassword ? [`--pwfile=${context.folders.password}`] : []),
  ];
  const child = spawnAs(context, command, { stdout: "pipe", stderr: "pipe" });
  const [exitCode, output, errors] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (exitCode === 0) return;
  rmSync(clusterDir, { recursive: true, force: true });
  const text = errors.trim() === "" ? output : errors;
  throw new EmbeddedPostgresError(`initdb failed: ${text.trim().replaceAll(/\s*\n\s*/g, "; ")}`);
}

/** Makes the rename durable in a power failure. */
function syncFolder(path: string): void {
  if (process.platform === "win32") return;
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
