import { type ApiKeyKind, parseApiKey } from "../../lib/api-key-format.ts";
import { CLI } from "../../lib/command-line.ts";
import { MASTER_KEY_BYTES } from "../../lib/keyring.ts";
import { refuse, refuseSecret } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

export interface MasterKeySettings {
  /** 32 bytes in base64. If undefined, the key is generated next to the embedded database. */
  readonly masterKey: string | undefined;
  /** The previous key, during a change to `masterKey`. */
  readonly previousMasterKey: string | undefined;
}

export interface AccessKeys extends MasterKeySettings {
  /** A management key. Like `secretKey`, it is used at the first start only. */
  readonly managementKey: string | undefined;
  readonly secretKey: string | undefined;
  /** An operator key. Every start adds it, unless it exists or was revoked. */
  readonly operatorKey: string | undefined;
}

/** Reads the keys of the environment. Throws ConfigError, which never contains a key. */
export function readAccessKeys(
  reader: EnvironmentReader,
  databaseUrl: string | undefined,
): AccessKeys {
  const noKeys: MasterKeySettings = { masterKey: undefined, previousMasterKey: undefined };
  return {
    managementKey: apiKey(reader, "GATEWAY_MANAGEMENT_KEY", "management", "gateway_mgmt_"),
    secretKey: apiKey(reader, "GATEWAY_SECRET_KEY", "secret", "gateway_sk_"),
    operatorKey: apiKey(reader, "GATEWAY_OPERATOR_KEY", "operator", "gateway_op_"),
    ...reader.check(() => readMasterKeys(reader, databaseUrl), noKeys),
  };
}

function apiKey(
  reader: EnvironmentReader,
  name: "GATEWAY_MANAGEMENT_KEY" | "GATEWAY_SECRET_KEY" | "GATEWAY_OPERATOR_KEY",
  kind: ApiKeyKind,
  prefix: string,
): string | undefined {
  return reader.check(() => {
    const text = reader.text(name);
    if (text === undefined || parseApiKey(text)?.kind === kind) return text;
    throw refuseSecret(
      name,
      `${kind === "operator" ? "an" : "a"} ${kind} key: ${prefix}, 32 letters or digits, and their 6-character checksum (${CLI} keys generate --kind ${kind})`,
    );
  }, undefined);
}

const ACCEPTED_MASTER_KEY = "32 bytes in base64 (openssl rand -base64 32)";

/** Reads the master keys of the environment. Throws ConfigError, which never contains a key. */
export function readMasterKeys(
  reader: EnvironmentReader,
  databaseUrl: string | undefined,
): MasterKeySettings {
  const masterKey = keyBytes(reader, "GATEWAY_MASTER_KEY");
  const previousMasterKey = keyBytes(reader, "GATEWAY_MASTER_KEY_PREVIOUS");
  if (masterKey === undefined && databaseUrl !== undefined) {
    const accepted = `${ACCEPTED_MASTER_KEY} when DATABASE_URL is set`;
    throw refuse("GATEWAY_MASTER_KEY", undefined, accepted);
  }
  if (masterKey === undefined && previousMasterKey !== undefined) {
    const accepted = `${ACCEPTED_MASTER_KEY} when GATEWAY_MASTER_KEY_PREVIOUS is set`;
    throw refuse("GATEWAY_MASTER_KEY", undefined, accepted);
  }
  if (masterKey !== undefined && masterKey === previousMasterKey) {
    const accepted = "a key other than GATEWAY_MASTER_KEY, or unset";
    throw refuseSecret("GATEWAY_MASTER_KEY_PREVIOUS", accepted);
  }
  return { masterKey, previousMasterKey };
}

function keyBytes(
  reader: EnvironmentReader,
  name: "GATEWAY_MASTER_KEY" | "GATEWAY_MASTER_KEY_PREVIOUS",
): string | undefined {
  const text = reader.text(name);
  if (text === undefined) return undefined;
  const bytes = Buffer.from(text, "base64");
  // Decoding skips invalid characters, so only encoding again proves that nothing was skipped.
  if (bytes.length !== MASTER_KEY_BYTES || bytes.toString("base64") !== text) {
    throw refuseSecret(name, ACCEPTED_MASTER_KEY);
  }
  return text;
}
