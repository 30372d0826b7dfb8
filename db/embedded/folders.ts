import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { EmbeddedPostgresError } from "./error.ts";
import type { ServerAccount } from "./server-account.ts";

/** What of the data folder belongs to the embedded Postgres. */
export interface PostgresFolders {
  readonly dataDir: string;
  readonly cluster: string;
  readonly libraryLinks: string;
  readonly log: string;
  readonly password: string;
}

const LOG_LIMIT_BYTES = 10 * 1024 * 1024;
/** sockaddr_un has 108 bytes on Linux and 104 on macOS, with a final zero. */
const SOCKET_PATH_LIMIT_BYTES = 103;
const SOCKET_FILE_NAME = "/.s.PGSQL.5432";

/** Makes the data folder, private to its user; others may pass through where the server is another. */
export function prepareDataFolder(dataDir: string): PostgresFolders {
  const wanted = resolve(dataDir);
  if (!existsSync(wanted)) {
    mkdirSync(wanted, { recursive: true });
    chmodSync(wanted, process.getuid?.() === 0 ? 0o711 : 0o700);
  }
  const path = realpathSync(wanted);
  return {
    dataDir: path,
    cluster: join(path, "postgres"),
    libraryLinks: join(path, "postgres-lib"),
    log: join(path, "postgres.log"),
    password: join(path, "postgres.password"),
  };
}

/** Bounds what the logs of many starts add up to. To be called while no server writes to it. */
export function rotateLog(path: string): void {
  if (!existsSync(path) || statSync(path).size <= LOG_LIMIT_BYTES) return;
  renameSync(path, `${path}.1`);
}

/**
 * A folder that only the server's user enters: whoever reaches the socket is let in. The name is the
 * same at every start, in the data folder if a socket's path may be that long.
 */
export function prepareSocketFolder(
  folders: PostgresFolders,
  account: ServerAccount | undefined,
): string {
  const inside = join(folders.dataDir, "postgres-socket");
  const hash = new Bun.CryptoHasher("sha256").update(folders.dataDir).digest("hex").slice(0, 16);
  const fits = Buffer.byteLength(inside + SOCKET_FILE_NAME) <= SOCKET_PATH_LIMIT_BYTES;
  const path = fits ? inside : join(realpathSync(tmpdir()), `gateway-${hash}`);
  if (!existsSync(path)) {
    mkdirSync(path, { mode: 0o700 });
    if (account !== undefined) chownSync(path, account.uid, account.gid);
  }
  const found = lstatSync(path);
  const owner = account?.uid ?? process.getuid?.();
  if (!found.isDirectory() || found.uid !== owner || (found.mode & 0o077) !== 0) {
    throw new EmbeddedPostgresError(
      `${path} must be a folder of mode 0700 that belongs to user ${account?.name ?? owner}: remove it`,
    );
  }
  return path;
}

/** Leaves nothing outside the data folder. To be called once the server has ended. */
export function removeSocketFolder(folders: PostgresFolders, path: string): void {
  if (!path.startsWith(folders.dataDir)) rmSync(path, { recursive: true, force: true });
}
