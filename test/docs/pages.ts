import { join } from "node:path";
import { Glob } from "bun";

export const ROOT = join(import.meta.dir, "..", "..");

/** The README and the pages of docs/ and examples/, by their paths. */
export const PAGES = ["README.md", "docs/**/*.md", "examples/**/*.md"]
  .flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })])
  .sort();

export const readText = (path: string): Promise<string> => Bun.file(join(ROOT, path)).text();
