import type { Environment } from "../../../platform/config/environment.ts";
import type { ProviderEntry } from "../../../platform/config/file-schema.ts";
import { PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";
import { UsageError } from "../command.ts";

/** Returns a name in the form of a provider's id. */
const providerId = (name: string): string =>
  name
    .replaceAll(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, MAX_ID_CHARACTERS) || "provider";

/** Leaves room for a number within the 64 characters of an id. */
const MAX_ID_CHARACTERS = 56;

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

/** A value in the file of another gateway, or the name of the variable that has it. */
export type Stated = { readonly value: string } | { readonly variable: string };

/** Returns a member with the value, or the one with the variable's name. */
export function statedMember(member: string, stated: Stated | undefined): Record<string, string> {
  if (stated === undefined) return {};
  return "value" in stated ? { [member]: stated.value } : { [`${member}_env`]: stated.variable };
}

/**
 * Returns the value for a member that cannot name a variable. Throws UsageError if the variable is not set.
 *
 * @param setting the setting of the other gateway, for the message
 */
export function statedValue(
  stated: Stated | undefined,
  setting: string,
  environment: Environment,
): string | undefined {
  if (stated === undefined || "value" in stated) return stated?.value;
  const value = environment[stated.variable];
  if (value) return value;
  throw new UsageError(`${setting} is in the variable ${stated.variable}: set it and try again`);
}

/** Returns `openai-compatible` for OpenAI's type at another address, else the type. */
export function typeAt(type: string, address: string | undefined): string {
  const isElsewhere = type === "openai" && address !== undefined && !OPENAI_HOST.test(address);
  return isElsewhere ? "openai-compatible" : type;
}

const OPENAI_HOST = /^https:\/\/(?:[a-z]+\.)?api\.openai\.com(?:\/|$)/;

/** Returns the key of a provider. A hosted one without a key gets it from its usual variable. */
export function keyMember(type: string, key: Stated | undefined): Record<string, string> {
  if (key !== undefined || CLOUDS.includes(type)) return statedMember("api_key", key);
  const { environmentPrefix, isSelfHosted } = PROVIDER_TYPES[type]!;
  if (isSelfHosted === true || environmentPrefix === undefined) return {};
  return { api_key_env: `${environmentPrefix}_API_KEY` };
}

/** Types whose machines can have an identity instead of a key. */
const CLOUDS = ["azure", "bedrock", "vertex"];

/** The accesses to a cloud that other gateways state, each under its own names. */
interface CloudAccess {
  readonly region?: string | undefined;
  readonly accessKeyId?: Stated | undefined;
  readonly secretAccessKey?: Stated | undefined;
  readonly sessionToken?: Stated | undefined;
}

/** Returns the member `aws` of a provider, if anything of it is stated. */
export function awsMember(access: CloudAccess): Pick<ProviderEntry, "aws"> {
  const aws = {
    ...(access.region !== undefined && { region: access.region }),
    ...statedMember("access_key_id", access.accessKeyId),
    ...statedMember("secret_access_key", access.secretAccessKey),
    ...statedMember("session_token", access.sessionToken),
  };
  return Object.keys(aws).length === 0 ? {} : { aws };
}

/** Returns the members of a provider at Vertex AI. Credentials are JSON, a path, or the variable with the JSON. */
export function vertexMembers(
  project: string | undefined,
  location: string | undefined,
  credentials: Stated | undefined,
): Partial<ProviderEntry> {
  const isPath =
    credentials !== undefined && "value" in credentials && !credentials.value.startsWith("{");
  const json =
    credentials !== undefined && "value" in credentials && !isPath
      ? { value: Buffer.from(credentials.value).toString("base64") }
      : credentials;
  return {
    ...(project !== undefined && { project }),
    ...(location !== undefined && { location }),
    ...statedMember(isPath ? "credentials_file" : "api_key", json),
  };
}

/** Adds the version segment of the type to an address that has no path. */
export function withVersion(type: string, address: string): string {
  const usual = PROVIDER_TYPES[type]!.defaultBaseUrl;
  if (usual === undefined || !URL.canParse(address)) return address;
  const { pathname, origin } = new URL(address);
  return pathname === "/" ? `${origin}${new URL(usual).pathname}` : address;
}
