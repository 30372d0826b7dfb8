import { join } from "node:path";
import { until } from "../support/until.ts";

/** An instance that delivers, as a process that can be killed and paused. */
export interface OwnerProcess {
  /** Webhooks that it said it acts for, last. */
  readonly owned: number;
  readonly cpuMs: () => Promise<number>;
  kill(): Promise<void>;
  pause(): void;
  resume(): void;
  /** In order; resolves when it has ended. */
  stop(): Promise<number>;
}

const START_TIMEOUT_MS = 20_000;
let count = 0;

export async function startOwner(
  databaseUrl: string,
  attemptTimeoutMs: number,
): Promise<OwnerProcess> {
  const child = Bun.spawn(
    [
      process.execPath,
      join(import.meta.dir, "owner.ts"),
      databaseUrl,
      `${process.pid}_${count++}`,
      String(attemptTimeoutMs),
    ],
    {
      stdout: "pipe",
      stderr: "inherit",
      env: { ...process.env, BUN_CONFIG_MAX_HTTP_REQUESTS: "2000" },
    },
  );
  let text = "";
  void (async () => {
    for await (const piece of child.stdout)
      text = (text + Buffer.from(piece).toString()).slice(-2_000);
  })();
  await until("the owner is ready", () => text.includes("ready"), START_TIMEOUT_MS);
  return {
    get owned() {
      return Number(/.*owns (\d+)/s.exec(text)?.[1] ?? 0);
    },
    async cpuMs() {
      const fields = (await Bun.file(`/proc/${child.pid}/stat`).text()).split(") ")[1]!.split(" ");
      return (Number(fields[11]) + Number(fields[12])) * 10;
    },
    async kill() {
      child.kill("SIGKILL");
      await child.exited;
    },
    pause: () => child.kill("SIGSTOP"),
    resume: () => child.kill("SIGCONT"),
    async stop() {
      child.kill("SIGCONT");
      child.kill("SIGTERM");
      return child.exited;
    },
  };
}
