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
import type { PostgresBinaries } from "./binaries.ts";
import { EmbeddedPostgresError } from "./error.ts";
import type { PostgresFolders } from "./folders.ts";
import { type LaunchContext, spawnAs } from "./launch.ts";
import { SUPERUSER } from "./server-settings.ts";

const UNFINISHED_PREFIX = "postgres.new-";

/**
 * Makes the database cluster at the first start. It is made beside its place and moved there when
 * complete, so that a crash in between leaves nothing that a later start could take for a cluster.
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
      `${folders.cluster} holds something that is no Postgres cluster: remove it, or point DATA_DIR elsewhere`,
    );
  }
  removeUnfinished(folders);
  log(`making a database in ${folders.cluster}`);
  const unfinished = join(folders.dataDir, UNFINISHED_PREFIX + crypto.randomUUID());
  mkdirSync(unfinished, { mode: 0o700 });
  giveToServer(context, unfinished);
  if (withPassword) writePassword(context);
  await runInitdb(context, unfinished, withPassword);
  renameSync(unfinished, folders.cluster);
  syncFolder(folders.dataDir);
}

function checkVersion(folders: PostgresFolders, binaries: PostgresBinaries): void {
  const found = readFileSync(join(folders.cluster, "PG_VERSION"), "utf8").trim();
  if (found === binaries.majorVersion) return;
  throw new EmbeddedPostgresError(
    `${folders.cluster} is of Postgres ${found}, this version brings Postgres ${binaries.majorVersion}: dump it with the version that made it and restore the dump into a new folder, or point DATA_DIR elsewhere`,
  );
}

/** What cannot be removed now, because an orphaned initdb still writes to it, is removed later. */
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
    // C order is the fastest and never changes with the system's libraries; letters beyond ASCII
    // still have upper and lower case.
    ...["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
    // Only the server's own user reaches the socket's folder.
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
  const said = errors.trim() === "" ? output : errors;
  throw new EmbeddedPostgresError(`initdb failed: ${said.trim().replaceAll(/\s*\n\s*/g, "; ")}`);
}

/** Makes the rename survive a power cut. */
function syncFolder(path: string): void {
  if (process.platform === "win32") return;
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
