import { join } from "node:path";
import type { Cleanups } from "./cleanups.ts";

const STOP_TIMEOUT_MS = 10_000;

/** A process of the benchmark's own that speaks over the channel between parent and child. */
export interface Child {
  readonly pid: number;
  /** The next message that it sends. Rejects where it ends instead. */
  next(): Promise<unknown>;
  send(message: unknown): void;
}

/** Starts a file of this folder. The child ends when this process does. */
export function startChild(
  file: string,
  cleanups: Cleanups,
  args: readonly string[] = [],
  environment: Record<string, string> = {},
): Child {
  const queue: unknown[] = [];
  let waiting: PromiseWithResolvers<unknown> | undefined;
  const child = Bun.spawn([process.execPath, join(import.meta.dir, file), ...args], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...plainEnvironment(), ...environment },
    // Out of reach of Ctrl-C, so that ends come in the right order.
    detached: true,
    serialization: "json",
    ipc(message) {
      if (waiting === undefined) return void queue.push(message);
      waiting.resolve(message);
      waiting = undefined;
    },
    onExit: () => waiting?.reject(new Error(`${file} ended too early`)),
  });
  cleanups.add(() => stopProcess(child));
  return {
    pid: child.pid,
    async next() {
      if (queue.length > 0) return queue.shift();
      if (child.exitCode !== null) throw new Error(`${file} ended too early`);
      waiting = Promise.withResolvers();
      return await waiting.promise;
    },
    send: (message) => void child.send(message),
  };
}

/** The same for one that listens, and says where. */
export async function startServer(
  file: string,
  cleanups: Cleanups,
  args: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<Child & { readonly port: number }> {
  const child = startChild(file, cleanups, args, environment);
  const { port } = (await child.next()) as { port: number };
  return { ...child, port };
}

/** SIGTERM, then, after a while, SIGKILL. */
export async function stopProcess(child: Bun.Subprocess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_TIMEOUT_MS);
  await child.exited;
  clearTimeout(timer);
}

/** What a process needs of the environment, without any setting that the person at the terminal has. */
export function plainEnvironment(): Record<string, string> {
  const names = ["PATH", "HOME", "TMPDIR", "USER", "LANG", "SYSTEMROOT"];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
