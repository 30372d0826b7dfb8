import { readFileSync } from "node:fs";

/** Whether a process of that number runs; one that ended and was not yet collected does not. */
export function processRuns(pid: number): boolean {
  return process.platform === "linux" ? commandLineOf(pid) !== undefined : numberTaken(pid);
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

/** Program and arguments, parted by spaces; undefined where there is no such process to be seen. */
export function commandLineOf(pid: number): string | undefined {
  const text =
    process.platform === "linux"
      ? fromProc(pid)
      : process.platform === "win32"
        ? fromPowerShell(pid)
        : fromPs(pid);
  return text === "" ? undefined : text;
}

function fromProc(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1).join(" ");
  } catch {
    return "";
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
