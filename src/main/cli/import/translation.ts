import { printable } from "../../../lib/printable.ts";
import type { Environment } from "../../../platform/config/environment.ts";
import type { ConfigFile, ProviderEntry } from "../../../platform/config/file-schema.ts";
import { UsageError } from "../command.ts";

/** The configuration of another gateway in the form of this gateway's file. */
export interface Translation {
  readonly config: ConfigFile;
  /** One line for each setting or entry that `config` lacks, with the reason or the replacement. */
  readonly leftOut: readonly string[];
  /** One line for each difference that clients notice, such as another name of a model. */
  readonly notes: readonly string[];
}

export interface TranslationOptions {
  /** Author of the ids of models, such as `team` in `team/gpt-4o`. */
  readonly author: string;
  /** Has the variables that addresses name. The file has no member for such a variable. */
  readonly environment: Environment;
  /** The file's name without its folder and extension. */
  readonly fileName: string;
}

export type Members = Record<string, unknown>;

/** Returns the value of a JSON text. Throws UsageError, without the text, which can contain keys. */
export function parseJson(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    throw new UsageError("the file is not JSON");
  }
}

export function members(value: unknown): Members {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Members) : {};
}

export const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

export function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Returns a number, also if the file has it as a text. */
export function number(value: unknown): number | undefined {
  const parsed = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof parsed === "number" && Number.isFinite(parsed) ? parsed : undefined;
}

/** Returns the numbers of an object under other names. */
export function numbersOf(
  object: Members,
  names: Readonly<Record<string, string>>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(names).flatMap(([from, to]) => {
      const value = number(object[from]);
      return value === undefined ? [] : [[to, value]];
    }),
  );
}

/** Returns a name in the form of a model id. */
export const aliasId = (name: string): string =>
  name.replaceAll(/[^A-Za-z0-9._:@+~/-]+/g, "-").replaceAll(/^[^A-Za-z0-9]+/g, "");

/** Stands for a key in a printed configuration. It is no valid key, so it cannot be used by mistake. */
const LEFT_OUT = "<key left out>";

/** Members of a provider, of its `aws` and of its `api_keys` that hold secrets. */
const SECRETS = ["api_key", "key", "access_key_id", "secret_access_key", "session_token"];

/** Returns the configuration without keys, and the ids of the providers that had some. */
export function withoutKeys(config: ConfigFile): {
  readonly config: ConfigFile;
  readonly providers: readonly string[];
} {
  const hidden = new Set<string>();
  const providers = config.providers?.map((provider) => {
    const text = JSON.stringify(provider, (name, value) => {
      if (!SECRETS.includes(name)) return value;
      hidden.add(provider.id);
      return LEFT_OUT;
    });
    return JSON.parse(text) as ProviderEntry;
  });
  return { config: { ...config, ...(providers && { providers }) }, providers: [...hidden] };
}

/** Returns one line for each entry that was translated, and each setting that was left out. */
export function reportOf({ config, leftOut, notes }: Translation): readonly string[] {
  const { providers = [], models = [], aliases = [] } = config;
  return [
    ...providers.map(({ id, type }) => `took: provider ${id}${id === type ? "" : ` (${type})`}`),
    ...models.map(({ id, alias_of: target, endpoints = [] }) =>
      target === undefined
        ? `took: model ${id} at ${endpoints.map(({ provider }) => provider).join(", ")}`
        : `took: alias ${id} of ${target}`,
    ),
    ...aliases.map(
      ({ id, models: targets }) =>
        `took: alias ${id} of ${targets.map((one) => one.id).join(", ")}`,
    ),
    ...leftOut.map((line) => `left out: ${line}`),
    ...notes.map((line) => `note: ${line}`),
  ].map(printable);
}
