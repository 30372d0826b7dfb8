import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readPostmasterFile, servesCluster } from "../../db/embedded/process-table.ts";
import { fillDataDir } from "../support/migrated-data-dir.ts";
import { programEnvironment, programFile, programSource } from "../support/programs.ts";
import { until } from "../support/until.ts";

const READY_TIMEOUT_MS = 30_000;
const STOP_TIMEOUT_MS = 15_000;
/** For its output to end after it has ended. */
const LAST_WORDS_MS = 500;
/** Of what a process says, the last so many characters are kept. */
const KEPT_OUTPUT_CHARACTERS = 200_000;

export interface LaunchOptions {
  readonly dataDir: string;
  /** Settings, in addition to DATA_DIR and PORT=0. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Put before the command, to change the user or what starts it. */
  readonly prefix?: readonly string[];
  /** Put behind the command. */
  readonly parameters?: readonly string[];
  /** The folder above the data folder unless told otherwise. */
  readonly cwd?: string;
  /** Never the bundle of the run. */
  readonly fromSource?: boolean;
  /** The file to start, where it is another program. */
  readonly program?: string | undefined;
  /** Replaces Bun and the file. */
  readonly command?: readonly string[];
}

/** A gateway in a process of its own: `src/main.ts`, or what the run has bundled of it. */
export interface GatewayProcess {
  readonly pid: number;
  readonly startedMs: number;
  /** Resolves with its base URL once it says that it listens; rejects where it ends before. */
  readonly listening: Promise<string>;
  /** The exit code, or null where a signal ended it. */
  readonly exited: Promise<number | null>;
  /** What it has said so far. */
  stdout(): string;
  stderr(): string;
  signal(signal: "SIGTERM" | "SIGINT" | "SIGKILL" | "SIGSTOP" | "SIGCONT"): void;
}

/** Starts a gateway without a terminal, out of reach of Ctrl-C. */
export function launchGateway(options: LaunchOptions): GatewayProcess {
  const { dataDir, cwd = join(dataDir, ".."), prefix = [], environment = {} } = options;
  const own = options.fromSource === true ? programSource("gateway") : programFile("gateway");
  const program = options.program ?? own;
  const command = options.command ?? [process.execPath, "--no-env-file", program];
  const startedMs = performance.now();
  const child = Bun.spawn([...prefix, ...command, ...(options.parameters ?? [])], {
    // Not the checkout, where a developer's own configuration may lie.
    cwd,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...programEnvironment(),
      BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
      PORT: "0",
      DATA_DIR: dataDir,
      ...environment,
    },
    detached: true,
  });
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  // Its end is known before the last that it said is read; a child of its own may keep the pipes open.
  let ended = false;
  const exited = child.exited.then(async () => {
    await Promise.race([Promise.all([stdout.ended, stderr.ended]), Bun.sleep(LAST_WORDS_MS)]);
    ended = true;
    return child.exitCode;
  });
  const said = () => [stdout.text().trim(), stderr.text().trim()].join("\n");
  const listening = until(
    "the gateway listens",
    () => {
      const url = /"listening on (http:[^"]+)"/.exec(stdout.text())?.[1];
      if (url !== undefined) return url;
      if (!ended) return undefined;
      throw new Error(`the gateway ended: ${said()}`);
    },
    READY_TIMEOUT_MS,
  ).catch((error: Error) => {
    throw new Error(`${error.message}: ${said()}`);
  });
  // A test that only waits for the end does not have to handle this.
  listening.catch(() => {});
  return {
    pid: child.pid,
    startedMs,
    listening,
    exited,
    stdout: stdout.text,
    stderr: stderr.text,
    signal: (signal) => child.kill(signal),
  };
}

/** Waits for its end and for the last of what it said. */
export async function exitOf(gateway: GatewayProcess): Promise<number | null> {
  const timer = setTimeout(() => gateway.signal("SIGKILL"), STOP_TIMEOUT_MS);
  try {
    return await gateway.exited;
  } finally {
    clearTimeout(timer);
  }
}

