import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Settings } from "typebox/system";
import { didYouMean } from "../../lib/nearest-names.ts";
import { ConfigError, type ConfigFaults, refuse, refuseSecret } from "./config-error.ts";
import { type Environment, variable } from "./environment.ts";
import {
  type AliasEntry,
  type ConfigFile,
  compileConfigFile,
  MODEL_ID,
  type ModelEntry,
  type PriceEntry,
  type ProviderEntry,
} from "./file-schema.ts";

const DEFAULT_CONFIG_FILE = "gateway.config.json";
/** A larger file is a mistake, and reading it would delay the start. */
const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** The place of an entry in the configuration. */
export interface EntrySource {
  /** File and JSON pointer, for messages. For an entry in the database, its kind and id. */
  readonly source: string;
  /** True if the entry is in the database, and not in the file. */
  readonly isStored?: true;
}

/** An entry of `models`. */
export type ModelConfig = ModelEntry & EntrySource;
/** An entry of `providers`. */
export type ProviderOfFile = ProviderEntry & EntrySource;
/** An entry of `aliases`. */
export type AliasConfig = AliasEntry & EntrySource;
/** An entry of `prices`. */
export type PriceConfig = PriceEntry & EntrySource;

export interface FileContents {
  /** The path as it was given, for messages. Undefined if there is no file. */
  readonly path: string | undefined;
  readonly providers: readonly ProviderOfFile[];
  readonly models: readonly ModelConfig[];
  readonly aliases: readonly AliasConfig[];
  readonly prices: readonly PriceConfig[];
  readonly sandbox: boolean;
  /**
   * Ids of entries that are missing in `providers` and `models` because the schema rejects them.
   */
  readonly faultyIds: { readonly providers: readonly string[]; readonly models: readonly string[] };
}

/**
 * Reads and checks the configuration file. Adds each fault to `faults`, with the file and the JSON
 * pointer. Returns the entries without a fault, so that the caller can check these too. Throws
 * ConfigError if the file cannot be read at all.
 */
export function readConfigFile(
  environment: Environment,
  cwd: string,
  faults: ConfigFaults,
): FileContents {
  const named = variable(environment, "GATEWAY_CONFIG");
  if (named === undefined && !existsSync(resolve(cwd, DEFAULT_CONFIG_FILE))) {
    const faultyIds = { providers: [], models: [] };
    const none = { providers: [], models: [], aliases: [], prices: [] };
    return { path: undefined, ...none, sandbox: true, faultyIds };
  }
  const path = named ?? DEFAULT_CONFIG_FILE;
  return checkedContents(path, parseConfigText(path, readText(path, cwd)), faults);
}

/** Returns the entries of a file without a fault. Adds each fault to `faults`. */
export function checkedContents(path: string, value: unknown, faults: ConfigFaults): FileContents {
  const contents = checked(path, value, faults);
  const { providers, models, aliases, prices } = contents;
  const duplicates = [
    ...[providers, models, aliases, prices].flatMap(repeatedIds),
    ...models.flatMap(mixedEntry),
  ];
  if (duplicates.length > 0) faults.add(new ConfigError(...duplicates));
  return { path, ...contents };
}

function readText(path: string, cwd: string): string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(resolve(cwd, path));
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw refuse("GATEWAY_CONFIG", path, `a file that can be read (${reason})`);
  }
  if (bytes.length > MAX_FILE_BYTES) {
    throw refuse("GATEWAY_CONFIG", path, `a file of at most ${MAX_FILE_BYTES} bytes`);
  }
  return new TextDecoder().decode(bytes);
}

/** Returns the value of a file. Throws ConfigError with the line if the text is not JSON. */
export function parseConfigText(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message can quote the text, and the text can contain a key.
    throw new ConfigError(
      `${path} is not JSON (line ${faultyLine(text)}), but must be a JSON object (RFC 8259: no comments)`,
    );
  }
}

