import { type Command, commandName } from "../command.ts";

export interface CompletedWord {
  readonly word: string;
  readonly description: string;
}

export interface CompletedOption extends CompletedWord {
  readonly takesValue: boolean;
  /** Values to offer. Empty if the shell has none to offer. */
  readonly choices: readonly string[];
}

/** The completion after one line of words, such as `keys create`. */
export interface CompletionNode {
  /** The words after the name of the program, separated by spaces. */
  readonly line: string;
  /** True if any words may follow the line, such as options with their values. */
  readonly isCommand: boolean;
  readonly words: readonly CompletedWord[];
  readonly options: readonly CompletedOption[];
  readonly takesFile: boolean;
}

const HELP = flag("--help", "show the help");
const JSON_FLAG = flag("--json", "print JSON for programs");

/**
 * Returns the lines of words that shells complete. With `prefix`, that word comes before every command, and the options
 * of a start come beside it.
 */
export function completionTree(
  commands: readonly Command[],
  prefix: string | undefined,
): CompletionNode[] {
  const join = (line: string) => [prefix, line].filter(Boolean).join(" ");
  const verbs = Map.groupBy(
    commands.filter(({ verb }) => verb !== undefined),
    ({ noun }) => noun,
  );
  const nouns = [...new Set(commands.map(({ noun }) => noun))].map((noun) => ({
    word: noun,
    description:
      verbs
        .get(noun)
        ?.map(({ verb }) => verb)
        .join(", ") ?? commands.find((command) => command.noun === noun)!.summary,
  }));
  const version = flag("--version", "print the version");
  return [
    ...(prefix === undefined ? [] : [startNode(prefix, version)]),
    list(join(""), nouns, [HELP, version]),
    ...[...verbs].map(([noun, ofNoun]) =>
      list(
        join(noun),
        ofNoun.map(({ verb, summary }) => ({ word: verb!, description: summary })),
        [HELP],
      ),
    ),
    ...commands.map((command) => ({
      line: join(commandName(command)),
      isCommand: true,
      words: [],
      options: [...optionsOf(command), JSON_FLAG, HELP],
      takesFile: command.isPositionalFile === true,
    })),
  ];
}

function startNode(prefix: string, version: CompletedOption): CompletionNode {
  const workers = { ...flag("--workers", "number of processes to start"), takesValue: true };
  const word = { word: prefix, description: "run an operator's command" };
  return list("", [word], [workers, version, HELP]);
}

function list(
  line: string,
  words: readonly CompletedWord[],
  options: readonly CompletedOption[],
): CompletionNode {
  return { line, isCommand: false, words, options, takesFile: false };
}

function optionsOf(command: Command): CompletedOption[] {
  return Object.entries(command.options).map(([name, { value, meaning, choices = [] }]) => ({
    word: `--${name}`,
    description: meaning,
    takesValue: value !== undefined,
    choices,
  }));
}

function flag(word: string, description: string): CompletedOption {
  return { word, description, takesValue: false, choices: [] };
}

/** Returns the name of a shell function for a program. */
export function functionName(program: string): string {
  return `_${program.replaceAll("-", "_")}_completion`;
}

/** Returns a text as one quoted word of bash and zsh. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
