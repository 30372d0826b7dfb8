import { isConnectionFailure } from "../../db/client.ts";
import { GatewayError } from "../lib/errors.ts";
import { type Command, type CommandContext, commandName, UsageError } from "./command.ts";
import { creditCommands } from "./nouns/credits.ts";
import { doctorCommands } from "./nouns/doctor.ts";
import { keyCommands } from "./nouns/keys.ts";
import { masterKeyCommands } from "./nouns/maintenance.ts";
import { migrateCommands } from "./nouns/migrate.ts";
import { modelCommands } from "./nouns/models.ts";
import { organizationCommands } from "./nouns/org.ts";
import { parseCommandLine } from "./parse-command-line.ts";
import { alignColumns, printable } from "./print.ts";

interface CliResult {
  readonly exitCode: number;
  readonly output: string;
  /** At most one line. */
  readonly complaint: string;
}

const FAILED = 1;
const MISUSED = 2;

/** Runs one command; whatever happens ends in an exit code and at most one line of complaint. */
export async function runCli(argv: readonly string[], context: CommandContext): Promise<CliResult> {
  try {
    const parsed = parseCommandLine(argv, COMMANDS);
    if (parsed.kind === "help") {
      return { exitCode: 0, output: helpText(parsed.commands), complaint: "" };
    }
    const report = await parsed.command.run(parsed.input, context);
    const output = parsed.asJson ? `${JSON.stringify(report.data, null, 2)}\n` : report.text;
    return { exitCode: report.isFailure ? FAILED : 0, output, complaint: "" };
  } catch (error) {
    const exitCode = error instanceof UsageError ? MISUSED : FAILED;
    return { exitCode, output: "", complaint: `${complaintOf(error)}\n` };
  }
}

function complaintOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const line = printable(message.replaceAll(/\s*\n\s*/g, "; "));
  if (error instanceof GatewayError) return `${error.code}: ${line}`;
  return isConnectionFailure(error) ? `database_unavailable: ${line}` : line;
}

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [
  ...organizationCommands,
  ...keyCommands,
  ...creditCommands,
  ...masterKeyCommands,
  ...migrateCommands,
  ...modelCommands,
  ...doctorCommands,
];

const PROGRAM = "bun run cli";

const COMMON: readonly (readonly [string, string])[] = [
  ["--json", "print JSON, for programs"],
  ["--help", "say how it is used"],
];

/** How one command is used, or what several are for. */
function helpText(commands: readonly Command[]): string {
  const [only] = commands;
  return commands.length === 1 && only ? commandHelp(only) : listHelp(commands);
}

function listHelp(commands: readonly Command[]): string {
  const lines = alignColumns(commands.map((command) => [usage(command), command.summary]));
  return `Usage: ${PROGRAM} <noun> <verb> [options]\n\n${indented(lines)}\n\n${indented(alignColumns(COMMON))}\n`;
}

function commandHelp(command: Command): string {
  const options = Object.entries(command.options).map(
    ([name, { value, meaning }]) =>
      [value === undefined ? `--${name}` : `--${name} ${value}`, meaning] as const,
  );
  return `${command.summary}\n\nUsage: ${PROGRAM} ${usage(command)}\n\n${indented(alignColumns([...options, ...COMMON]))}\n`;
}

function usage(command: Command): string {
  const options = Object.entries(command.options).map(([name, { value, isRequired }]) => {
    const option = value === undefined ? `--${name}` : `--${name} ${value}`;
    return isRequired ? option : `[${option}]`;
  });
  const positional = command.positional === undefined ? [] : [`[${command.positional}]`];
  return [commandName(command), ...options, ...positional].join(" ");
}

function indented(lines: readonly string[]): string {
  return lines.map((line) => `  ${line}`).join("\n");
}
