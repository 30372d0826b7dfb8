import { chmodSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectDatabase, type DatabaseTarget } from "../../db/client.ts";
import type { GatewayConfig } from "../config.ts";
import { createFirstOrganization } from "../services/organizations/first-start.ts";
import { asDataFolderFault } from "./data-folder.ts";

const FILE_NAME = "first-keys.json";

export interface FirstKeys {
  readonly managementKey: string;
  readonly secretKey: string;
  /** Where they were written; undefined where a terminal has shown them. */
  readonly path: string | undefined;
}

/**
 * Creates the default organization at the first start. Its keys are shown once, before they are in force:
 * on a terminal, or in a file that only its owner can read.
 */
export async function createFirstKeys(
  config: GatewayConfig,
  target: DatabaseTarget,
  isTerminal: boolean,
): Promise<FirstKeys | undefined> {
  const sql = connectDatabase(target, { poolSize: 1, applicationName: "gateway-first-start" });
  const path = join(config.dataDir, FILE_NAME);
  try {
    const prepared = await createFirstOrganization(
      sql,
      {
        name: "Default organization",
        plan: config.plan,
        startingCreditNano: config.startingCreditNanoUsd,
        managementKey: config.managementKey,
        secretKey: config.secretKey,
      },
      Date.now(),
      async ({ managementKey, secretKey }) => {
        if (isTerminal) return showKeys({ managementKey, secretKey });
        try {
          mkdirSync(config.dataDir, { recursive: true });
          writeKeys(path, baseUrl(config), { managementKey, secretKey });
        } catch (error) {
          throw asDataFolderFault(config.dataDir, error);
        }
      },
    );
    if (prepared === undefined) return undefined;
    const { managementKey, secretKey } = prepared;
    return { managementKey, secretKey, path: isTerminal ? undefined : path };
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** What goes wrong behind it, such as a port that is taken, would otherwise end with keys that nobody saw. */
function showKeys(keys: Pick<FirstKeys, "managementKey" | "secretKey">): void {
  process.stdout.write(
    `\n  Management key   ${keys.managementKey}\n  Secret key       ${keys.secretKey}\n\n  The keys are shown this once.\n\n`,
  );
}

/** Puts the address into the file of the keys, where it was not known before the gateway listened. */
export function nameBaseUrl(keys: FirstKeys, url: string): void {
  if (keys.path !== undefined) writeKeys(keys.path, url, keys);
}

/** The address under which this machine reaches the gateway. */
export function baseUrl(config: GatewayConfig, port = config.port): string {
  const isWildcard = config.host === "0.0.0.0" || config.host === "::";
  const host = isWildcard ? "127.0.0.1" : config.host;
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function writeKeys(
  path: string,
  url: string,
  keys: Pick<FirstKeys, "managementKey" | "secretKey">,
): void {
  const draft = `${path}.new`;
  const text = { base_url: url, management_key: keys.managementKey, secret_key: keys.secretKey };
  writeFileSync(draft, `${JSON.stringify(text, null, 2)}\n`, { mode: 0o600 });
  chmodSync(draft, 0o600);
  renameSync(draft, path);
}
