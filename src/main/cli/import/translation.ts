import { splitSecrets } from "../../../accounts/configuration/entry-secrets.ts";
import type { Environment } from "../../../platform/config/environment.ts";
import type { ConfigFile, ProviderEntry } from "../../../platform/config/file-schema.ts";
import { PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";

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

/** Returns a name in the form of a provider's id. */
const providerId = (name: string): string =>
  name.replaceAll(/[^A-Za-z0-9._-]+/g, "-").replaceAll(/^[^A-Za-z0-9]+/g, "") || "provider";

type ProviderSettings = Omit<ProviderEntry, "id">;

/** The providers of a translation. Entries with equal settings share a provider. */
export class ProviderList {
  readonly #bySettings = new Map<string, ProviderEntry>();
  readonly #ids = new Set<string>();

  /**
   * Returns the provider with these settings, and adds it if it is new.
   *
   * @param name its id, unless another provider has it
   */
  add(settings: ProviderSettings, name: string = settings.type): ProviderEntry {
    const signature = JSON.stringify(settings);
    const existing = this.#bySettings.get(signature);
    if (existing !== undefined) return existing;
    const wanted = providerId(name);
    let id = wanted;
    for (let number = 2; this.#ids.has(id); number++) id = `${wanted}-${number}`;
    this.#ids.add(id);
    const provider = { id, ...settings };
    this.#bySettings.set(signature, provider);
    return provider;
  }

  all(): ProviderEntry[] {
    return [...this.#bySettings.values()];
  }
}

/** Adds the version segment of the type to an address that has no path. */
export function withVersion(type: string, address: string): string {
  const usual = PROVIDER_TYPES[type]!.defaultBaseUrl ?? OPENAI_VERSION[type];
  if (usual === undefined || !URL.canParse(address)) return address;
  const { pathname, origin } = new URL(address);
  return pathname === "/" ? `${origin}${new URL(usual).pathname}` : address;
}

/** Addresses with the version segment of types that have no default address. */
const OPENAI_VERSION: Readonly<Record<string, string>> = {
  "openai-compatible": "http://127.0.0.1/v1",
};

/** Returns true for a type whose providers cannot be used without a key. */
export function needsKey(type: string): boolean {
  const { environmentPrefix, isSelfHosted } = PROVIDER_TYPES[type]!;
  return isSelfHosted !== true && environmentPrefix !== undefined;
}

/** Stands for a key in a printed configuration. It is no valid key, so it cannot be used by mistake. */
const LEFT_OUT = "<key left out>";

/** Returns the configuration without keys, and the ids of the providers that had some. */
export function withoutKeys(config: ConfigFile): {
  readonly config: ConfigFile;
  readonly providers: readonly string[];
} {
  const hidden: string[] = [];
  const providers = config.providers?.map((provider) => {
    const shown = hideKeys(provider, splitSecrets(provider).secrets) as ProviderEntry;
    if (JSON.stringify(shown) !== JSON.stringify(provider)) hidden.push(provider.id);
    return shown;
  });
  return { config: { ...config, ...(providers && { providers }) }, providers: hidden };
}

/** Replaces texts in members that hold secrets. Names of variables, regions and weights stay. */
function hideKeys(value: unknown, secrets: unknown): unknown {
  if (secrets === undefined) return value;
  if (typeof secrets === "string") return LEFT_OUT;
  if (Array.isArray(secrets)) return secrets.map((one) => hideKeys(one, one));
  if (typeof secrets !== "object" || secrets === null) return value;
  const members = Object.entries(value as object).map(([name, one]) => {
    const secret = (secrets as Members)[name];
    const isShown = name.endsWith("_env") || name === "region";
    return [name, isShown ? one : hideKeys(one, secret)];
  });
  return Object.fromEntries(members);
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
  ];
}
