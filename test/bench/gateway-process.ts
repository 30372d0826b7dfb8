import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { findFreePort } from "../support/redis-server.ts";
import { plainEnvironment, stopProcess } from "./children.ts";
import type { Cleanups } from "./cleanups.ts";
import { profileArguments } from "./profile.ts";
import { TRUST, upstreamUrl } from "./upstream-address.ts";
import { MODELS } from "./wire.ts";

const ROOT = join(import.meta.dir, "..", "..");
const READY_TIMEOUT_MS = 60_000;
const READY_POLL_MS = 5;
const SHOWN_ERROR_LENGTH = 2_000;

export interface GatewayOptions {
  /** For the configuration, the data folder and what it says. */
  readonly folder: string;
  readonly upstreamPort: number;
  /** Undefined: the embedded database. */
  readonly databaseUrl: string | undefined;
  /** Undefined: nowhere. */
  readonly logPath: string | undefined;
  /** Where its CPU profile goes; undefined: none. */
  readonly profileDir: string | undefined;
  /** Further settings, by the names of their variables. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface GatewayProcess {
  readonly pid: number;
  readonly port: number;
  readonly baseUrl: string;
  /** From the command to the first answer that it is ready. */
  readonly startMs: number;
  stop(): Promise<void>;
}

export function dataDirOf(folder: string): string {
  return join(folder, "data");
}

/** Starts the gateway with the command of package.json's `start`, and waits until it is ready. */
export async function startGateway(
  options: GatewayOptions,
  cleanups: Cleanups,
): Promise<GatewayProcess> {
  const { folder, upstreamPort, logPath = "/dev/null" } = options;
  const port = await findFreePort();
  const configPath = join(folder, "gateway.config.json");
  await Bun.write(configPath, gatewayConfig(upstreamPort));
  const errorPath = join(folder, "gateway-errors.txt");
  const output = [openSync(logPath, "a"), openSync(errorPath, "w")] as const;
  const { command, environment } = startCommand(options.profileDir);
  const startedMs = performance.now();
  const child = Bun.spawn(command, {
    cwd: ROOT,
    stdio: ["ignore", ...output],
    env: {
      ...plainEnvironment(),
      ...environment,
      ...TRUST,
      ...settings(options, port, configPath),
    },
    // Out of reach of Ctrl-C: a second signal would end it before its database.
    detached: true,
  });
  for (const file of output) closeSync(file);
  const baseUrl = `http://127.0.0.1:${port}`;
  const ready = untilReady(child, baseUrl, startedMs);
  const stop = async () => {
    // Ended while it starts, it could leave behind the database that it is just making.
    await ready;
    await stopProcess(child);
    await stopLeftDatabase(dataDirOf(folder));
  };
  cleanups.add(stop);
  if (!(await ready)) {
    const said = readFileSync(errorPath, "utf8").slice(-SHOWN_ERROR_LENGTH).trim();
    throw new Error(`the gateway did not start: ${said || "it wrote no message"}`);
  }
  return { pid: child.pid, port, baseUrl, startMs: performance.now() - startedMs, stop };
}

async function untilReady(
  child: Bun.Subprocess,
  baseUrl: string,
  startedMs: number,
): Promise<boolean> {
  while (child.exitCode === null && performance.now() - startedMs < READY_TIMEOUT_MS) {
    if (await isReady(baseUrl)) return true;
    await Bun.sleep(READY_POLL_MS);
  }
  return false;
}

/** Variables in front of the command of `start`; the bare proxy gets them too. */
export function startEnvironment(): Record<string, string> {
  return startCommand(undefined).environment;
}

function startCommand(profileDir: string | undefined) {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
    scripts: { start: string };
  };
  const words = scripts.start.split(/\s+/);
  const programAt = words.indexOf("bun");
  const environment = Object.fromEntries(
    words.slice(0, programAt).map((word) => word.split("=", 2) as [string, string]),
  );
  const profiling = profileDir === undefined ? [] : profileArguments(profileDir);
  const rest = words.slice(programAt + 1);
  // A file of settings that lies in the checkout is its owner's, not the benchmark's.
  return { command: [process.execPath, "--no-env-file", ...profiling, ...rest], environment };
}

function settings(
  { folder, databaseUrl, settings: further }: GatewayOptions,
  port: number,
  configPath: string,
): Record<string, string> {
  const masterKey = Buffer.alloc(32, 7).toString("base64");
  return {
    PORT: String(port),
    DATA_DIR: dataDirOf(folder),
    GATEWAY_CONFIG: configPath,
    GATEWAY_STARTING_CREDIT_USD: "1000000",
    ...(databaseUrl === undefined
      ? {}
      : { DATABASE_URL: databaseUrl, GATEWAY_MASTER_KEY: masterKey }),
    ...further,
  };
}

/** The upstream in each of its wires, and its models, with prices. */
function gatewayConfig(upstreamPort: number): string {
  const base_url = `${upstreamUrl(upstreamPort)}/v1`;
  const api_key = "upstream-key";
  return JSON.stringify({
    providers: [
      { id: "bench", type: "openai-compatible", base_url, api_key },
      { id: "bench-anthropic", type: "anthropic", base_url, api_key },
    ],
    models: Object.values(MODELS).map((id) => ({
      id,
      category: "chat",
      context_length: 128_000,
      max_output_tokens: 16_384,
      input_cost_per_token: 1.5e-7,
      output_cost_per_token: 6e-7,
      capabilities: ["streaming"],
      endpoints: [
        { provider: id.startsWith(MODELS.messages) ? "bench-anthropic" : "bench", model: id },
      ],
    })),
  });
}

async function isReady(baseUrl: string): Promise<boolean> {
  try {
    return (await fetch(`${baseUrl}/readyz`, { keepalive: false })).ok;
  } catch {
    return false;
  }
}

/** A gateway that had to be killed leaves its embedded database running. */
async function stopLeftDatabase(dataDir: string): Promise<void> {
  const file = Bun.file(join(dataDir, "postgres", "postmaster.pid"));
  if (!(await file.exists())) return;
  const pid = Number((await file.text()).split("\n")[0]);
  if (!(pid > 0)) return;
  try {
    process.kill(pid, "SIGQUIT");
    while (process.kill(pid, 0)) await Bun.sleep(READY_POLL_MS);
  } catch {
    // It has ended.
  }
}
