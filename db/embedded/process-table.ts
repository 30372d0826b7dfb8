import { readFileSync } from "node:fs";

/**
 * Whether a process of that number runs; one that ended and was not yet collected does not. Where the
 * system does not tell the two apart for now, each runs.
 */
export function processRuns(pid: number): boolean {
  if (process.platform !== "linux") return numberTaken(pid);
  try {
    return commandLineOf(pid) !== undefined;
  } catch {
    return numberTaken(pid);
  }
}

/** Whether the system knows a process of that number, ended or not. */
export function numberTaken(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as { code?: unknown }).code === "EPERM";
  }
}

/**
 * Program and arguments, parted by spaces; undefined where there is no such process to be seen. Throws where
 * nothing can be seen, for want of file descriptors for instance: a server that lives is not to be taken for
 * a dead one.
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

/** Ended, or another user's where those are hidden. */
const NOT_TO_BE_SEEN = new Set<unknown>(["ENOENT", "ESRCH", "EACCES", "EPERM"]);

function fromProc(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1).join(" ");
  } catch (error) {
    if (NOT_TO_BE_SEEN.has((error as { code?: unknown }).code)) return "";
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
