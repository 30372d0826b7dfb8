/*
 * Writes SHA256SUMS for the files of a folder, `dist` by default, in the form that `sha256sum --check` reads. Folders
 * in it are skipped.
 */
import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { PROJECT } from "./bundle.ts";

const NAME = "SHA256SUMS";
const folder = resolve(process.argv[2] ?? join(PROJECT, "dist"));

const entries = await readdir(folder, { withFileTypes: true });
const names = entries.filter((entry) => entry.isFile() && entry.name !== NAME);
const lines = await Promise.all(
  names
    .map(({ name }) => name)
    .sort()
    .map(lineOf),
);
if (lines.length === 0) throw new Error(`${folder} has no files`);
await Bun.write(join(folder, NAME), lines.join(""));
process.stdout.write(`${join(folder, NAME)}\n`);

async function lineOf(name: string): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  for await (const bytes of Bun.file(join(folder, name)).stream()) hasher.update(bytes);
  return `${hasher.digest("hex")}  ${name}\n`;
}
