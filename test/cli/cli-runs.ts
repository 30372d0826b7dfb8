import { runCli } from "../../src/main/cli/run-cli.ts";
import { programEnvironment, programFile } from "../support/programs.ts";

type Settings = Readonly<Record<string, string>>;

export interface CliRun {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of the operator in this process, with these settings alone. */
export async function runCliHere(settings: Settings, ...argv: readonly string[]): Promise<CliRun> {
  let news = "";
  const {
    exitCode,
    output,
    errorText: complaint,
  } = await runCli(argv, {
    environment: settings,
    // A folder without a gateway.config.json.
    cwd: import.meta.dir,
    nowMs: Date.now,
    log: (message) => {
      news += `${message}\n`;
    },
    interrupted: new AbortController().signal,
  });
  return { exitCode, stdout: output, stderr: news + complaint };
}

/** The same in a process of its own, as an operator does. */
export async function runCliProcess(
  settings: Settings,
  ...argv: readonly string[]
): Promise<CliRun> {
  const child = spawnCli(settings, ...argv);
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { exitCode, stdout, stderr };
}

export function spawnCli(
  settings: Settings,
  ...argv: readonly string[]
): Bun.Subprocess<"ignore", "pipe", "pipe"> {
  return Bun.spawn([process.execPath, programFile("cli"), ...argv], {
    cwd: import.meta.dir,
    env: { ...programEnvironment(), ...settings },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

const MIGRATION_PROGRESS = /^(?:migrat(?:ing|ed) the database|waiting for another gateway).*\n/gm;

/** What --json printed. Fails if the command failed, or said more than how a migration goes on. */
export function printed<Shape>({ exitCode, stdout, stderr }: CliRun): Shape {
  if (exitCode !== 0 || stderr.replaceAll(MIGRATION_PROGRESS, "") !== "")
    throw new Error(`exit code ${exitCode}: ${stderr}`);
  return JSON.parse(stdout) as Shape;
}

export async function cliJson<Shape>(
  settings: Settings,
  ...argv: readonly string[]
): Promise<Shape> {
  return printed<Shape>(await runCliHere(settings, ...argv, "--json"));
}
