import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ServerAddress } from "./cluster.ts";

const SHORTEST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 50;

/**
 * Checks until the condition holds, because another process's state can only be polled.
 *
 * @returns true if it held within `timeoutMs`.
 */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<boolean> {
  const deadlineMs = performance.now() + timeoutMs;
  for (let pauseMs = SHORTEST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, LONGEST_PAUSE_MS)) {
    if (await condition()) return true;
    if (performance.now() >= deadlineMs) return false;
    await Bun.sleep(pauseMs);
  }
}

/**
 * Returns true if a process with this number runs. An ended process that was not yet collected does not run. If the
 * system cannot distinguish the two now, it counts as running.
 */
export function processRuns(pid: number): boolean {
  if (process.platform !== "linux") return isPidUsed(pid);
  try {
    return commandLineOf(pid) !== undefined;
  } catch {
    return isPidUsed(pid);
  }
}

/** Returns true if the system knows a process with this number, running or ended. */
export function isPidUsed(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as { code?: unknown }).code === "EPERM";
  }
}

/**
 * Returns program and arguments, separated by spaces. Returns undefined if no such process is visible. Throws if
 * nothing can be read, for example without free file descriptors: a live server must not count as dead.
 */
export function commandLineOf(pid: number): string | undefined {
  const text =
    process.platform === "linux"
      ? fromProc(pid)
      : process.platform === "win32"
        ? fromPowerShell(pid)
        : fromPs(pid);
  return text === "" ? undefined : text;
}

/** The process has ended, or belongs to another user whose processes are hidden. */
const HIDDEN_PROCESS_CODES = new Set<unknown>(["ENOENT", "ESRCH", "EACCES", "EPERM"]);

function fromProc(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1).join(" ");
  } catch (error) {
    if (HIDDEN_PROCESS_CODES.has((error as { code?: unknown }).code)) return "";
    throw error;
  }
}

function fromPs(pid: number): string {
  const command = ["ps", "-ww", "-o", "command=", "-p", String(pid)];
  return Bun.spawnSync(command).stdout.toString().trimEnd();
}

function fromPowerShell(pid: number): string {
  const query = `(Get-CimInstance Win32_Process -Filter 'ProcessId=${pid}').CommandLine`;
  const command = ["powershell", "-NoProfile", "-Command", query];
  return Bun.spawnSync(command).stdout.toString().replaceAll('"', "").trimEnd();
}

/**
 * Content of postmaster.pid of a running server (PostgreSQL source, src/include/utils/pidfile.h).
 */
export interface PostmasterRecord {
  readonly pid: number;
  readonly address: ServerAddress;
  /** "starting", "ready", "stopping", "standby", or "" before the first of them. */
  readonly status: string;
}

export function postmasterFilePath(clusterDir: string): string {
  return join(clusterDir, "postmaster.pid");
}

/**
 * Reads postmaster.pid. Returns undefined if the file does not exist. A file without a process number has the number 0.
 */
export function readPostmasterFile(clusterDir: string): PostmasterRecord | undefined {
  let lines: string[];
  try {
    lines = readFileSync(postmasterFilePath(clusterDir), "utf8").split("\n");
  } catch (error) {
    if ((error as { code?: unknown }).code === "ENOENT") return undefined;
    throw error;
  }
  const [pid = "", , , port = "", socketDir = "", , , status = ""] = lines;
  return {
    pid: /^[1-9]\d*$/.test(pid) ? Number(pid) : 0,
    address: socketDir === "" ? { kind: "tcp", port: Number(port) } : { kind: "unix", socketDir },
    status: status.trim(),
  };
}

/** Returns true if that server was asked to stop. Throws if the file cannot be read. */
export function isStopping(clusterDir: string, pid: number): boolean {
  const record = readPostmasterFile(clusterDir);
  return record?.pid === pid && record.status === "stopping";
}

/**
 * Returns true if that process is a server of this cluster, and not another process with the same number.
 */
export function servesCluster(pid: number, clusterDir: string): boolean {
  const line = pid === 0 ? undefined : commandLineOf(pid);
  const program = process.platform === "win32" ? "postgres.exe" : "postgres";
  return line?.includes(`${program} -D ${clusterDir} `) ?? false;
}
