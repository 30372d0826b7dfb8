import type { CloudSettings, CloudSource } from "./cloud-settings.ts";
import { ConfigError, MASKED, refuse } from "./config-error.ts";
import { type Environment, secretToken, variable } from "./environment.ts";

const REGION = /^[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}$/;
const REGION_FORM = "a region like us-east-1";
/** `bedrock-runtime.eu-west-1.amazonaws.com`, and the names of FIPS and private endpoints. */
const REGION_IN_HOST = /(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\./;

/** Variables of AWS's own tools that contain a key of Bedrock or a part of one. */
export const AWS_KEY_VARIABLES: readonly string[] = [
  "AWS_BEARER_TOKEN_BEDROCK",
  "AWS_ACCESS_KEY_ID",
  "AWS_SECRET_ACCESS_KEY",
];

/**
 * Returns true if these variables enable Bedrock. An access key without a region is for another
 * service.
 */
export function isEnabledByAws(environment: Environment): boolean {
  if (variable(environment, "AWS_BEARER_TOKEN_BEDROCK") !== undefined) return true;
  const accessKey = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
  return (
    accessKey.every((name) => variable(environment, name) !== undefined) &&
    variable(environment, regionVariable(environment)) !== undefined
  );
}

/**
 * Returns the settings of Bedrock. The key is an API key of Bedrock, or an access key: `ID:SECRET`
 * or `ID:SECRET:SESSION_TOKEN`. Throws ConfigError, which contains no secret.
 */
export function bedrockSettings(source: CloudSource): CloudSettings {
  const { typeVariables, entry, pointer, apiKey: stated, statedUrl } = source;
  const fileKey = accessKeyOfFile(source);
  if (fileKey !== undefined && stated !== undefined) {
    throw new ConfigError(`${pointer} has both an access key in aws and another key`);
  }
  const apiKey = stated ?? fileKey ?? keyOfVariables(typeVariables);
  const name = regionVariable(typeVariables);
  const region =
    checkedRegion(`${pointer}/aws/region`, entry?.aws?.region) ??
    (statedUrl === undefined ? undefined : regionOfAddress(statedUrl)) ??
    checkedRegion(name, variable(typeVariables, name));
  return {
    ...(apiKey !== undefined && { apiKey }),
    ...(region !== undefined && { region, baseUrl: addressOfRegion(region) }),
  };
}

function regionVariable(environment: Environment): string {
  return variable(environment, "AWS_REGION") === undefined ? "AWS_DEFAULT_REGION" : "AWS_REGION";
}

/**
 * Returns the region in an address of Bedrock, or undefined for another address, such as a proxy's.
 */
export function regionOfAddress(baseUrl: string): string | undefined {
  return REGION_IN_HOST.exec(new URL(baseUrl).hostname)?.[1];
}

function addressOfRegion(region: string): string {
  const domain = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  return `https://bedrock-runtime.${region}.${domain}`;
}

function checkedRegion(setting: string, region: string | undefined): string | undefined {
  if (region === undefined || REGION.test(region)) return region;
  throw refuse(setting, region, REGION_FORM);
}

function keyOfVariables(environment: Environment): string | undefined {
  const secret = (name: string) => {
    const text = variable(environment, name);
    return text === undefined ? undefined : secretToken(name, text);
  };
  return (
    secret("AWS_BEARER_TOKEN_BEDROCK") ??
    joinedKey(
      secret("AWS_ACCESS_KEY_ID"),
      secret("AWS_SECRET_ACCESS_KEY"),
      secret("AWS_SESSION_TOKEN"),
    )
  );
}

function accessKeyOfFile({ environment, entry, pointer }: CloudSource): string | undefined {
  const aws = entry?.aws;
  if (aws === undefined) return undefined;
  const part = (member: "access_key_id" | "secret_access_key" | "session_token") => {
    const name = aws[`${member}_env`];
    if (name === undefined) return aws[member];
    const value = variable(environment, name);
    if (aws[member] === undefined && value !== undefined) return secretToken(name, value);
    if (aws[member] !== undefined) {
      throw new ConfigError(`${pointer}/aws has both ${member} and ${member}_env`);
    }
    // A text in lower case can be a secret that was written instead of a variable's name.
    const shown = /^[A-Z0-9_]+$/.test(name) ? name : MASKED;
    throw refuse(shown, undefined, `set for ${pointer}/aws/${member}_env`);
  };
  const [id, secret, token] = [
    part("access_key_id"),
    part("secret_access_key"),
    part("session_token"),
  ];
  const isPartial = (id === undefined) !== (secret === undefined);
  if (isPartial || (token !== undefined && id === undefined)) {
    throw new ConfigError(`${pointer}/aws must have access_key_id and secret_access_key together`);
  }
  return joinedKey(id, secret, token);
}

function joinedKey(
  id: string | undefined,
  secret: string | undefined,
  token: string | undefined,
): string | undefined {
  if (id === undefined || secret === undefined) return undefined;
  return token === undefined ? `${id}:${secret}` : `${id}:${secret}:${token}`;
}
