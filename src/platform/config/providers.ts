import { BASIS_POINTS } from "../../lib/money.ts";
import { didYouMean } from "../../lib/nearest-names.ts";
import { AddressPolicy, addressOfHost } from "../../lib/public-address.ts";
import { CLIENT_FIELDS } from "../../lib/request-fields.ts";
import { AWS_KEY_VARIABLES, isEnabledByAws } from "./aws-access.ts";
import { type CloudSettings, cloudSettings, credential, usualAddress } from "./cloud-settings.ts";
import { ConfigError, type ConfigFaults, MASKED, refuse } from "./config-error.ts";
import { type Environment, httpUrl, variable } from "./environment.ts";
import type { FileContents, ProviderOfFile } from "./file.ts";
import type { ProviderEntry } from "./file-schema.ts";
import { type ProxySettings, proxySettings } from "./outbound-proxies.ts";
import { PROVIDER_TYPES, type ProviderType, providerType } from "./provider-types.ts";

/** The provider that is enabled unless the file says `"sandbox": false`. */
export const SANDBOX_PROVIDER_ID = "sandbox";
/** The name of the sandbox's only moderation model. */
export const SANDBOX_MODERATION_MODEL = "moderation";

/** An enabled provider. */
export interface ProviderConfig extends Omit<CloudSettings, "baseUrl"> {
  readonly id: string;
  /** A key of PROVIDER_TYPES. */
  readonly type: string;
  /** The address, without a trailing slash. Empty for the sandbox. */
  readonly baseUrl: string;
  /**
   * If undefined, requests have no Authorization header, except for a cloud whose machines have an
   * identity.
   */
  readonly apiKey?: string;
  /** All keys, `apiKey` first, if the provider has several. */
  readonly apiKeys?: readonly WeightedKey[];
  /**
   * True if the configuration states that the provider neither stores prompts nor trains on them.
   */
  readonly collectsNoData?: boolean;
  /** The maximum number of concurrent calls, over all instances. */
  readonly maxParallelRequests?: number;
  /**
   * The price of its batches in 1/10000 of the usual prices. If undefined, batches are not used.
   */
  readonly batchPriceShare?: number;
  /** Headers that each call sends in addition. They replace those with the same name. */
  readonly headers?: Readonly<Record<string, string>>;
  /** If undefined, the proxies of the environment are used. */
  readonly proxy?: ProxySettings;
  /** The organizations that can use it. If undefined, all. */
  readonly organizations?: readonly string[];
}

interface WeightedKey {
  readonly key: string;
  readonly weight: number;
}

/**
 * Returns the providers of the file in its order, then the built-in providers that the environment
 * enables, then the sandbox. Adds faults to `faults`.
 */
export function enabledProviders(
  environment: Environment,
  file: FileContents,
  faults: ConfigFaults,
): ProviderConfig[] {
  const fromFile = file.providers.flatMap((entry) =>
    faults.attempt(() => [providerOfFile(environment, entry, file.sandbox)], []),
  );
  const providers = [...fromFile, ...builtInProviders(environment, file.providers, faults)];
  if (file.sandbox && !providers.some(({ id }) => id === SANDBOX_PROVIDER_ID)) {
    providers.push({ id: SANDBOX_PROVIDER_ID, type: "sandbox", baseUrl: "" });
  }
  // An entry with a fault of its own still counts as known.
  const knownIds = [...file.providers, ...providers].map(({ id }) => id);
  checkEndpointProviders(file, [...new Set([...knownIds, ...file.faultyIds.providers])], faults);
  return providers;
}

/**
 * Throws ConfigError if a moderation model is configured that is neither the sandbox's moderation
 * model nor a model of a configured provider with OpenAI's interface.
 */
export function checkModerationModel(
  stated: string | undefined,
  providers: readonly ProviderConfig[],
): void {
  if (stated === undefined) return;
  const slash = stated.indexOf("/");
  const provider = providers.find(({ id }) => id === stated.slice(0, slash));
  const wire = provider && providerType(provider.type)?.wire;
  const model = stated.slice(slash + 1);
  if (wire === "sandbox" ? model === SANDBOX_MODERATION_MODEL : wire === "openai" && model !== "") {
    return;
  }
  const accepted = "provider/model, with a configured provider that has OpenAI's interface";
  throw refuse("GATEWAY_MODERATION_MODEL", stated, accepted);
}

