import { AddressPolicy, addressOfHost } from "../lib/public-address.ts";
import { ConfigError, type ConfigFaults, MASKED, refuse } from "./config-error.ts";
import { type Environment, httpUrl, secretToken, variable } from "./environment.ts";
import type { FileContents } from "./file.ts";
import type { ProviderEntry } from "./file-schema.ts";
import {
  PROVIDER_TYPES,
  type ProviderType,
  providerType,
  UNSUPPORTED_PROVIDER_TYPES,
} from "./provider-types.ts";

/** The provider that is always there unless the file says `"sandbox": false`. */
export const SANDBOX_PROVIDER_ID = "sandbox";

/** An enabled provider. */
export interface ProviderConfig {
  readonly id: string;
  /** A key of PROVIDER_TYPES. */
  readonly type: string;
  /** Without a trailing slash; empty for the sandbox. */
  readonly baseUrl: string;
  /** Without one no Authorization header is sent. */
  readonly apiKey?: string;
  /** Where it has several: all of them, `apiKey` first. */
  readonly apiKeys?: readonly WeightedKey[];
  /** Stated: it neither keeps prompts nor trains on them. */
  readonly collectsNoData?: boolean;
}

interface WeightedKey {
  readonly key: string;
  readonly weight: number;
}

interface EnabledProviders {
  readonly providers: readonly ProviderConfig[];
  readonly warnings: readonly string[];
}

/**
 * The providers of the file in its order, then the built-in ones that the environment enables, then the
 * sandbox. What is wrong is added to `faults`.
 */
export function enabledProviders(
  environment: Environment,
  file: FileContents,
  faults: ConfigFaults,
): EnabledProviders {
  const fromFile = file.providers.flatMap((entry, index) => {
    const source = `${file.path} /providers/${index}`;
    return faults.attempt(() => [providerOfFile(environment, entry, source, file.sandbox)], []);
  });
  const { providers: builtIn, warnings } = builtInProviders(environment, file.providers, faults);
  const providers = [...fromFile, ...builtIn];
  if (file.sandbox && !providers.some(({ id }) => id === SANDBOX_PROVIDER_ID)) {
    providers.push({ id: SANDBOX_PROVIDER_ID, type: "sandbox", baseUrl: "" });
  }
  // An entry that is itself wrong still counts as known.
  const known = new Set([...file.providers, ...providers].map(({ id }) => id));
  refuseUnknownEndpoints(file, [...known], faults);
  return { providers, warnings };
}

function providerOfFile(
  environment: Environment,
  entry: ProviderEntry,
  source: string,
  sandbox: boolean,
): ProviderConfig {
  const { id, type: typeName } = entry;
  const type = supportedType(typeName, `${source}/type`);
  if (type.wire === "sandbox") return { id, type: typeName, baseUrl: "" };
  if (sandbox && id === SANDBOX_PROVIDER_ID) {
    throw refuse(`${source}/id`, id, 'another id, unless the file says "sandbox": false');
  }
  // An entry under a built-in provider's own name takes what it leaves out from that provider's variables.
  const prefix = id === typeName ? type.environmentPrefix : undefined;
  const fromEnvironment = prefix === undefined ? {} : variablesOf(environment, prefix);
  const baseUrl =
    entry.base_url === undefined
      ? (fromEnvironment.baseUrl ?? type.defaultBaseUrl)
      : httpUrl(`${source}/base_url`, entry.base_url);
  if (baseUrl === undefined) {
    throw refuse(`${source}/base_url`, undefined, `an http or https URL with type ${typeName}`);
  }
  const apiKeys = keysOfFile(environment, entry, source);
  const apiKey = apiKeys[0]?.key ?? fromEnvironment.apiKey;
  const collection = entry.data_collection;
  return {
    id,
    type: typeName,
    baseUrl,
    ...(apiKey !== undefined && { apiKey }),
    ...(apiKeys.length > 1 && { apiKeys }),
    ...(collection !== undefined && { collectsNoData: collection === "deny" }),
  };
}

function supportedType(name: string, setting: string): ProviderType {
  const type = providerType(name);
  if (type !== undefined) return type;
  const supported = `one of ${Object.keys(PROVIDER_TYPES).join(", ")}`;
  if (!Object.hasOwn(UNSUPPORTED_PROVIDER_TYPES, name)) throw refuse(setting, name, supported);
  throw new ConfigError(`${setting} is "${name}", which is not supported yet: use ${supported}`);
}

/** The keys of an entry: one, as `api_key` or `api_key_env`, or the list `api_keys`. */
function keysOfFile(
  environment: Environment,
  entry: ProviderEntry,
  source: string,
): readonly WeightedKey[] {
  const list = entry.api_keys?.map(({ key, key_env: name, weight = 1 }, at) => {
    const place = `${source}/api_keys/${at}`;
    const stated = { key, name, keyMember: "key", nameMember: "key_env" };
    const found = statedKey(environment, stated, entry.id, place);
    if (found === undefined) throw new ConfigError(`${place} has neither key nor key_env`);
    return { key: found, weight };
  });
  const stated = {
    key: entry.api_key,
    name: entry.api_key_env,
    keyMember: "api_key",
    nameMember: "api_key_env",
  };
  const single = statedKey(environment, stated, entry.id, source);
  if (list === undefined) return single === undefined ? [] : [{ key: single, weight: 1 }];
  if (single !== undefined) {
    throw new ConfigError(
      `${source} has both api_keys and a single key, but must have one of them`,
    );
  }
  if (new Set(list.map(({ key }) => key)).size < list.length) {
    throw new ConfigError(`${source}/api_keys has one key twice`);
  }
  return list;
}

