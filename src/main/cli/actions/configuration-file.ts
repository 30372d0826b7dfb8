import { isDeepStrictEqual } from "node:util";
import type { StoredEntry } from "../../../../db/queries/configuration.ts";
import { splitSecrets } from "../../../accounts/configuration/entry-secrets.ts";
import type { EntryChange } from "../../../accounts/configuration/stored-configuration.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import { ConfigError, ConfigFaults } from "../../../platform/config/config-error.ts";
import { type Environment, variable } from "../../../platform/config/environment.ts";
import { checkedContents, type FileContents } from "../../../platform/config/file.ts";
import { PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../../platform/config/providers.ts";
import type { StoredKind } from "../../../platform/config/stored.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Entries of a configuration by kind and id, with their secrets or the names of the variables that hold them. */
export type ConfigurationEntries = Readonly<Record<StoredKind, ReadonlyMap<string, Fields>>>;

const LISTS: Readonly<Record<StoredKind, "providers" | "models" | "aliases" | "prices">> = {
  provider: "providers",
  model: "models",
  alias: "aliases",
  price: "prices",
};
const KINDS = Object.keys(LISTS) as StoredKind[];

/** The parts of a configuration that is in force. */
export interface ConfigurationSources {
  readonly environment: Environment;
  readonly file: FileContents;
  /** The providers of environment and file. */
  readonly providers: readonly ProviderConfig[];
  readonly stored: readonly StoredEntry[];
  readonly keyring: Keyring;
}

/** Returns the entries in force without the stored ones: those of the file, and the providers of the environment. */
function baseEntries({ environment, file, providers }: ConfigurationSources): ConfigurationEntries {
  const ofFile = entriesOf(file);
  const ofEnvironment = providers
    .filter(
      ({ id }) => !ofFile.provider.has(id) && PROVIDER_TYPES[id]?.environmentPrefix !== undefined,
    )
    .map(({ id, type }): [string, Fields] => {
      const prefix = PROVIDER_TYPES[id]!.environmentPrefix;
      const url = variable(environment, `${prefix}_BASE_URL`);
      const hasKey = variable(environment, `${prefix}_API_KEY`) !== undefined;
      const entry = {
        ...{ id, type },
        ...(url !== undefined && { base_url: url }),
        ...(hasKey && { api_key_env: `${prefix}_API_KEY` }),
      };
      return [id, entry];
    });
  return { ...ofFile, provider: new Map([...ofFile.provider, ...ofEnvironment]) };
}

/** Returns the entries of a file. A model with `alias_of` is an alias of one model. */
function entriesOf({ providers, models, aliases, prices }: FileContents): ConfigurationEntries {
  const byId = (entries: readonly { readonly id: string; readonly source?: string }[]) =>
    new Map(entries.map(({ source: _, ...entry }): [string, Fields] => [entry.id, entry]));
  const names = models.flatMap(({ id, alias_of: target }) =>
    target === undefined ? [] : [{ id, models: [{ id: target }] }],
  );
  return {
    provider: byId(providers),
    model: byId(models.filter(({ alias_of: target }) => target === undefined)),
    alias: byId([...names, ...aliases]),
    price: byId(prices),
  };
}

/** Returns the stored entries with their secrets. */
function storedEntries({ stored, keyring }: ConfigurationSources): ConfigurationEntries {
  const all = Object.fromEntries(KINDS.map((kind) => [kind, new Map<string, Fields>()]));
  for (const { kind, id, body, secret } of stored) {
    const { key_prefix: _, ...shown } = body;
    all[kind]!.set(id, { id, ...shown, ...(secret === null ? {} : unsealed(secret, keyring)) });
  }
  return all as unknown as ConfigurationEntries;
}

/** Returns the configuration in force in the form of the file. Secrets are names of variables, or sealed. */
export function exportConfiguration(sources: ConfigurationSources): Fields {
  const base = baseEntries(sources);
  const stored = storedEntries(sources);
  const lists = KINDS.flatMap((kind) => {
    const entries = [...new Map([...base[kind], ...stored[kind]]).values()];
    if (entries.length === 0) return [];
    return [[LISTS[kind], entries.map((entry) => withSealedSecrets(entry, sources.keyring))]];
  });
  return { ...Object.fromEntries(lists), ...(!sources.file.sandbox && { sandbox: false }) };
}

/** Returns the entry with all its secrets in one member, sealed with the master key. */
function withSealedSecrets(entry: Fields, keyring: Keyring): Fields {
  const { aws, headers, proxy } = entry;
  const isSecret =
    typeof entry.api_key === "string" ||
    headers !== undefined ||
    proxy !== undefined ||
    JSON.stringify(entry.api_keys ?? []).includes('"key":') ||
    /"(?:access_key_id|secret_access_key|session_token)":/.test(JSON.stringify(aws ?? {}));
  if (!isSecret) return entry;
  const { secrets } = splitSecrets(entry);
  const { api_key: _, api_keys: __, aws: ___, headers: ____, proxy: _____, ...shown } = entry;
  const plain = new TextEncoder().encode(JSON.stringify(secrets));
  const sealed = keyring.sealUnder(keyring.sealingId, plain);
  return { ...shown, [SEALED]: Buffer.from(sealed).toString("base64") };
}

/** The member of an exported entry with its sealed secrets. */
const SEALED = "sealed_secrets";

function unsealed(sealed: Uint8Array, keyring: Keyring): Fields {
  return JSON.parse(new TextDecoder().decode(keyring.open(sealed)));
}

/**
 * Returns the entries of a file, with sealed secrets opened. Throws ConfigError with all faults.
 *
 * @param path the file, for messages
 */
export function readEntries(path: string, value: unknown, keyring: Keyring): ConfigurationEntries {
  const faults = new ConfigFaults();
  const file = { ...Object(value) } as Record<string, unknown>;
  for (const list of Object.values(LISTS)) {
    const entries = file[list];
    if (!Array.isArray(entries)) continue;
    file[list] = entries.map((entry, at) => opened(entry, `${path} /${list}/${at}`, keyring));
  }
  const contents = checkedContents(path, file, faults);
  faults.throwAny();
  return entriesOf(contents);
}

function opened(entry: unknown, pointer: string, keyring: Keyring): unknown {
  if (typeof entry !== "object" || entry === null || !(SEALED in entry)) return entry;
  const { [SEALED]: sealed, ...shown } = entry as Record<string, unknown>;
  try {
    return { ...shown, ...unsealed(Buffer.from(String(sealed), "base64"), keyring) };
  } catch {
    throw new ConfigError(`${pointer}/${SEALED} was not sealed with this gateway's master key`);
  }
}

/** A difference between a file and the configuration in force. */
export interface ConfigurationDifference {
  readonly kind: StoredKind;
  readonly id: string;
  readonly act: "add" | "change" | "delete";
  /** The members that differ. */
  readonly members: readonly string[];
}

/**
 * Returns the changes of stored entries after which the file's entries are in force. Entries of environment and file
 * that the given file lacks stay, because only stored entries can be deleted.
 *
 * @param keepsOthers keeps stored entries that the file lacks; otherwise they are deleted
 */
export function changesTo(
  target: ConfigurationEntries,
  sources: ConfigurationSources,
  { keepsOthers = false } = {},
): { readonly changes: EntryChange[]; readonly differences: ConfigurationDifference[] } {
  const base = baseEntries(sources);
  const stored = storedEntries(sources);
  const changes: EntryChange[] = [];
  const differences: ConfigurationDifference[] = [];
  for (const kind of KINDS) {
    for (const [id, wanted] of target[kind]) {
      const current = stored[kind].get(id) ?? base[kind].get(id);
      if (isDeepStrictEqual(wanted, current)) continue;
      const entry = withValues(wanted, sources.environment);
      if (stored[kind].has(id) && isDeepStrictEqual(entry, current)) continue;
      changes.push({ kind, id, entry });
      const act = current === undefined ? "add" : "change";
      differences.push({ kind, id, act, members: differing(wanted, current ?? {}) });
    }
    for (const id of stored[kind].keys()) {
      if (keepsOthers || target[kind].has(id)) continue;
      changes.push({ kind, id, entry: null });
      differences.push({ kind, id, act: "delete", members: [] });
    }
  }
  return { changes, differences };
}

function differing(wanted: Fields, current: Fields): string[] {
  const names = new Set([...Object.keys(wanted), ...Object.keys(current)]);
  return [...names].filter((name) => !isDeepStrictEqual(wanted[name], current[name]));
}

/** Returns the entry with the values of the variables that it names. Throws ConfigError if a variable is not set. */
function withValues(entry: Fields, environment: Environment): Fields {
  const members = Object.entries(entry).map(([name, value]): [string, unknown] => {
    if (Array.isArray(value)) {
      return [name, value.map((one) => (isFields(one) ? withValues(one, environment) : one))];
    }
    // A header can have any name, also one that ends like a member with the name of a variable.
    if (isFields(value) && name !== "headers") return [name, withValues(value, environment)];
    if (!name.endsWith("_env") || typeof value !== "string") return [name, value];
    const read = variable(environment, value);
    if (read === undefined) throw new ConfigError(`${value} is not set, but the file names it`);
    return [name.slice(0, -"_env".length), read];
  });
  return Object.fromEntries(members);
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
