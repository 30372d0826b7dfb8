import { readFileSync, statSync, writeFileSync } from "node:fs";
import { parse, resolve } from "node:path";
import {
  applyEntries,
  differencesText,
  withConfiguration,
} from "../actions/apply-configuration.ts";
import { readEntries } from "../actions/configuration-file.ts";
import {
  type Command,
  type CommandContext,
  type CommandInput,
  commandName,
  type Report,
  UsageError,
} from "../command.ts";
import { translateBifrost } from "../import/bifrost.ts";
import { translateLitellm } from "../import/litellm.ts";
import { translatePortkey } from "../import/portkey.ts";
import { faultsAtStart, soundConfig } from "../import/sound-config.ts";
import {
  reportOf,
  type Translation,
  type TranslationOptions,
  withoutKeys,
} from "../import/translation.ts";

/** A gateway whose configuration can be imported. */
interface Importer {
  readonly verb: string;
  readonly summary: string;
  /** True if the ids of the models need an author. */
  readonly needsAuthor: boolean;
  /** Throws UsageError if the text is not such a file. */
  translate(text: string, options: TranslationOptions): Translation;
}

const IMPORTERS: readonly Importer[] = [
  {
    verb: "litellm",
    summary: "Translates a config.yaml of LiteLLM's proxy.",
    needsAuthor: true,
    translate: translateLitellm,
  },
  {
    verb: "bifrost",
    summary: "Translates a config.json of Bifrost.",
    needsAuthor: false,
    translate: translateBifrost,
  },
  {
    verb: "portkey",
    summary: "Translates configs of Portkey, each as an alias.",
    needsAuthor: true,
    translate: translatePortkey,
  },
];

function importCommand({ verb, summary, needsAuthor, translate }: Importer): Command {
  const command: Command = {
    noun: "import",
    verb,
    summary,
    options: {
      apply: { meaning: "store the configuration, as config apply does; other entries stay" },
      ...(needsAuthor && {
        author: { value: "NAME", meaning: "author in the ids of the models (default: team)" },
      }),
      output: { value: "FILE", meaning: "new file to write, readable only by its owner" },
    },
    positional: "FILE",
    isPositionalFile: true,
    run: async (input, context) => {
      const { options, positional } = input;
      if (positional === undefined) throw new UsageError(`${commandName(command)} needs a file`);
      if (options.apply !== undefined && options.output !== undefined) {
        throw new UsageError("use --apply or --output, not both");
      }
      const translated = translate(readText(positional, context), {
        author: authorOf(input),
        environment: context.environment,
        fileName: parse(positional).name,
      });
      if (options.apply !== undefined) return applied(positional, translated, context);
      const faults = await faultsAtStart(translated.config);
      const unusable = faults.map((fault) => `complete this before a start: ${fault}`);
      const translation = { ...translated, notes: [...translated.notes, ...unusable] };
      if (options.output !== undefined) return written(options.output, translation, context);
      return printed(translation, context);
    },
  };
  return command;
}

export const importCommands: readonly Command[] = IMPORTERS.map(importCommand);

const AUTHOR = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

function authorOf({ options: { author = "team" } }: CommandInput): string {
  if (AUTHOR.test(author)) return author;
  throw new UsageError("--author must be letters, digits, dots, hyphens and underscores");
}

/** Prints the configuration without its keys. The report goes to standard error. */
function printed(translation: Translation, { log }: CommandContext): Report {
  const { config, providers } = withoutKeys(translation.config);
  const ofKeys = providers.map(
    (id) => `key of provider ${id}: keys are not printed; use --output or --apply`,
  );
  const leftOut = [...translation.leftOut, ...ofKeys];
  for (const line of reportOf({ ...translation, leftOut })) log(line);
  return { data: config, text: `${JSON.stringify(config, null, 2)}\n` };
}

function written(path: string, translation: Translation, context: CommandContext): Report {
  const { config, leftOut, notes } = translation;
  writeNewFile(path, `${JSON.stringify(config, null, 2)}\n`, context);
  const counts = { providers: config.providers?.length ?? 0, models: config.models?.length ?? 0 };
  return {
    data: { output: path, ...counts, left_out: leftOut, notes },
    text: `${path}: ${counts.providers} providers, ${counts.models} models\n${textOf(translation)}`,
  };
}

const textOf = (translation: Translation) =>
  reportOf(translation)
    .map((line) => `${line}\n`)
    .join("");

/** Stores the configuration, without the models that this gateway could not offer. */
function applied(path: string, translation: Translation, context: CommandContext): Promise<Report> {
  return withConfiguration(context, async (configuration) => {
    const { config, leftOut, notes } = await soundConfig(path, translation.config, configuration);
    const sound = {
      config,
      leftOut: [...translation.leftOut, ...leftOut],
      notes: [...translation.notes, ...notes],
    };
    const entries = readEntries(path, config, configuration.sources.keyring);
    const differences = await applyEntries(entries, configuration, { keepsOthers: true });
    return {
      data: { applied: true, differences, left_out: sound.leftOut, notes: sound.notes },
      text: `${textOf(sound)}${differencesText(differences)}`,
    };
  });
}

/** Largest file that is imported. Configurations have some kilobytes. */
const MAX_FILE_BYTES = 4 * 1024 * 1024;
const FILE_MODE = 0o600;

function readText(path: string, { cwd }: CommandContext): string {
  let size: number;
  try {
    const file = resolve(cwd, path);
    size = statSync(file).size;
    if (size <= MAX_FILE_BYTES) return readFileSync(file, "utf8");
  } catch {
    throw new UsageError(`${path} cannot be read`);
  }
  throw new UsageError(`${path} has ${size} bytes, but at most ${MAX_FILE_BYTES} are imported`);
}

/** Writes a file that can contain keys. An existing file is never replaced: its mode could be wider. */
function writeNewFile(path: string, text: string, { cwd }: CommandContext): void {
  try {
    writeFileSync(resolve(cwd, path), text, { flag: "wx", mode: FILE_MODE });
  } catch (cause) {
    const isPresent = (cause as NodeJS.ErrnoException).code === "EEXIST";
    throw new UsageError(`${path} ${isPresent ? "already exists" : "cannot be written"}`);
  }
}