/**
 * Returns the provider of an entry. Throws ConfigError if a setting is missing or invalid.
 *
 * @param sandbox true if the id of the sandbox is taken by the sandbox
 */
export function providerOfFile(
  environment: Environment,
  entry: ProviderOfFile,
  sandbox: boolean,
): ProviderConfig {
  const { id, type: typeName, source } = entry;
  const type = supportedType(typeName, `${source}/type`);
  const { data_collection: collection, max_parallel_requests: maxParallelRequests } = entry;
  const limited = {
    ...(maxParallelRequests !== undefined && { maxParallelRequests }),
    ...(entry.organizations !== undefined && { organizations: entry.organizations }),
    ...(entry.headers !== undefined && { headers: sendableHeaders(entry.headers, source) }),
    ...(entry.proxy !== undefined && { proxy: proxySettings(`${source}/proxy`, entry.proxy) }),
  };
  if (type.wire === "sandbox") return { id, type: typeName, baseUrl: "", ...limited };
  if (sandbox && id === SANDBOX_PROVIDER_ID) {
    throw refuse(`${source}/id`, id, 'another id, unless the file says "sandbox": false');
  }
  // An entry with the name of a built-in provider takes missing settings from that provider's
  // variables.
  const prefix = id === typeName ? type.environmentPrefix : undefined;
  const environmentSettings = prefix === undefined ? {} : variablesOf(environment, prefix);
  // The key of a hosted service must not be sent to a server at the default local address.
  const isForHosted =
    type.hostedBaseUrl !== undefined &&
    (entry.base_url ?? environmentSettings.baseUrl) === undefined;
  const fromEnvironment = isForHosted ? {} : environmentSettings;
  const apiKeys = keysOfFile(environment, entry, source);
  const apiKey = apiKeys[0]?.key ?? fromEnvironment.apiKey;
  const typeVariables = prefix === undefined ? {} : environment;
  const stated =
    entry.base_url === undefined ? undefined : httpUrl(`${source}/base_url`, entry.base_url);
  const cloud = cloudSettings(typeName, {
    environment,
    typeVariables,
    entry,
    pointer: source,
    apiKey,
    statedUrl: stated ?? fromEnvironment.baseUrl,
  });
  if (stated !== undefined && entry.project !== undefined) {
    throw new ConfigError(
      `${source} has both base_url and project, but must have only one of them`,
    );
  }
  const hasLocation = entry.project !== undefined || entry.aws?.region !== undefined;
  const fileUrl = stated ?? (hasLocation ? cloud.baseUrl : undefined);
  const baseUrl =
    fileUrl ??
    fromEnvironment.baseUrl ??
    cloud.baseUrl ??
    usualAddress(typeName, type, cloud.apiKey);
  if (baseUrl === undefined) {
    const url = `an http or https URL with type ${typeName}`;
    const [member, accepted] = ADDRESS_MEMBERS[typeName] ?? ["base_url", url];
    throw refuse(`${source}/${member}`, undefined, accepted);
  }
  return {
    id,
    type: typeName,
    ...cloud,
    baseUrl,
    ...(apiKeys.length > 1 && { apiKeys }),
    ...(collection !== undefined && { collectsNoData: collection === "deny" }),
    ...limited,
    ...batchTerms(typeName, baseUrl, entry),
  };
}

function sendableHeaders(
  headers: NonNullable<ProviderEntry["headers"]>,
  source: string,
): Readonly<Record<string, string>> {
  for (const name of Object.keys(headers)) {
    if (!CLIENT_FIELDS.has(name.toLowerCase())) continue;
    throw refuse(`${source}/headers`, name, "headers that the gateway does not set itself");
  }
  return headers;
}

const USUAL_BATCH_PRICE_SHARE = 0.5;

/**
 * Returns the price of batches. Providers that are known to answer batches use them, and others use
 * them if the entry says so.
 */
