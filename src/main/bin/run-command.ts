import { spawn } from "node:child_process";
import { join } from "node:path";
import manifest from "../../../package.json" with { type: "json" };

const USAGE = `model-gateway ${manifest.version}

  model-gateway                     Start the gateway.
  model-gateway --workers N         Start N processes. Needs DATABASE_URL and REDIS_URL.
  model-gateway cli <noun> <verb>   Run an operator's command. "cli help" lists them.
  model-gateway --version           Print the version.
`;

/** Settings that Bun reads when it starts, as `bun run start` sets them. */
const BUN_SETTINGS = Object.fromEntries(
  [...manifest.scripts.start.matchAll(/\b(BUN_\w+)=(\S+)/g)].map(([, name, value]) => [
    name!,
    value!,
  ]),
);

interface Command {
  readonly parameters: readonly string[];
  /** Folder of the bundled programs. A function, because the executable unpacks it only if it is needed. */
  readonly folder: () => string | Promise<string>;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/**
 * Runs the command `model-gateway`. The program takes the place of this process, so it receives signals directly.
 * On Windows it runs as a child process.
 */
export async function runCommand({ parameters, folder, environment }: Command): Promise<void> {
  const [first, ...rest] = parameters;
  if (first === "help" || first === "--help" || first === "-h") return print(USAGE);
  if (first === "--version" || first === "-v") return print(`${manifest.version}\n`);
  const isCli = first === "cli";
  const script = join(await folder(), isCli ? "src/main/cli/main.js" : "src/main.js");
  const command = [process.execPath, "--no-env-file", script, ...(isCli ? rest : parameters)];
  replaceProcess(command, { ...BUN_SETTINGS, ...environment });
}

function print(text: string): void {
  process.stdout.write(text);
}

function replaceProcess(command: readonly string[], environment: Command["environment"]): void {
  const [file, ...parameters] = command as [string, ...string[]];
  if (process.platform !== "win32") {
    process.execve!(file, [...command], environment as NodeJS.ProcessEnv);
  }
  const child = spawn(file, parameters, { env: environment, stdio: "inherit" });
  // Windows sends Ctrl-C to both processes, and this one has to wait for the other.
  process.on("SIGINT", () => {});
  child.on("exit", (code) => process.exit(code ?? 1));
}
