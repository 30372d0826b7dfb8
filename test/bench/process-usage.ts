import { readFileSync, writeFileSync } from "node:fs";

export interface ProcessUsage {
  /** User and system time since the start. */
  readonly cpuSeconds: number;
  readonly residentMb: number;
  /** The most since the start or the last `resetPeak`; where the system does not tell, `residentMb`. */
  readonly peakMb: number;
}

/** Linux reports times to programs in hundredths of a second, independent of the kernel's own unit (proc(5)). */
const TICKS_PER_SECOND = 100;
const KB_PER_MB = 1024;

/** CPU time and memory of one process, without its children. */
export function readUsage(pid: number): ProcessUsage {
  return process.platform === "linux" ? readProc(pid) : askPs(pid);
}

/** Resets the peak; does nothing where that is not possible. */
export function resetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, "5");
  } catch {
    // Then the peak is that of the whole life of the process, which is only stricter.
  }
}

/** CPU time that the whole machine spent at work, in seconds; undefined where it does not tell. */
export function readMachineCpuSeconds(): number | undefined {
  if (process.platform !== "linux") return undefined;
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0] = readFileSync(
    "/proc/stat",
    "utf8",
  )
    .slice(4, 200)
    .trim()
    .split(/\s+/)
    .map(Number);
  return (user + nice + system + irq + softIrq) / TICKS_PER_SECOND;
}

function readProc(pid: number): ProcessUsage {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The second field is the program's name in brackets, and may hold spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const megabytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? Number.NaN) / KB_PER_MB;
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND,
    residentMb: megabytes("VmRSS"),
    peakMb: megabytes("VmHWM"),
  };
}

function askPs(pid: number): ProcessUsage {
  const { stdout } = Bun.spawnSync(["ps", "-o", "time=,rss=", "-p", String(pid)]);
  const [time = "", kilobytes = ""] = stdout.toString().trim().split(/\s+/);
  const cpuSeconds = time.split(/[:-]/).reduce((sum, part) => sum * 60 + Number(part), 0);
  const residentMb = Number(kilobytes) / KB_PER_MB;
  return { cpuSeconds, residentMb, peakMb: residentMb };
}
