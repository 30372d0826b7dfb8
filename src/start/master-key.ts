import { chmodSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { GatewayConfig } from "../config.ts";

const MASTER_KEY_BYTES = 32;
const FILE_NAME = "master-key";

/** The key that encrypts what is kept at rest: the configured one, or one made for the data folder once. */
export function loadMasterKey(config: GatewayConfig): Uint8Array {
  if (config.masterKey !== undefined) return Buffer.from(config.masterKey, "base64");
  const path = join(config.dataDir, FILE_NAME);
  if (!existsSync(path)) {
    const fresh = crypto.getRandomValues(new Uint8Array(MASTER_KEY_BYTES));
    const draft = `${path}.new`;
    writeFileSync(draft, `${Buffer.from(fresh).toString("base64")}\n`, { mode: 0o600 });
    chmodSync(draft, 0o600);
    renameSync(draft, path);
  }
  const key = Buffer.from(readFileSync(path, "utf8").trim(), "base64");
  if (key.byteLength !== MASTER_KEY_BYTES) {
    throw new Error(
      `${path} does not hold a key of ${MASTER_KEY_BYTES} bytes; restore it from a backup`,
    );
  }
  return key;
}