function checked(path: string, value: unknown, faults: ConfigFaults): Omit<FileContents, "path"> {
  const validator = compileConfigFile();
  const errors = validator.Check(value) ? [] : allErrors(validator, value);
  const schema = validator.Schema();
  const messages = errors.flatMap((error) => faultsOf(path, value, schema, error));
  if (errors.length > 0) {
    faults.add(new ConfigError(...(messages.length > 0 ? messages : [`${path} is not valid`])));
  }
  const file = Object(value) as ConfigFile;
  const faultyPointers = errors.map(({ instancePath }) => instancePath);
  const [providers, faultyProviders] = entriesOf(path, "providers", file.providers, faultyPointers);
  const [models, faultyModels] = entriesOf(path, "models", file.models, faultyPointers);
  const [aliases] = entriesOf(path, "aliases", file.aliases, faultyPointers);
  const [prices] = entriesOf(path, "prices", file.prices, faultyPointers);
  return {
    providers,
    models,
    aliases,
    prices,
    sandbox: file.sandbox !== false,
    faultyIds: { providers: faultyProviders, models: faultyModels },
  };
}

/** Returns the entries of a list that the schema accepts, and the ids of the rejected ones. */
function entriesOf<Entry extends { readonly id: string }>(
  path: string,
  list: "providers" | "models" | "aliases" | "prices",
  entries: readonly Entry[] | undefined,
  faultyPointers: readonly string[],
): [(Entry & { readonly source: string })[], string[]] {
  const accepted: (Entry & { readonly source: string })[] = [];
  const faultyIds: string[] = [];
  // If a file has more faults than are counted, no entry is known to be valid.
  const isUnknown = faultyPointers.length >= MAX_FAULTS || faultyPointers.includes(`/${list}`);
  if (!Array.isArray(entries) || isUnknown) return [accepted, faultyIds];
  for (const [index, entry] of entries.entries()) {
    const pointer = `/${list}/${index}`;
    const isFaulty = faultyPointers.some((faulty) => `${faulty}/`.startsWith(`${pointer}/`));
    if (!isFaulty) accepted.push({ ...entry, source: `${path} ${pointer}` });
    else if (typeof entry?.id === "string") faultyIds.push(entry.id);
  }
  return [accepted, faultyIds];
}

/**
 * Faults of a file that are listed. For other values the library stops at its default of 8, so that
 * a hostile body costs little.
 */
const MAX_FAULTS = 1_000;

function allErrors(validator: ReturnType<typeof compileConfigFile>, value: unknown): SchemaFault[] {
  const { maxErrors } = Settings.Get();
  Settings.Set({ maxErrors: MAX_FAULTS });
  try {
    return validator.Errors(value)[1];
  } finally {
    Settings.Set({ maxErrors });
  }
}

type SchemaFault = ReturnType<ReturnType<typeof compileConfigFile>["Errors"]>[1][number];

function faultsOf(path: string, value: unknown, root: unknown, error: SchemaFault): string[] {
  const pointer = error.instancePath;
  const schema = atPointer(root, error.schemaPath.replace(/^#/, ""));
  if (error.keyword === "additionalProperties") {
    return unknownMembers(path, pointer, atPointer(value, pointer), schema);
  }
  if (error.keyword === "required") {
    return error.params.requiredProperties.map((missing) => {
      const member = atPointer(schema, `/properties/${missing}`);
      return refuse(`${path} ${pointer}/${missing}`, undefined, accepted(member)).message;
    });
  }
  // This fault repeats that a member is unknown.
  if (error.keyword === "boolean") return [];
  const setting = `${path} ${pointer}`.trimEnd();
  // An address can contain credentials, and a key can be written instead of its variable's name.
  if (/\/(api_key|api_key_env|base_url)$|\/api_keys(\/|$)/.test(setting)) {
    return [refuseSecret(setting, accepted(schema)).message];
  }
  return [refuse(setting, atPointer(value, pointer), accepted(schema)).message];
}

const MAX_SHOWN_NAME = 80;

function unknownMembers(path: string, pointer: string, value: unknown, schema: unknown): string[] {
  const members = Object.keys(Object(atPointer(schema, "/properties")));
  return Object.keys(Object(value))
    .filter((key) => !members.includes(key))
    .map((key) => {
      const setting = `${path} ${pointer}/${key.slice(0, MAX_SHOWN_NAME)}`;
      const accepted = `but must be one of ${members.join(", ")}`;
      return `${setting} is unknown, ${accepted}${didYouMean(key, members)}`;
    });
}

function accepted(schema: unknown): string {
  const description = atPointer(schema, "/description");
  return typeof description === "string" ? description : "in the format of the file";
}

/** Returns the value at a JSON pointer (RFC 6901), or undefined if the pointer leads nowhere. */
function atPointer(value: unknown, pointer: string): unknown {
  let current = value;
  for (const token of pointer.split("/").slice(1)) {
    const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, key)) {
      return undefined;
    }
    current = (current as Record<string, unknown>)[key];
  }
  return current;
}