function batchTerms(
  typeName: string,
  baseUrl: string,
  stated: Pick<ProviderEntry, "batches" | "batch_price_share"> & { readonly source?: string } = {},
): Pick<ProviderConfig, "batchPriceShare"> {
  const { batches, defaultBaseUrl } = providerType(typeName) ?? {};
  if (batches === undefined && stated.batches === true) {
    const accepted = `false for a provider of type ${typeName}`;
    throw refuse(`${stated.source}/batches`, true, accepted);
  }
  const isKnown = batches !== undefined && baseUrl === defaultBaseUrl;
  if (!(stated.batches ?? isKnown)) return {};
  const share = stated.batch_price_share ?? USUAL_BATCH_PRICE_SHARE;
  return { batchPriceShare: Math.round(share * Number(BASIS_POINTS)) };
}

/**
 * The setting that determines the address of a type: the member of an entry, or the variable, and
 * the accepted value.
 */
const ADDRESS_MEMBERS: Readonly<Record<string, readonly [string, string]>> = {
  vertex: ["project", "the id of a Google Cloud project"],
  bedrock: ["aws/region", "a region like us-east-1"],
};
const ADDRESS_VARIABLES: Readonly<Record<string, readonly [string, string]>> = {
  vertex: ["VERTEX_PROJECT", "the id of a Google Cloud project"],
  bedrock: ["AWS_REGION", "a region like us-east-1 with a key of Amazon Bedrock"],
};

function supportedType(name: string, setting: string): ProviderType {
  const type = providerType(name);
  if (type !== undefined) return type;
  const names = Object.keys(PROVIDER_TYPES);
  throw refuse(setting, name, `one of ${names.join(", ")}${didYouMean(name, names)}`);
}

/**
 * Returns the keys of an entry: a single one, as `api_key` or `api_key_env`, or the list
 * `api_keys`.
 */
function keysOfFile(
  environment: Environment,
  entry: ProviderEntry,
  source: string,
): readonly WeightedKey[] {
  const list = entry.api_keys?.map(({ key, key_env: name, weight = 1 }, at) => {
    const setting = `${source}/api_keys/${at}`;
    const stated = { key, name, keyMember: "key", nameMember: "key_env" };
    const apiKey = statedKey(environment, stated, entry.id, setting);
    if (apiKey === undefined) throw new ConfigError(`${setting} has neither key nor key_env`);
    return { key: apiKey, weight };
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
      `${source} has both api_keys and a single key, but must have only one of them`,
    );
  }
  if (new Set(list.map(({ key }) => key)).size < list.length) {
    throw new ConfigError(`${source}/api_keys has one key twice`);
  }
  return list;
}

interface StatedKey {
  readonly key: string | undefined;
  /** The name of the variable that contains the key. */
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
      `${source} has both ${keyMember} and ${nameMember}, but must have only one of them`,
    );
  }
  const value = variable(environment, name);
  if (value === undefined) {
    // A text in lower case can be a key that was written instead of a variable's name.
    const shown = /^[A-Z0-9_]+$/.test(name) ? name : MASKED;
    throw refuse(shown, undefined, `the API key of ${providerId} (${source}/${nameMember})`);
  }
  return credential(name, value);
}

function variablesOf(
  environment: Environment,
  prefix: string,
): { apiKey?: string; baseUrl?: string } {
  const apiKey = variable(environment, `${prefix}_API_KEY`);
  const baseUrl = variable(environment, `${prefix}_BASE_URL`);
  return {
    ...(apiKey === undefined ? {} : { apiKey: credential(`${prefix}_API_KEY`, apiKey) }),
    ...(baseUrl === undefined ? {} : { baseUrl: httpUrl(`${prefix}_BASE_URL`, baseUrl) }),
  };
}

/**
 * Returns the built-in providers that their key or their address enables. If the file defines a
 * provider of that name, or uses that key for another provider, only the file counts: a second way
 * to the same account would receive calls that were meant for the file's address.
 */
