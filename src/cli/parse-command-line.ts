import { parseArgs } from "node:util";
import { type Command, type CommandInput, commandName, UsageError } from "./command.ts";

export type ParsedCommandLine =
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
export function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
): ParsedCommandLine {
  const [noun, ...afterNoun] = argv;
  if (noun === undefined || noun === "--help" || noun === "-h") return { kind: "help", commands };
  const ofNoun = commands.filter((command) => command.noun === noun);
  if (ofNoun.length === 0) {
    throw new UsageError(`unknown command ${shown(noun)}: ${listed(nounsOf(commands))}, or --help`);
  }
  const [verb, ...afterVerb] = afterNoun;
  if (ofNoun[0]!.verb !== undefined && (verb === "--help" || verb === "-h")) {
    return { kind: "help", commands: ofNoun };
  }
  const command = ofNoun.find((one) => one.verb === undefined || one.verb === verb);
  if (command === undefined) {
    const found = verb === undefined ? "needs a verb" : `has no ${shown(verb)}`;
    throw new UsageError(`${noun} ${found}: ${listed(ofNoun.map((one) => one.verb!))}, or --help`);
  }
  const tokens = tokenize(command, command.verb === undefined ? afterNoun : afterVerb);
  if (tokens.some((token) => token.kind === "option" && token.name === "help")) {
    return { kind: "help", commands: [command] };
  }
  return { kind: "run", command, ...readTokens(command, tokens) };
}

/** Without `strict`, because only then is the `-5` of `--amount-usd -5` taken for a value. */
function tokenize(command: Command, args: readonly string[]) {
  const own = Object.entries(command.options).map(([name, option]) => [
    name,
    { type: option.value === undefined ? ("boolean" as const) : ("string" as const) },
  ]);
  const options = { ...Object.fromEntries(own), ...COMMON_FLAGS };
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
      throw new UsageError(`${token.rawName} is given twice`);
    }
    options[token.name] = value;
  }
  const allowed = command.positional === undefined ? 0 : 1;
  if (positionals.length > allowed) {
    throw new UsageError(`${commandName(command)} does not take ${shown(positionals[allowed]!)}`);
  }
  for (const [name, { isRequired }] of Object.entries(command.options)) {
    if (isRequired && options[name] === undefined) {
      throw new UsageError(`${commandName(command)} needs --${name}`);
    }
  }
  const { json, ...own } = options;
  return { input: { options: own, positional: positionals[0] }, asJson: json !== undefined };
}

function optionValue(command: Command, token: Extract<Token, { kind: "option" }>): string {
  const { name, rawName, value, inlineValue } = token;
  const isFlag = Object.hasOwn(COMMON_FLAGS, name);
  const option = Object.hasOwn(command.options, name) ? command.options[name] : undefined;
  if (option === undefined && !isFlag) {
    throw new UsageError(`${commandName(command)} has no option ${shown(rawName)}`);
  }
  if (option?.value === undefined) {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`);
    return "";
  }
  if (value === undefined) throw new UsageError(`${rawName} needs a value`);
  if (!inlineValue && value.startsWith("-") && !NEGATIVE_NUMBER.test(value)) {
    throw new UsageError(
      `${rawName} needs a value; one that begins with - is given as ${rawName}=…`,
    );
  }
  return value;
}

function nounsOf(commands: readonly Command[]): string[] {
  return [...new Set(commands.map(({ noun }) => noun))];
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
