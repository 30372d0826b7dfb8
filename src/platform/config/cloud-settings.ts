import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { credentialDocument, credentialText } from "../../lib/credential-document.ts";
import { bedrockSettings } from "./aws-access.ts";
import { ConfigError, refuse } from "./config-error.ts";
import { type Environment, httpUrl, secretToken, variable } from "./environment.ts";
import type { ProviderEntry } from "./file-schema.ts";
import type { ProviderType } from "./provider-types.ts";
import { type CloudVariable, DEFAULT_VERTEX_LOCATION } from "./variables.ts";

/** Settings of Google's Vertex AI, Azure and Bedrock, including the key and the address. */
export interface CloudSettings {
  readonly apiKey?: string;
  readonly baseUrl?: string;
  /**
   * Azure: the version of the API, such as `2024-10-21`, for addresses that name the deployment.
   */
  readonly apiVersion?: string;
  /** Azure: the operator's names of deployments, by the built-in names of their models. */
  readonly deployments?: Readonly<Record<string, string>>;
  /**
   * Vertex AI: host of the machine's metadata server, which issues tokens. Undefined for its
   * default name.
   */
  readonly metadataHost?: string;
  /** Bedrock: the region, if it is known. */
  readonly region?: string;
}

/**
 * Returns a key, or credentials of several parts in JSON or its base64. Throws ConfigError, which
 * does not contain the text.
 */
export function credential(setting: string, text: string): string {
  const document = credentialDocument(text);
  return document === undefined ? secretToken(setting, text) : credentialText(document);
}

interface Form {
  readonly form: RegExp;
  /** The accepted form, which completes "must be …". */
  readonly accepted: string;
}

const PROJECT: Form = {
  form: /^[a-z0-9][a-z0-9:.-]{1,99}$/,
  accepted: "the id of a Google Cloud project",
};
const LOCATION: Form = {
  form: /^(?:global|us|eu|[a-z]{2,30}-[a-z]{2,30}\d{1,2})$/,
  accepted: "a region like us-central1, or us, eu or global",
};
const API_VERSION: Form = { form: /^[\w.-]{1,40}$/, accepted: "a version like 2024-10-21" };
const HOST: Form = {
  form: /^[\w.-]{1,253}(?::\d{1,5})?$/,
  accepted: "a host with an optional port",
};

/** The sources of a provider's settings. */
export interface CloudSource {
  readonly environment: Environment;
  /** The environment if the entry's id is its type, or no variables for any other entry. */
  readonly typeVariables: Environment;
  /** Undefined for a provider that the environment enables. */
  readonly entry?: ProviderEntry;
  /** The file and the JSON pointer of the entry, for messages. */
  readonly pointer: string;
  readonly apiKey: string | undefined;
  /** The address, if the file or a variable states one. */
  readonly statedUrl?: string | undefined;
}

/** The members of an entry that only one type has, by type. */
const TYPE_MEMBERS: Readonly<Record<string, readonly (keyof ProviderEntry)[]>> = {
  vertex: ["project", "location", "credentials_file"],
  azure: ["api_version", "deployments"],
  bedrock: ["aws"],
};

/**
 * Returns the settings of a provider of this type. Throws ConfigError for members of another type.
 */
export function cloudSettings(type: string, source: CloudSource): CloudSettings {
  const { entry, pointer, apiKey } = source;
  for (const [owner, members] of Object.entries(TYPE_MEMBERS)) {
    const foreign =
      type === owner ? undefined : members.find((member) => entry?.[member] !== undefined);
    if (foreign !== undefined) {
      throw new ConfigError(`${pointer}/${foreign} applies only to providers of type ${owner}`);
    }
  }
  if (type === "vertex") return vertexSettings(source);
  if (type === "azure") return azureSettings(source);
  if (type === "bedrock") return bedrockSettings(source);
  return apiKey === undefined ? {} : { apiKey };
}

