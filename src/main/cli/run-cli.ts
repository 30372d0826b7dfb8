import { parseArgs } from "node:util";
import { isConnectionFailure } from "../../../db/client.ts";
import { describeFailure, isDatabaseFailure } from "../../../db/connect-failure.ts";
import { version } from "../../../package.json";
import { GatewayError } from "../../lib/errors.ts";
import { didYouMean } from "../../lib/nearest-names.ts";
import { printable } from "../../lib/printable.ts";
import {
  type Command,
  type CommandContext,
  type CommandInput,
  commandName,
  UsageError,
} from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { helpText } from "./help.ts";

interface CliResult {
  readonly exitCode: number;
  readonly output: string;
  /** The failure in at most one line. */
  readonly errorText: string;
}

const FAILED = 1;
const MISUSED = 2;

/** Runs one command. Never rejects: every outcome is an exit code and at most one line of failure. */
export async function runCli(argv: readonly string[], context: CommandContext): Promise<CliResult> {
  try {
    const parsed = parseCommandLine(argv, COMMANDS);
    if (parsed.kind === "version") {
      return { exitCode: 0, output: `${version}\n`, errorText: "" };
    }
    if (parsed.kind === "help") {
      return { exitCode: 0, output: helpText(parsed.commands), errorText: "" };
    }
    const report = await parsed.command.run(parsed.input, context);
    const output = parsed.asJson ? `${JSON.stringify(report.data, null, 2)}\n` : report.text;
    return { exitCode: report.isFailure ? FAILED : 0, output, errorText: "" };
  } catch (error) {
    const exitCode = error instanceof UsageError ? MISUSED : FAILED;
    return { exitCode, output: "", errorText: `${failureText(error)}\n` };
  }
}

function failureText(error: unknown): string {
  const isOfDatabase = !(error instanceof GatewayError) && isDatabaseFailure(error);
  const message = error instanceof Error ? error.message : String(error);
  const text = isOfDatabase ? describeFailure(error) : message;
  const line = printable(text.replaceAll(/\s*\n\s*/g, "; "));
  if (error instanceof GatewayError) return `${error.code}: ${line}`;
  return isConnectionFailure(error) ? `database_unavailable: ${line}` : line;
}

type ParsedCommandLine =
  | { readonly kind: "version" }
  | { readonly kind: "help"; readonly commands: readonly Command[] }
  | {
      readonly kind: "run";
      readonly command: Command;
      readonly input: CommandInput;
      readonly asJson: boolean;
    };

const COMMON_FLAGS = { json: { type: "boolean" }, help: { type: "boolean", short: "h" } } as const;
const NEGATIVE_NUMBER = /^-\.?\d/;

type Token = ReturnType<typeof tokenize>[number];

/** Finds the command and reads its arguments. Throws UsageError. */
function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
): ParsedCommandLine {
  const [noun, ...afterNoun] = argv;
  if (noun === undefined || noun === "--help" || noun === "-h") return { kind: "help", commands };
  if (noun === "help") return { kind: "help", commands: namedCommands(afterNoun, commands) };
  if (noun === "--version" || noun === "-v") return { kind: "version" };
  const ofNoun = commandsOf(noun, commands);
  const [verb, ...afterVerb] = afterNoun;
  if (ofNoun[0]!.verb !== undefined && (verb === "--help" || verb === "-h")) {
    return { kind: "help", commands: ofNoun };
  }
  const command = ofNoun.find((one) => one.verb === undefined || one.verb === verb);
  if (command === undefined) {
    const verbs = ofNoun.map((one) => one.verb!);
    const found = verb === undefined ? "needs a verb" : `has no ${shown(verb)}`;
    const suggestion = verb === undefined ? "" : didYouMean(verb, verbs);
    throw new UsageError(`${noun} ${found}${suggestion || `; use ${listed(verbs)}, or --help`}`);
  }
  const tokens = tokenize(command, command.verb === undefined ? afterNoun : afterVerb);
  if (tokens.some((token) => token.kind === "option" && token.name === "help")) {
    return { kind: "help", commands: [command] };
  }
  return { kind: "run", command, ...readTokens(command, tokens) };
}