function collect(stream: ReadableStream<Uint8Array>): { text(): string; ended: Promise<void> } {
  let text = "";
  const decoder = new TextDecoder();
  const ended = (async () => {
    for await (const bytes of stream) {
      text = (text + decoder.decode(bytes, { stream: true })).slice(-KEPT_OUTPUT_CHARACTERS);
    }
  })();
  return { text: () => text, ended };
}

/** The value of a metric without labels, as /metrics tells it. */
export async function metric(baseUrl: string, name: string): Promise<number> {
  const text = await (await fetch(`${baseUrl}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
}

/** Waits until no money is held: what clients left behind is settled too. */
export async function holdsEnded(baseUrl: string): Promise<void> {
  await until(
    "no hold is outstanding",
    async () => (await metric(baseUrl, "gateway_holds_outstanding")) === 0,
  );
}

/** The number of the server of this data folder, where one runs. */
export function serverPid(dataDir: string): number | undefined {
  const cluster = join(dataDir, "postgres");
  const pid = readPostmasterFile(cluster)?.pid ?? 0;
  return servesCluster(pid, cluster) ? pid : undefined;
}

export function killServer(dataDir: string): void {
  const pid = serverPid(dataDir);
  if (pid !== undefined) process.kill(pid, "SIGKILL");
}

/** Signals the server of this data folder and all its processes: stopped, none of them answers. */
export async function signalServer(dataDir: string, signal: "SIGSTOP" | "SIGCONT"): Promise<void> {
  const server = serverPid(dataDir);
  if (server === undefined) throw new Error("no server runs");
  // While it runs it starts processes, for connections that are being made, and clears away ended ones.
  if (signal === "SIGSTOP") {
    process.kill(server, signal);
    await until("the server stands still", () => isStopped(server));
  }
  for (const pid of childrenOf(server)) process.kill(pid, signal);
  if (signal === "SIGCONT") process.kill(server, signal);
}

/** The processes that this one has started itself. */
export function childrenOf(pid: number): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((one) => parentOf(one) === pid);
}

function parentOf(pid: number): number | undefined {
  return pid > 0 ? Number(statOf(pid)?.[1]) : undefined;
}

/** A signal to stop has arrived: its main thread runs nothing any more. */
export function isStopped(pid: number): boolean {
  return statOf(pid)?.[0] === "T";
}

/** Linux only: /proc/<pid>/stat behind the name, which may hold anything in brackets. */
function statOf(pid: number): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    // It has ended meanwhile.
    return undefined;
  }
}

export interface FirstKeys {
  readonly base_url: string;
  readonly management_key: string;
  readonly secret_key: string;
  readonly operator_url?: string;
}

export function firstKeys(dataDir: string): FirstKeys {
  return JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8")) as FirstKeys;
}

/** Folders and processes of one test file; `clear` ends and removes them all. */
export class Grounds {
  readonly folder: string;
  readonly #processes: GatewayProcess[] = [];
  readonly #dataDirs: string[] = [];

  constructor(name: string) {
    this.folder = mkdtempSync(join(tmpdir(), `gateway-${name}-`));
    // As root the server runs as another user, who has to pass through.
    chmodSync(this.folder, 0o711);
  }

  /** A data folder that does not exist yet. */
  newDataDir(): string {
    const dataDir = join(this.folder, `data-${this.#dataDirs.length}`);
    this.#dataDirs.push(dataDir);
    return dataDir;
  }

  /** A data folder with an empty database, for tests that are not about the first start. */
  async newDataDirWithDatabase(): Promise<string> {
    const dataDir = this.newDataDir();
    await fillDataDir(dataDir);
    return dataDir;
  }

  /** Data folders whose servers run. */
  runningServers(): string[] {
    return this.#dataDirs.filter((dataDir) => serverPid(dataDir) !== undefined);
  }

  launch(options: LaunchOptions): GatewayProcess {
    const gateway = launchGateway(options);
    this.#processes.push(gateway);
    return gateway;
  }

  async clear(): Promise<void> {
    for (const gateway of this.#processes) gateway.signal("SIGKILL");
    await Promise.all(this.#processes.map(({ exited }) => exited));
    for (const dataDir of this.#dataDirs) {
      if (existsSync(dataDir)) killServer(dataDir);
      await until("the server has ended", () => serverPid(dataDir) === undefined);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
