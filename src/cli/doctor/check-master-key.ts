import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { GatewayConfig } from "../../config.ts";
import { loadMasterKey } from "../../start/master-key.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "master key";
const FILE_NAME = "master-key";

/** Whether there is a key to encrypt with, kept from others. Makes none. */
export function checkMasterKey(config: GatewayConfig): Finding {
  if (config.masterKey !== undefined) return ok(NAME, "from GATEWAY_MASTER_KEY");
  const path = join(config.dataDir, FILE_NAME);
  if (!existsSync(path)) return ok(NAME, "made at the first start");
  try {
    loadMasterKey(config);
    const isPrivate = process.platform === "win32" || (statSync(path).mode & 0o077) === 0;
    if (isPrivate) return ok(NAME, path);
    return { name: NAME, state: "warning", detail: `${path} can be read by others: chmod 600` };
  } catch (error) {
    return wrong(NAME, error);
  }
}
