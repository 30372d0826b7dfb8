import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { ConfigError, refuse, refuseSecret } from "./config-error.ts";
import { type Environment, variable } from "./environment.ts";
import {
  type ConfigFile,
  compileConfigFile,
  MODEL_ID,
  type ModelEntry,
  type ProviderEntry,
} from "./file-schema.ts";

const DEFAULT_CONFIG_FILE = "gateway.config.json";
/** A larger file is a mistake, and reading it would hold up the start. */
const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** An entry of `models` as it stands in the file. */
export interface ModelConfig extends ModelEntry {
  /** File and JSON pointer, for messages. */
  readonly source: string;
}

export interface FileContents {
  /** The path as it was given, for messages; undefined when there is no file. */
  readonly path: string | undefined;
  readonly providers: readonly ProviderEntry[];
  readonly models: readonly ModelConfig[];
  readonly sandbox: boolean;
}

/** Reads and checks the configuration file. Throws ConfigError naming the file and the JSON pointer. */
export function readConfigFile(environment: Environment, cwd: string): FileContents {
  const named = variable(environment, "GATEWAY_CONFIG");
  if (named === undefined && !existsSync(resolve(cwd, DEFAULT_CONFIG_FILE))) {
    return { path: undefined, providers: [], models: [], sandbox: true };
  }
  const path = named ?? DEFAULT_CONFIG_FILE;
  const file = checked(path, parsed(path, readText(path, cwd)));
  const models = (file.models ?? []).map((entry, index) => ({
    ...entry,
    source: `${path} /models/${index}`,
  }));
  refuseDuplicateIds(path, "providers", file.providers ?? []);
  refuseDuplicateIds(path, "models", models);
  for (const model of models) refuseMixedEntry(model);
  return { path, providers: file.providers ?? [], models, sandbox: file.sandbox ?? true };
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

function parsed(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message may quote the text, and the text may hold a key.
    throw new ConfigError(`${path} is not JSON, but must be a JSON object (RFC 8259: no comments)`);
  }
}

function checked(path: string, value: unknown): ConfigFile {
  const validator = compileConfigFile();
  if (validator.Check(value)) return value;
  const [, errors] = validator.Errors(value);
  const first = errors.find((error) => error.keyword === "additionalProperties") ?? errors[0];
  if (first === undefined) throw new ConfigError(`${path} is not in the format of the file`);
  const schema = atPointer(validator.Schema(), first.schemaPath.replace(/^#/, ""));
  if (first.keyword === "additionalProperties") {
    throw unknownMember(path, first.instancePath, atPointer(value, first.instancePath), schema);
  }
  if (first.keyword === "required") {
    const missing = first.params.requiredProperties[0] ?? "";
    const member = atPointer(schema, `/properties/${missing}`);
    throw refuse(`${path} ${first.instancePath}/${missing}`, undefined, accepted(member));
  }
  const setting = `${path} ${first.instancePath}`.trimEnd();
  // An address may carry credentials, and a key may stand where its variable's name belongs.
  if (/\/(api_key|api_key_env|base_url)$/.test(setting))
    throw refuseSecret(setting, accepted(schema));
  throw refuse(setting, atPointer(value, first.instancePath), accepted(schema));
}

function unknownMember(path: string, pointer: string, value: unknown, schema: unknown) {
  const members = Object.keys(Object(atPointer(schema, "/properties")));
  const unknown = Object.keys(Object(value)).find((key) => !members.includes(key)) ?? "";
  return new ConfigError(
    `${path} ${pointer}/${unknown.slice(0, 80)} is not known, but must be one of ${members.join(", ")}`,
  );
}

function accepted(schema: unknown): string {
  const description = atPointer(schema, "/description");
  return typeof description === "string" ? description : "in the format of the file";
}

/** The value at a JSON pointer (RFC 6901), undefined where there is none. */
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

/** A model has an author; an alias has nothing but what it stands for. */
function refuseMixedEntry({ source, ...entry }: ModelConfig): void {
  if (entry.alias_of === undefined) {
    if (!entry.id.includes("/")) throw refuse(`${source}/id`, entry.id, MODEL_ID);
    return;
  }
  const other = Object.keys(entry).find((member) => member !== "id" && member !== "alias_of");
  if (other === undefined) return;
  throw new ConfigError(
    `${source} (${entry.id}) has alias_of and ${other}, but an alias has the terms of its model`,
  );
}

function refuseDuplicateIds(
  path: string,
  list: string,
  entries: readonly { readonly id: string }[],
): void {
  const seen = new Set<string>();
  for (const [index, { id }] of entries.entries()) {
    if (seen.has(id)) {
      throw refuse(`${path} /${list}/${index}/id`, id, "an id that no other entry has");
    }
    seen.add(id);
  }
}
