import { resolve } from "node:path";
import { refuse } from "../config/config-error.ts";

/** The failure of a call to the operating system about the data folder, by its setting; others as they are. */
export function asDataFolderFault(dataDir: string, error: unknown): unknown {
  const { code, path } = (error ?? {}) as { code?: unknown; path?: unknown };
  if (typeof code !== "string" || typeof path !== "string") return error;
  const [folder, named] = [resolve(dataDir), resolve(path)];
  if (!named.startsWith(folder) && !folder.startsWith(named)) return error;
  return refuse("DATA_DIR", dataDir, `a folder that can be made and written to (${code})`);
}