/** Returns the commands that `help` describes. Throws UsageError if there are none. */
function namedCommands(
  [noun, verb]: readonly string[],
  commands: readonly Command[],
): readonly Command[] {
  if (noun === undefined) return commands;
  const ofNoun = commandsOf(noun, commands);
  const named = ofNoun.filter((command) => command.verb === verb);
  return named.length > 0 ? named : ofNoun;
}

/** Throws UsageError for an unknown noun. */
function commandsOf(noun: string, commands: readonly Command[]): readonly Command[] {
  const ofNoun = commands.filter((command) => command.noun === noun);
  if (ofNoun.length > 0) return ofNoun;
  const nouns = [...new Set(commands.map((command) => command.noun))];
  const suggestion = didYouMean(noun, nouns);
  throw new UsageError(
    `unknown command ${shown(noun)}${suggestion || `; use ${listed(nouns)}, or --help`}`,
  );
}

/** Splits the arguments into tokens. Not `strict`, because only then `-5` in `--amount-usd -5` is a value. */
function tokenize(command: Command, args: readonly string[]) {
  const commandOptions = Object.entries(command.options).map(([name, option]) => [
    name,
    { type: option.value === undefined ? ("boolean" as const) : ("string" as const) },
  ]);
  const options = { ...Object.fromEntries(commandOptions), ...COMMON_FLAGS };
  const parsed = parseArgs({
    args: [...args],
    strict: false,
    allowPositionals: true,
    tokens: true,
    options,
  });
  return parsed.tokens;
}

function readTokens(
  command: Command,
  tokens: readonly Token[],
): { input: CommandInput; asJson: boolean } {
  const options: Record<string, string> = {};
  const positionals: string[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") positionals.push(token.value);
    if (token.kind !== "option") continue;
    const value = optionValue(command, token);
    if (Object.hasOwn(options, token.name)) {
      throw new UsageError(`${token.rawName} is repeated`);
    }
    options[token.name] = value;
  }
  const allowed = command.positional === undefined ? 0 : 1;
  if (positionals.length > allowed) {
    throw new UsageError(`${commandName(command)} does not accept ${shown(positionals[allowed]!)}`);
  }
  for (const [name, { isRequired }] of Object.entries(command.options)) {
    if (isRequired && options[name] === undefined) {
      throw new UsageError(`${commandName(command)} needs --${name}`);
    }
  }
  const { json, ...commandOptions } = options;
  return {
    input: { options: commandOptions, positional: positionals[0] },
    asJson: json !== undefined,
  };
}

function optionValue(command: Command, token: Extract<Token, { kind: "option" }>): string {
  const { name, rawName, value, inlineValue } = token;
  const isFlag = Object.hasOwn(COMMON_FLAGS, name);
  const option = Object.hasOwn(command.options, name) ? command.options[name] : undefined;
  if (option === undefined && !isFlag) {
    const names = [...Object.keys(command.options), ...Object.keys(COMMON_FLAGS)];
    const suggestion = didYouMean(
      rawName,
      names.map((one) => `--${one}`),
    );
    throw new UsageError(`${commandName(command)} has no option ${shown(rawName)}${suggestion}`);
  }
  if (option?.value === undefined) {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`);
    return "";
  }
  if (value === undefined) throw new UsageError(`${rawName} needs a value`);
  if (!inlineValue && value.startsWith("-") && !NEGATIVE_NUMBER.test(value)) {
    throw new UsageError(
      `${rawName} needs a value; write a value that begins with - as ${rawName}=…`,
    );
  }
  return value;
}

function listed(words: readonly string[]): string {
  return words.length === 1 ? words[0]! : `one of ${words.join(", ")}`;
}

const SHOWN_CHARACTERS = 60;

function shown(text: string): string {
  return JSON.stringify(
    text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text,
  );
}
