import { existsSync, readFileSync, statSync } from "node:fs";
import { delimiter, dirname, parse } from "node:path";
import type { PostgresBinaries, PostgresFolders } from "./folders.ts";

/** The message is one line for the operator, with the remedy if there is one. */
export class EmbeddedPostgresError extends Error {
  override readonly name = "EmbeddedPostgresError";
}

/** The user that the server runs as, if it is not our own: Postgres refuses to run as root. */
export interface ServerAccount {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
}

/** The prefix of a command, and the ids, with which a program starts as that user. */
interface LaunchIdentity {
  readonly prefix: readonly string[];
  readonly uid?: number;
  readonly gid?: number;
}

const PREFERRED_ACCOUNTS = ["postgres", "nobody"];
const SETPRIV_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin";
/** Bits of a capability set (linux/capability.h). */
const CAP_DAC_OVERRIDE = 1n << 1n;
const CAP_DAC_READ_SEARCH = 1n << 2n;

/**
 * Returns the owner of the data if it exists, otherwise a system user. Undefined means our own user.
 */
export function chooseServerAccount(clusterDir: string): ServerAccount | undefined {
  const processUid = process.getuid?.();
  if (processUid === undefined) return undefined;
  const owner = existsSync(clusterDir) ? statSync(clusterDir) : undefined;
  if (processUid !== 0) {
    if (owner === undefined || owner.uid === processUid) return undefined;
    throw new EmbeddedPostgresError(
      `${clusterDir} belongs to user ${owner.uid}, not to ${processUid}: start as that user or as root, or set DATA_DIR to another folder`,
    );
  }
  const accounts = readAccounts();
  if (owner !== undefined && owner.uid !== 0) {
    const name = accounts.find((account) => account.uid === owner.uid)?.name;
    return { uid: owner.uid, gid: owner.gid, name: name ?? String(owner.uid) };
  }
  for (const name of PREFERRED_ACCOUNTS) {
    const account = accounts.find((candidate) => candidate.name === name && candidate.uid > 0);
    if (account !== undefined) return account;
  }
  throw new EmbeddedPostgresError(
    `the embedded Postgres does not run as root, and this machine has no user ${PREFERRED_ACCOUNTS.join(" or ")}: start as a normal user, or set DATABASE_URL`,
  );
}

function readAccounts(): ServerAccount[] {
  if (!existsSync("/etc/passwd")) return [];
  return readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"))
    .map(([name = "", , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
    .filter((account) => Number.isInteger(account.uid) && Number.isInteger(account.gid));
}

/**
 * Plans how to start a program. If the other user cannot reach the program or the data, because a folder above is
 * closed to it (a checkout under /root), it gets the one capability that lets it pass.
 */
export function planLaunch(
  account: ServerAccount | undefined,
  program: string,
  dataDir: string,
): LaunchIdentity {
  if (account === undefined) return { prefix: [] };
  const executable = allows(program, account, 0o5);
  if (executable && reachable(program, account) && reachable(`${dataDir}/-`, account)) {
    return { prefix: [], uid: account.uid, gid: account.gid };
  }
  const capability = traversalCapability(executable);
  const setpriv = Bun.which("setpriv", { PATH: SETPRIV_PATH });
  if (setpriv === null || capability === undefined) {
    throw new EmbeddedPostgresError(
      `user ${account.name}, as whom the embedded Postgres runs, cannot reach ${dataDir} or ${program}: start as a normal user, install setpriv (util-linux), move both below folders open to all, or set DATABASE_URL`,
    );
  }
  const ids = ["--reuid", String(account.uid), "--regid", String(account.gid), "--clear-groups"];
  const rights = ["--inh-caps", `+${capability}`, "--ambient-caps", `+${capability}`];
  // Without this bit access(2), with which Postgres looks for its own programs, ignores capabilities.
  return { prefix: [setpriv, ...ids, ...rights, "--securebits", "+no_setuid_fixup"] };
}

function traversalCapability(executable: boolean): string | undefined {
  if (!existsSync("/proc/self/status")) return undefined;
  const line = /^CapPrm:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"));
  const held = BigInt(`0x${line?.[1] ?? "0"}`);
  // The right to read and search is enough, unless other users may not execute the program itself.
  if (executable && (held & CAP_DAC_READ_SEARCH) !== 0n) return "dac_read_search";
  return (held & CAP_DAC_OVERRIDE) === 0n ? undefined : "dac_override";
}

function reachable(path: string, account: ServerAccount): boolean {
  const parent = dirname(path);
  return allows(parent, account, 0o1) && (parent === path || reachable(parent, account));
}

function allows(path: string, account: ServerAccount, bits: number): boolean {
  const { mode, uid, gid } = statSync(path);
  const shift = uid === account.uid ? 6 : gid === account.gid ? 3 : 0;
  return ((mode >> shift) & bits) === bits;
}

/** Parameters with which each Postgres program starts. */
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
 * Starts a program as the server's user without our environment, which holds secrets. `detached` gives it a session of
 * its own, so that Ctrl-C in the terminal does not reach it.
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
      `cannot start ${command[0]} (${(error as Error).message}): the embedded Postgres needs glibc and, if started as root, permission to change users; otherwise set DATABASE_URL`,
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