function builtInProviders(
  environment: Environment,
  entries: readonly ProviderEntry[],
  faults: ConfigFaults,
): ProviderConfig[] {
  const providers: ProviderConfig[] = [];
  for (const [id, type] of Object.entries(PROVIDER_TYPES)) {
    const prefix = type.environmentPrefix;
    if (prefix === undefined) continue;
    const read = faults.attempt(() => variablesOf(environment, prefix), undefined);
    if (read === undefined) continue;
    const { apiKey } = read;
    const enabling = [`${prefix}_BASE_URL`, ...(id === "vertex" ? ["VERTEX_PROJECT"] : [])];
    const isEnabled =
      apiKey !== undefined ||
      enabling.some((name) => variable(environment, name) !== undefined) ||
      (id === "bedrock" && isEnabledByAws(environment));
    const keyVariables = [`${prefix}_API_KEY`, ...(id === "bedrock" ? AWS_KEY_VARIABLES : [])];
    const isInFile = entries.some(
      (entry) =>
        entry.id === id || variablesUsed(entry).some((name) => keyVariables.includes(name)),
    );
    if (!isEnabled || isInFile) continue;
    const { baseUrl: statedUrl } = read;
    const source = { environment, typeVariables: environment, pointer: "", apiKey, statedUrl };
    const cloud = faults.attempt(() => cloudSettings(id, source), undefined);
    if (cloud === undefined) continue;
    const baseUrl =
      read.baseUrl ??
      cloud.baseUrl ??
      (apiKey === undefined ? undefined : type.hostedBaseUrl) ??
      usualAddress(id, type, cloud.apiKey);
    if (baseUrl === undefined) {
      const url = `an http or https URL with ${prefix}_API_KEY`;
      const [name, accepted] = ADDRESS_VARIABLES[id] ?? [`${prefix}_BASE_URL`, url];
      faults.add(refuse(name, undefined, accepted));
      continue;
    }
    providers.push({ id, type: id, ...cloud, baseUrl, ...batchTerms(id, baseUrl) });
  }
  return providers;
}

/**
 * Checks only the variables of built-in providers. Used if the file cannot be read, so that their
 * purpose is unknown.
 */
export function checkProviderVariables(environment: Environment, faults: ConfigFaults): void {
  for (const { environmentPrefix: prefix } of Object.values(PROVIDER_TYPES)) {
    if (prefix !== undefined) faults.attempt(() => variablesOf(environment, prefix), undefined);
  }
}

/** Returns the names of the variables from which an entry takes its keys. */
export function variablesUsed({
  api_key_env: single,
  api_keys: list,
  aws,
}: ProviderEntry): string[] {
  const names = [
    single,
    aws?.access_key_id_env,
    aws?.secret_access_key_env,
    aws?.session_token_env,
    ...(list ?? []).map(({ key_env }) => key_env),
  ];
  return names.filter((name) => name !== undefined);
}

function checkEndpointProviders(
  file: FileContents,
  providerIds: readonly string[],
  faults: ConfigFaults,
): void {
  for (const model of file.models) {
    for (const [index, { provider }] of (model.endpoints ?? []).entries()) {
      if (providerIds.includes(provider)) continue;
      const accepted = `one of the providers ${providerIds.join(", ") || "of the file, which has none"}${didYouMean(provider, providerIds)}`;
      faults.add(refuse(`${model.source}/endpoints/${index}/provider`, provider, accepted));
    }
  }
}

/**
 * Names that no public server has: those without a dot, and the domains reserved for private
 * networks.
 */
const PRIVATE_NAME = /^[^.]+$|\.(localhost|local|internal|lan|intranet|home\.arpa)$/i;

const publicAddresses = new AddressPolicy();

/**
 * Returns true if the address of a provider is a server of the operator. Its models are free unless
 * the configuration states prices. The models of a hosted provider never count as free.
 */
export function isLocalServer({ type, baseUrl }: ProviderConfig): boolean {
  const { isSelfHosted, isAggregator } = providerType(type) ?? {};
  if (isSelfHosted !== true || isAggregator === true || baseUrl === "") return false;
  const host = new URL(baseUrl).hostname;
  const address = addressOfHost(host);
  return address === undefined ? PRIVATE_NAME.test(host) : !publicAddresses.allows(address);
}

/**
 * Returns true for a provider whose calls can cost money: neither the sandbox nor a server of the
 * operator.
 */
export function isHosted(provider: ProviderConfig): boolean {
  return providerType(provider.type)?.wire !== "sandbox" && !isLocalServer(provider);
}
