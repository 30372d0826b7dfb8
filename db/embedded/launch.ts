import { delimiter, parse } from "node:path";
import type { PostgresBinaries } from "./binaries.ts";
import { EmbeddedPostgresError } from "./error.ts";
import type { PostgresFolders } from "./folders.ts";
import type { LaunchIdentity, ServerAccount } from "./server-account.ts";

/** What every program of Postgres needs to be started. */
export interface LaunchContext {
  readonly folders: PostgresFolders;
  readonly binaries: PostgresBinaries;
  readonly libraryDirs: readonly string[];
  /** Undefined: our own user. */
  readonly account: ServerAccount | undefined;
  readonly identity: LaunchIdentity;
}

type Output = "pipe" | number;

/**
 * Starts a program as the server's user, with nothing of our environment, which holds secrets.
 * `detached` puts it into a session of its own, out of reach of the terminal's Ctrl-C.
 */
export function spawnAs<O extends Output>(
  { folders, identity, libraryDirs }: LaunchContext,
  command: readonly string[],
  options: { stdout: O; stderr: O; detached?: boolean },
): Bun.Subprocess<"ignore", O, O> {
  const { prefix, ...user } = identity;
  try {
    return Bun.spawn([...prefix, ...command], {
      ...options,
      ...user,
      stdin: "ignore",
      cwd: parse(folders.dataDir).root,
      ...(process.platform === "win32" ? {} : { env: programEnvironment(libraryDirs) }),
    });
  } catch (error) {
    throw new EmbeddedPostgresError(
      `cannot start ${command[0]} (${(error as Error).message}): the embedded Postgres needs a system with glibc and leave to change users when started as root; otherwise set DATABASE_URL`,
    );
  }
}

function programEnvironment(libraryDirs: readonly string[]): Record<string, string> {
  const libraries = libraryDirs.join(delimiter);
  return {
    PATH: "/usr/bin:/bin:/usr/sbin:/sbin",
    LC_ALL: "C",
    LD_LIBRARY_PATH: libraries,
    DYLD_LIBRARY_PATH: libraries,
  };
}
