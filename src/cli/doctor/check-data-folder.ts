import { existsSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "data folder";

/** Whether the data folder can be written to, or made. Leaves nothing behind. */
export function checkDataFolder(dataDir: string): Finding {
  try {
    const isThere = existsSync(dataDir);
    if (isThere && !statSync(dataDir).isDirectory()) return wrong(NAME, `${dataDir} is no folder`);
    const folder = isThere ? dataDir : nearestFolder(dataDir);
    rmdirSync(mkdtempSync(join(folder, ".doctor-")));
    return ok(
      NAME,
      isThere ? `${dataDir} can be written to` : `${dataDir}, made at the first start`,
    );
  } catch (error) {
    return wrong(NAME, `${dataDir} cannot be written to (${(error as { code?: string }).code})`);
  }
}

function nearestFolder(path: string): string {
  const parent = dirname(path);
  return existsSync(parent) || parent === path ? parent : nearestFolder(parent);
}
