import type { Environment } from "../../platform/config/environment.ts";

export interface OptionDefinition {
  /** Name of the value in the help, such as ID. Absent if the option takes no value. */
  readonly value?: string;
  readonly meaning: string;
  /** The accepted values, if they are few. Shells complete them. */
  readonly choices?: readonly string[];
  readonly isRequired?: boolean;
}

/** The arguments of a command, checked: no unknown option, and all required ones. */
export interface CommandInput {
  readonly options: Readonly<Record<string, string | undefined>>;
  readonly positional: string | undefined;
}

export interface CommandContext {
  readonly environment: Environment;
  readonly cwd: string;
  /** Milliseconds since the epoch. */
  nowMs(): number;
  /** Shows progress to the operator while a command runs. Never a secret. */
  log(message: string): void;
  /** Aborted when the operator interrupts the command. */
  readonly interrupted: AbortSignal;
}

/** The result of a command: data for programs, text for people. */
export interface Report {
  readonly data: unknown;
  readonly text: string;
  /** True if the command did its work and found a fault. */
  readonly isFailure?: boolean;
}

export interface Command {
  readonly noun: string;
  /** Absent if the command is the noun alone. */
  readonly verb?: string;
  readonly summary: string;
  readonly options: Readonly<Record<string, OptionDefinition>>;
  /** Name of the positional argument in the help. Absent if the command takes none. */
  readonly positional?: string;
  /** True if the positional argument is a path. Shells complete it. */
  readonly isPositionalFile?: boolean;
  run(input: CommandInput, context: CommandContext): Promise<Report>;
}

/** The command line is invalid: one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export function commandName(command: Command): string {
  return command.verb === undefined ? command.noun : `${command.noun} ${command.verb}`;
}
