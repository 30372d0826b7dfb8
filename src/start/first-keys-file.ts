import { chmodSync, readFileSync, renameSync, writeFileSync } from "node:fs";

/** What the file of the first keys holds. */
export interface FirstKeysFile {
  readonly base_url: string;
  readonly management_key: string;
  readonly secret_key: string;
}

/** Only its owner can read it; it is whole or not there. */
export function writeFirstKeys(path: string, file: FirstKeysFile): void {
  const { base_url, management_key, secret_key } = file;
  const draft = `${path}.new`;
  const text = JSON.stringify({ base_url, management_key, secret_key }, null, 2);
  writeFileSync(draft, `${text}\n`, { mode: 0o600 });
  chmodSync(draft, 0o600);
  renameSync(draft, path);
}

/** Undefined where there is none that can be read. */
export function readFirstKeys(path: string): FirstKeysFile | undefined {
  try {
    const file = JSON.parse(readFileSync(path, "utf8")) as FirstKeysFile;
    const isWhole = [file.base_url, file.management_key, file.secret_key].every(
      (text: unknown) => typeof text === "string",
    );
    return isWhole ? file : undefined;
  } catch {
    return undefined;
  }
}
