import { isConnectionFailure } from "../../db/client.ts";
import { GatewayError } from "../lib/errors.ts";
import { type CommandContext, UsageError } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { helpText } from "./help.ts";
import { parseCommandLine } from "./parse-command-line.ts";
import { printable } from "./print/table.ts";

export interface CliResult {
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
