import { existsSync, statSync } from "node:fs";
import type { Database } from "../../../db/client.ts";
import type { GatewayConfig } from "../../config.ts";
import { examineKeyring, isSealed } from "../../master-key/establish.ts";
import { knownMasterKeys } from "../../start/master-key.ts";
import { MasterKeyFiles } from "../../start/master-key-files.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "master key";
const SEALED_NAME = "sealed values";

/** Whether there is a key to encrypt with, kept from others. Makes none. */
export function checkMasterKey(config: GatewayConfig): Finding {
  if (config.masterKey !== undefined) return ok(NAME, "from GATEWAY_MASTER_KEY");
  const { path, nextPath } = new MasterKeyFiles(config.dataDir);
  try {
    if (knownMasterKeys(config) === undefined) return ok(NAME, "made at the first start");
    const open = [path, nextPath].find((one) => existsSync(one) && !isPrivate(one));
    if (open === undefined) return ok(NAME, path);
    return { name: NAME, state: "warning", detail: `${open} can be read by others: chmod 600` };
  } catch (error) {
    return wrong(NAME, error);
  }
}

/** Whether the key is the one that the database is sealed with. Writes nothing down. */
export async function checkSealedValues(sql: Database, config: GatewayConfig): Promise<Finding> {
  try {
    const keys = knownMasterKeys(config);
    if (keys === undefined) {
      if (!(await isSealed(sql))) return ok(SEALED_NAME, "none yet");
      const { path } = new MasterKeyFiles(config.dataDir);
      return wrong(SEALED_NAME, `${path} is missing, which opens them: restore it from a backup`);
    }
    const opened = await examineKeyring(sql, keys);
    if (opened === undefined) return ok(SEALED_NAME, "none yet");
    if (!opened.isBeingReplaced) return ok(SEALED_NAME, "the master key opens them");
    const detail = "the master key is being replaced: bun run cli master-key rotate";
    return { name: SEALED_NAME, state: "warning", detail };
  } catch (error) {
    return wrong(SEALED_NAME, error);
  }
}

function isPrivate(path: string): boolean {
  return process.platform === "win32" || (statSync(path).mode & 0o077) === 0;
}
