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
const BEFORE_REVISION: Readonly<Record<string, string>> = {
  "README.md": "7a226119d39f",
  "docs/explanation/architecture.md": "26ac9b8bae4f",
  "docs/explanation/ledger.md": "f6f814129ec4",
  "docs/explanation/scale.md": "4165b8681e33",
  "docs/explanation/testing.md": "d6be6484ed8b",
  "docs/guides/billing.md": "afe35810dc00",
  "docs/guides/clients/chat-interfaces.md": "cb270dc0b2d7",
  "docs/guides/clients/coding-agents.md": "2a3ec82b3a6e",
  "docs/guides/clients/frameworks.md": "3f4ec8bdc8c8",
  "docs/guides/clients/index.md": "1a87cfef790e",
  "docs/guides/clients/sdks.md": "7ed0c91c72aa",
  "docs/guides/dashboard.md": "8b51ecadd951",
  "docs/guides/operations.md": "dafc1dad8f09",
  "docs/guides/webhooks.md": "a3aa7ff3334c",
  "docs/reference/api/batches.md": "45c6621956eb",
  "docs/reference/api/fine-tuning.md": "8252b891d51e",
  "docs/reference/api/keys.md": "5a7c554f2338",
  "docs/reference/api/requests.md": "84398266e63f",
  "docs/reference/api/usage.md": "8169ba328480",
  "docs/reference/api/vector-stores.md": "07357ccebcfc",
  "docs/reference/configuration.md": "8fa1cad66843",
  "docs/reference/glossary.md": "68a4ecfdcaa8",
  "docs/reference/providers.md": "5c8fbb16873f",
  "docs/reference/sandbox.md": "8bf140f276ba",
};

export async function isBeforeRevision(path: string): Promise<boolean> {
  const hash = new Bun.CryptoHasher("sha256").update(await readText(path)).digest("hex");
  return BEFORE_REVISION[path] === hash.slice(0, 12);
}