function vertexSettings(source: CloudSource): CloudSettings {
  const { environment, typeVariables, entry } = source;
  const key = source.apiKey ?? credentialsOf(source);
  const named = checked(source, typeVariables, "VERTEX_PROJECT", entry?.project, PROJECT);
  const project = named ?? (key === undefined ? undefined : projectOf(key));
  const location =
    checked(source, typeVariables, "VERTEX_LOCATION", entry?.location, LOCATION) ??
    DEFAULT_VERTEX_LOCATION;
  const metadataHost = checked(source, environment, "GCE_METADATA_HOST", undefined, HOST);
  return {
    ...(key !== undefined && { apiKey: key }),
    ...(project !== undefined && { baseUrl: vertexAddress(project, location) }),
    ...(metadataHost !== undefined && { metadataHost }),
  };
}

/**
 * Returns the default address of a type. Vertex AI has one for API keys only, because other
 * credentials need a project.
 */
export function usualAddress(
  type: string,
  { defaultBaseUrl }: ProviderType,
  apiKey: string | undefined,
): string | undefined {
  const isPlainKey = apiKey !== undefined && credentialDocument(apiKey) === undefined;
  return type !== "vertex" || isPlainKey ? defaultBaseUrl : undefined;
}

function vertexAddress(project: string, location: string): string {
  const host = {
    global: "aiplatform.googleapis.com",
    us: "aiplatform.us.rep.googleapis.com",
    eu: "aiplatform.eu.rep.googleapis.com",
  }[location];
  const path = `projects/${project}/locations/${location}`;
  return `https://${host ?? `${location}-aiplatform.googleapis.com`}/v1/${path}`;
}

/**
 * Returns the credentials in the file that the configuration names, or those that Google's own
 * tools use.
 */
function credentialsOf({ environment, entry, pointer }: CloudSource): string | undefined {
  const stated = entry?.credentials_file;
  if (stated !== undefined) return credentialsIn(`${pointer}/credentials_file`, stated);
  const name = "GOOGLE_APPLICATION_CREDENTIALS";
  const text = variable(environment, name);
  if (text === undefined) return undefined;
  const inline = credentialDocument(text);
  return inline === undefined ? credentialsIn(name, text) : credentialText(inline);
}

function credentialsIn(setting: string, path: string): string {
  let text: string;
  try {
    text = readFileSync(resolve(path), "utf8");
  } catch (error) {
    const { code = "UNREADABLE" } = error as { code?: string };
    throw new ConfigError(`${setting} names a file that cannot be read (${code})`);
  }
  const document = credentialDocument(text);
  if (document === undefined)
    throw new ConfigError(`${setting} names a file that is not a JSON object`);
  return credentialText(document);
}

/** Returns the Google Cloud project that a credential document names, or undefined. */
export function projectOf(key: string): string | undefined {
  const { project_id: id, quota_project_id: quota } = credentialDocument(key) ?? {};
  const project = id ?? quota;
  return typeof project === "string" && PROJECT.form.test(project) ? project : undefined;
}

function azureSettings(source: CloudSource): CloudSettings {
  const { typeVariables, entry } = source;
  const stated = entry?.api_version;
  const apiVersion = checked(source, typeVariables, "AZURE_API_VERSION", stated, API_VERSION);
  const key = source.apiKey ?? entraCredentials(typeVariables);
  const deployments = entry?.deployments;
  return {
    ...(key !== undefined && { apiKey: key }),
    ...(apiVersion !== undefined && { apiVersion }),
    ...(deployments !== undefined && { deployments }),
  };
}

function entraCredentials(environment: Environment): string | undefined {
  const names = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"] as const;
  const [tenant, client, secret] = names.map((name) => variable(environment, name));
  if (tenant === undefined || client === undefined || secret === undefined) return undefined;
  const authority = variable(environment, "AZURE_AUTHORITY_HOST");
  return credentialText({
    tenant_id: tenant,
    client_id: client,
    client_secret: secret,
    ...(authority !== undefined && { authority: httpUrl("AZURE_AUTHORITY_HOST", authority) }),
  });
}

/** Returns the value that the file states, or else the variable. Throws ConfigError. */
function checked(
  { pointer }: CloudSource,
  environment: Environment,
  name: CloudVariable,
  stated: string | undefined,
  { form, accepted }: Form,
): string | undefined {
  const value = stated ?? variable(environment, name);
  if (value === undefined || form.test(value)) return value;
  const member = name.slice(name.indexOf("_") + 1).toLowerCase();
  throw refuse(stated === undefined ? name : `${pointer}/${member}`, value, accepted);
}
