import { readFileSync } from "node:fs";
import { join } from "node:path";
import { commandLineOf } from "./process-table.ts";
import type { ServerAddress } from "./server-settings.ts";

/** postmaster.pid of a running server (PostgreSQL source, src/include/utils/pidfile.h). */
export interface PostmasterRecord {
  readonly pid: number;
  readonly address: ServerAddress;
  /** "starting", "ready", "stopping", "standby", or "" before the first of them. */
  readonly status: string;
}

export function postmasterFilePath(clusterDir: string): string {
  return join(clusterDir, "postmaster.pid");
}

/** Undefined where there is no file; a file without a process number has the number 0. */
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

/** Whether that server was asked to stop. Throws where the file cannot be read. */
export function isStopping(clusterDir: string, pid: number): boolean {
  const record = readPostmasterFile(clusterDir);
  return record?.pid === pid && record.status === "stopping";
}

/** Whether that process is a server of this cluster, and not another that got the same number. */
export function servesCluster(pid: number, clusterDir: string): boolean {
  const line = pid === 0 ? undefined : commandLineOf(pid);
  const program = process.platform === "win32" ? "postgres.exe" : "postgres";
  return line?.includes(`${program} -D ${clusterDir} `) ?? false;
}
