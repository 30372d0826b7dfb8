import type { Environment } from "../../platform/config/environment.ts";

export interface OptionDefinition {
  /** What stands for its value in the help, such as ID; absent: it takes none. */
  readonly value?: string;
  readonly meaning: string;
  readonly isRequired?: boolean;
}

/** What was typed behind a command: every option is known, and the required ones are there. */
export interface CommandInput {
  readonly options: Readonly<Record<string, string | undefined>>;
  readonly positional: string | undefined;
}

export interface CommandContext {
  readonly environment: Environment;
  readonly cwd: string;
  /** Milliseconds since the epoch. */
  nowMs(): number;
  /** News for the operator while a command runs; never a secret. */
  log(message: string): void;
  /** Aborted when the operator gives up waiting. */
  readonly interrupted: AbortSignal;
}

/** What a command has to say: to programs, and to people. */
export interface Report {
  readonly data: unknown;
  readonly text: string;
  /** The command did its work and found something wrong. */
  readonly isFailure?: boolean;
}

export interface Command {
  readonly noun: string;
  /** Absent where the noun says it all. */
  readonly verb?: string;
  readonly summary: string;
  readonly options: Readonly<Record<string, OptionDefinition>>;
  /** What stands in the help for an argument that is no option; absent: it takes none. */
  readonly positional?: string;
  run(input: CommandInput, context: CommandContext): Promise<Report>;
}

/** The command line itself is at fault: one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export function commandName(command: Command): string {
  return command.verb === undefined ? command.noun : `${command.noun} ${command.verb}`;
}
