import { readFileSync, statSync, writeFileSync } from "node:fs";
import { parse, resolve } from "node:path";
import type { Database } from "../../../../db/client.ts";
import { keyNames } from "../../../../db/queries/api-keys.ts";
import { createdKeyShape } from "../../../accounts/keys/routes.ts";
import {
  applyEntries,
  differencesText,
  withConfiguration,
} from "../actions/apply-configuration.ts";
import { readEntries } from "../actions/configuration-file.ts";
import { addKeys } from "../actions/keys.ts";
import { organizationIdOf, requireOrganization } from "../actions/organizations.ts";
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
import { type KeyTranslation, translateLitellmKeys } from "../import/litellm-keys.ts";
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
  /** Translates a file with the keys of clients. Absent if the gateway cannot list them. */
  translateKeys?(text: string, nowMs: number): KeyTranslation;
}

const IMPORTERS: readonly Importer[] = [
  {
    verb: "litellm",
    summary: "Translates a config.yaml of LiteLLM's proxy.",
    needsAuthor: true,
    translate: translateLitellm,
    translateKeys: translateLitellmKeys,
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

function importCommand(importer: Importer): Command {
  const { verb, summary, needsAuthor, translate, translateKeys } = importer;
  const command: Command = {
    noun: "import",
    verb,
    summary,
    options: {
      apply: { meaning: "store the configuration, as config apply does; other entries stay" },
      ...(needsAuthor && {
        author: { value: "NAME", meaning: "author in the ids of the models (default: team)" },
      }),
      ...(translateKeys && {
        keys: {
          value: "FILE",
          meaning: "with --apply: answer of /key/list?return_full_object=true, to create its keys",
        },
        org: {
          value: "ID",
          meaning: "with --keys: id of the organization; not needed if only one exists",
        },
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
      if (options.keys !== undefined && options.apply === undefined) {
        throw new UsageError("--keys needs --apply");
      }
      const keys =
        options.keys === undefined
          ? undefined
          : translateKeys!(readText(options.keys, context), context.nowMs());
      const translated = translate(readText(positional, context), {
        author: authorOf(input),
        environment: context.environment,
        fileName: parse(positional).name,
      });
      if (options.apply !== undefined) {
        return applied(input, translated, keys, context);
      }
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

/** Stores the configuration, without the entries that this gateway could not use, then creates the keys. */
function applied(
  { positional: path, options }: CommandInput,
  translation: Translation,
  keys: KeyTranslation | undefined,
  context: CommandContext,
): Promise<Report> {
  return withConfiguration(context, async (configuration) => {
    const { sql, sources } = configuration;
    const given = keys && (await organizationIdOf(sql, options.org));
    const organizationId = given && (await requireOrganization(sql, given)).id;
    const sound = await soundConfig(path!, translation.config, configuration);
    const entries = readEntries(path!, sound.config, sources.keyring);
    const differences = await applyEntries(entries, configuration, { keepsOthers: true });
    const created =
      organizationId === undefined
        ? { keys: [], leftOut: [] }
        : await createKeys(sql, organizationId, keys!, context.nowMs());
    const whole = {
      config: sound.config,
      leftOut: [...translation.leftOut, ...sound.leftOut, ...created.leftOut],
      notes: [...translation.notes, ...sound.notes],
    };
    const secrets = created.keys.map(({ record, secret }) => `key ${record.name}: ${secret}\n`);
    const end = secrets.length === 0 ? "" : "The keys are shown only once.\n";
    return {
      data: {
        ...{ applied: true, differences, left_out: whole.leftOut, notes: whole.notes },
        keys: created.keys.map(({ record, secret }) => createdKeyShape(record, secret)),
      },
      text: `${textOf(whole)}${differencesText(differences)}${secrets.join("")}${end}`,
    };
  });
}

/** Creates the keys whose names the organization does not have yet: all of them, or none. */
async function createKeys(
  sql: Database,
  organizationId: string,
  { keys, leftOut }: KeyTranslation,
  nowMs: number,
) {
  const present = new Set(await keyNames(sql, organizationId));
  const requests = keys
    .filter(({ name }) => !present.has(name))
    .map((settings) => ({ organizationId, kind: "secret" as const, settings }));
  const known = keys
    .filter(({ name }) => present.has(name))
    .map(({ name }) => `key ${name}: the organization already has a key of this name`);
  return { keys: await addKeys(sql, requests, nowMs), leftOut: [...leftOut, ...known] };
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
