import { type ApiKeyKind, parseApiKey } from "../lib/api-key-format.ts";
import { refuse, refuseSecret } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

const MASTER_KEY_BYTES = 32;

export interface AccessKeys {
  /** For the first start only, like `secretKey`. */
  readonly managementKey: string | undefined;
  readonly secretKey: string | undefined;
  /** 32 bytes in base64; undefined: generated beside the embedded database. */
  readonly masterKey: string | undefined;
}

/** Throws ConfigError, which never shows a key. */
export function readAccessKeys(
  reader: EnvironmentReader,
  databaseUrl: string | undefined,
): AccessKeys {
  return {
    managementKey: apiKey(reader, "GATEWAY_MANAGEMENT_KEY", "management", "gateway_mgmt_"),
    secretKey: apiKey(reader, "GATEWAY_SECRET_KEY", "secret", "gateway_sk_"),
    masterKey: masterKey(reader, databaseUrl),
  };
}

function apiKey(
  reader: EnvironmentReader,
  name: "GATEWAY_MANAGEMENT_KEY" | "GATEWAY_SECRET_KEY",
  kind: ApiKeyKind,
  prefix: string,
): string | undefined {
  const text = reader.text(name);
  if (text === undefined || parseApiKey(text)?.kind === kind) return text;
  throw refuseSecret(
    name,
    `a ${kind} key: ${prefix}, 32 letters or digits, and their 6-character checksum (bun run cli keys generate --kind ${kind})`,
  );
}

function masterKey(reader: EnvironmentReader, databaseUrl: string | undefined): string | undefined {
  const name = "GATEWAY_MASTER_KEY";
  const accepted = "32 bytes in base64 (openssl rand -base64 32)";
  const text = reader.text(name);
  if (text === undefined) {
    if (databaseUrl === undefined) return undefined;
    throw refuse(name, undefined, `${accepted} when DATABASE_URL is set`);
  }
  const bytes = Buffer.from(text, "base64");
  // Decoding skips what is no base64, so only the way back proves that nothing was skipped.
  if (bytes.length !== MASTER_KEY_BYTES || bytes.toString("base64") !== text) {
    throw refuseSecret(name, accepted);
  }
  return text;
}
