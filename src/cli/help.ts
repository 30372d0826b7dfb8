import { type Command, commandName } from "./command.ts";
import { alignColumns } from "./print/table.ts";

const PROGRAM = "bun run cli";

const COMMON: readonly (readonly [string, string])[] = [
  ["--json", "print JSON, for programs"],
  ["--help", "say how it is used"],
];

/** How one command is used, or what several are for. */
export function helpText(commands: readonly Command[]): string {
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
