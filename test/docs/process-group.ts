import { existsSync, readFileSync } from "node:fs";
import { until } from "../support/until.ts";

const STOP_MS = 15_000;

/** Returns the number in a file, or undefined if the file does not exist. */
export function readPid(path: string): number | undefined {
  return existsSync(path) ? Number(readFileSync(path, "utf8")) : undefined;
}

/** Sends SIGINT to the processes of a group, as Ctrl-C does, and waits until all of them have ended. */
export async function stopProcessGroup(leader: number | undefined): Promise<void> {
  if (leader === undefined || !signal(leader, "SIGINT")) return;
  await until("the processes end", () => !signal(leader, 0), STOP_MS).catch((error: unknown) => {
    signal(leader, "SIGKILL");
    throw error;
  });
}

/** Returns false if the group has no process. */
function signal(leader: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-leader, name);
    return true;
  } catch {
    return false;
  }
}
