import { CLI } from "../../lib/command-line.ts";
import { type Command, commandName } from "./command.ts";

/** Columns of a terminal that every help text fits. */
const COLUMNS = 80;
const INDENT = "  ";
/** The widest first column. Longer entries have their text on the next line. */
const MAX_ENTRY_WIDTH = 26;

const COMMON: readonly (readonly [string, string])[] = [
  ["--json", "print JSON for programs"],
  ["--help", "show this help"],
];

/** Returns the help of one command, or a list of several with their summaries. */
export function helpText(commands: readonly Command[]): string {
  const [only] = commands;
  return commands.length === 1 && only ? commandHelp(only) : listHelp(commands);
}

function listHelp(commands: readonly Command[]): string {
  return sections([
    [`Usage: ${CLI} <command> [options]`],
    entries(commands.map((command) => [commandName(command), command.summary])),
    entries([...COMMON, ["--version", "print the version of the gateway"]]),
    [`"${CLI} help <command>" shows the options of a command.`],
  ]);
}

function commandHelp(command: Command): string {
  const options = Object.entries(command.options).map(
    ([name, { value, meaning, isRequired }]) =>
      [optionText(name, value), isRequired ? `${meaning} (required)` : meaning] as const,
  );
  return sections([
    wrapped(command.summary, COLUMNS),
    [`Usage: ${CLI} ${usage(command)}`],
    entries([...options, ...COMMON]),
  ]);
}

/** Returns the command with its required options. */
function usage(command: Command): string {
  const required = Object.entries(command.options)
    .filter(([, { isRequired }]) => isRequired)
    .map(([name, { value }]) => optionText(name, value));
  const positional = command.positional === undefined ? [] : [`[${command.positional}]`];
  return [commandName(command), ...required, ...positional, "[options]"].join(" ");
}

function optionText(name: string, value: string | undefined): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

/** Returns lines of two aligned columns, with the texts of the second one wrapped. */
function entries(rows: readonly (readonly [string, string])[]): string[] {
  const widths = rows.map(([entry]) => entry.length).filter((width) => width <= MAX_ENTRY_WIDTH);
  const width = Math.max(...widths);
  const start = INDENT.length + width + INDENT.length;
  return rows.flatMap(([entry, text]) => {
    const [first, ...others] = wrapped(text, COLUMNS - start);
    const rest = others.map((line) => " ".repeat(start) + line);
    return entry.length > width
      ? [INDENT + entry, " ".repeat(start) + first, ...rest]
      : [INDENT + entry.padEnd(width) + INDENT + first, ...rest];
  });
}

function wrapped(text: string, columns: number): string[] {
  return Bun.wrapAnsi(text, columns).split("\n");
}

function sections(parts: readonly (readonly string[])[]): string {
  return `${parts.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}