/**
 * Returns the faults of an entry whose form is mixed. The id of a model has an author, and an alias
 * has no member except the model that it refers to.
 */
export function mixedEntry({ source, ...entry }: ModelConfig): readonly string[] {
  if (entry.alias_of === undefined) {
    return entry.id.includes("/") ? [] : refuse(`${source}/id`, entry.id, MODEL_ID).faults;
  }
  const extra = Object.keys(entry).find((member) => member !== "id" && member !== "alias_of");
  if (extra === undefined) return [];
  return [
    `${source} (${entry.id}) has alias_of and ${extra}, but an alias has the terms of its model`,
  ];
}

function repeatedIds(
  entries: readonly { readonly id: string; readonly source: string }[],
): string[] {
  const seen = new Set<string>();
  return entries.flatMap(({ id, source }) => {
    if (!seen.has(id)) {
      seen.add(id);
      return [];
    }
    return refuse(`${source}/id`, id, "an id that no other entry has").faults;
  });
}

/** White space, then one token of JSON (RFC 8259), or the end of the text. */
const TOKEN =
  /[ \t\r\n]*(?:([{}[\]:,])|"(?:[^"\\\t\r\n]|\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true\b|false\b|null\b|$)/y;

/**
 * The expected token: a value or an end, a member's name, a colon after a name, a comma or an end
 * after a value, or nothing.
 */
type Expected =
  | "value"
  | "value or end"
  | "name"
  | "name or end"
  | "colon"
  | "after value"
  | "nothing";

/**
 * Returns the line, from 1, in which a text stops being JSON, or the last line if the text ends too
 * early. The platform's parser states no position, and it quotes the text, which can contain a key.
 */
function faultyLine(text: string): number {
  const closers: string[] = [];
  let expected: Expected = "value";
  let position = 0;
  for (;;) {
    TOKEN.lastIndex = position;
    const match = TOKEN.exec(text);
    if (match === null) return lineOf(text, skipSpace(text, position));
    const [whole, sign] = match;
    const token = whole.trimStart();
    const next: Expected | undefined =
      token === "" ? undefined : follow(expected, sign ?? token[0]!, sign !== undefined, closers);
    if (next === undefined) return lineOf(text, TOKEN.lastIndex - token.length);
    expected = next;
    position = TOKEN.lastIndex;
  }
}

/**
 * Returns the token that is expected after this one, or undefined if this one is not allowed here.
 */
function follow(
  expected: Expected,
  first: string,
  isSign: boolean,
  closers: string[],
): Expected | undefined {
  const afterValue = () => (closers.length === 0 ? "nothing" : "after value");
  const mayClose = expected === "after value" || expected.endsWith("or end");
  if (isSign && first === closers.at(-1) && mayClose) {
    closers.pop();
    return afterValue();
  }
  if (expected === "colon") return first === ":" ? "value" : undefined;
  if (expected === "after value") {
    if (first !== ",") return undefined;
    return closers.at(-1) === "}" ? "name" : "value";
  }
  if (expected.startsWith("name")) return first === '"' ? "colon" : undefined;
  if (expected === "nothing") return undefined;
  if (!isSign) return afterValue();
  if (first !== "{" && first !== "[") return undefined;
  closers.push(first === "{" ? "}" : "]");
  return first === "{" ? "name or end" : "value or end";
}

function skipSpace(text: string, position: number): number {
  let at = position;
  while (/[ \t\r\n]/.test(text[at] ?? "")) at++;
  return at;
}

function lineOf(text: string, position: number): number {
  return text.slice(0, position).split("\n").length;
}
