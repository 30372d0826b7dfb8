import { join } from "node:path";
import { Glob } from "bun";

export const ROOT = join(import.meta.dir, "..", "..");

/** The README and the pages of docs/ and examples/, by their paths. */
export const PAGES = ["README.md", "docs/**/*.md", "examples/**/*.md"]
  .flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })])
  .sort();

export const readText = (path: string): Promise<string> => Bun.file(join(ROOT, path)).text();

/**
 * Pages that are rewritten next, with a hash of their text. A page whose text has changed since then is
 * checked like all others.
 */
const BEFORE_REVISION: Readonly<Record<string, string>> = {};

export async function isBeforeRevision(path: string): Promise<boolean> {
  if (!(path in BEFORE_REVISION)) return false;
  const hash = new Bun.CryptoHasher("sha256").update(await readText(path)).digest("hex");
  return BEFORE_REVISION[path] === hash.slice(0, 12);
}