interface StatedKey {
  readonly key: string | undefined;
  /** Of the variable that holds it. */
  readonly name: string | undefined;
  readonly keyMember: string;
  readonly nameMember: string;
}

function statedKey(
  environment: Environment,
  { key, name, keyMember, nameMember }: StatedKey,
  providerId: string,
  source: string,
): string | undefined {
  if (name === undefined) return key;
  if (key !== undefined) {
    throw new ConfigError(
      `${source} has both ${keyMember} and ${nameMember}, but must have one of them`,
    );
  }
  const value = variable(environment, name);
  if (value === undefined) {
    // In lower case it may be a key that was written in place of a variable's name.
    const shown = /^[A-Z0-9_]+$/.test(name) ? name : MASKED;
    throw refuse(shown, undefined, `the API key of ${providerId} (${source}/${nameMember})`);
  }
  return secretToken(name, value);
}

function variablesOf(
  environment: Environment,
  prefix: string,
): { apiKey?: string; baseUrl?: string } {
  const apiKey = variable(environment, `${prefix}_API_KEY`);
  const baseUrl = variable(environment, `${prefix}_BASE_URL`);
  return {
    ...(apiKey === undefined ? {} : { apiKey: secretToken(`${prefix}_API_KEY`, apiKey) }),
    ...(baseUrl === undefined ? {} : { baseUrl: httpUrl(`${prefix}_BASE_URL`, baseUrl) }),
  };
}

/**
 * A built-in provider is enabled by its key or its address. Where the file defines a provider of that
 * name, or takes that key for a provider of its own, the file alone decides: a second way to the same
 * account would receive what was meant for the file's address.
 */
function builtInProviders(
  environment: Environment,
  entries: readonly ProviderEntry[],
  faults: ConfigFaults,
): EnabledProviders {
  const providers: ProviderConfig[] = [];
  for (const [id, type] of Object.entries(PROVIDER_TYPES)) {
    const prefix = type.environmentPrefix;
    if (prefix === undefined) continue;
    const read = faults.attempt(() => variablesOf(environment, prefix), undefined);
    if (read === undefined) continue;
    const { apiKey, baseUrl = type.defaultBaseUrl } = read;
    const enabled = apiKey !== undefined || variable(environment, `${prefix}_BASE_URL`);
    const taken = entries.some(
      (entry) => entry.id === id || variablesUsed(entry).includes(`${prefix}_API_KEY`),
    );
    if (!enabled || taken) continue;
    if (baseUrl === undefined) {
      const accepted = `an http or https URL with ${prefix}_API_KEY`;
      faults.add(refuse(`${prefix}_BASE_URL`, undefined, accepted));
      continue;
    }
    providers.push({ id, type: id, baseUrl, ...(apiKey === undefined ? {} : { apiKey }) });
  }
  return { providers, warnings: unsupportedWarnings(environment, entries) };
}

/** Checks the variables of built-in providers alone, for where the file does not tell what they are for. */
export function checkProviderVariables(environment: Environment, faults: ConfigFaults): void {
  for (const { environmentPrefix: prefix } of Object.values(PROVIDER_TYPES)) {
    if (prefix !== undefined) faults.attempt(() => variablesOf(environment, prefix), undefined);
  }
}

function unsupportedWarnings(
  environment: Environment,
  entries: readonly ProviderEntry[],
): string[] {
  return Object.entries(UNSUPPORTED_PROVIDER_TYPES).flatMap(([name, { environmentPrefix }]) =>
    ["API_KEY", "BASE_URL"]
      .map((suffix) => `${environmentPrefix}_${suffix}`)
      .filter((one) => environmentPrefix !== undefined && variable(environment, one) !== undefined)
      .filter((one) => !entries.some((entry) => variablesUsed(entry).includes(one)))
      .map((one) => `${one} is ignored: provider type ${name} is not supported yet`),
  );
}

/** Names of the variables that an entry takes its keys from. */
function variablesUsed({ api_key_env: single, api_keys: list }: ProviderEntry): string[] {
  return [single, ...(list ?? []).map(({ key_env }) => key_env)].filter(
    (name) => name !== undefined,
  );
}

function refuseUnknownEndpoints(
  file: FileContents,
  known: readonly string[],
  faults: ConfigFaults,
): void {
  for (const model of file.models) {
    for (const [index, { provider }] of (model.endpoints ?? []).entries()) {
      if (known.includes(provider)) continue;
      const accepted = `one of the providers ${known.join(", ") || "of the file, which has none"}`;
      faults.add(refuse(`${model.source}/endpoints/${index}/provider`, provider, accepted));
    }
  }
}

/** Names that no public server has: those without a dot, and the domains set apart for private networks. */
const PRIVATE_NAME = /^[^.]+$|\.(localhost|local|internal|lan|intranet|home\.arpa)$/i;

const publicAddresses = new AddressPolicy();

/**
 * Whether a provider is a server of the operator's own, by its address: its models cost nothing unless the
 * configuration says what. A hosted provider's models are never taken to be free.
 */
export function isLocalServer({ type, baseUrl }: ProviderConfig): boolean {
  const { isSelfHosted, relays } = providerType(type) ?? {};
  if (isSelfHosted !== true || relays === true || baseUrl === "") return false;
  const host = new URL(baseUrl).hostname;
  const address = addressOfHost(host);
  return address === undefined ? PRIVATE_NAME.test(host) : !publicAddresses.allows(address);
}
