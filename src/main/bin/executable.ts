/* The entry of the single executable: unpacks the package that it contains, then runs its programs. */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import archivePath from "package-archive";
import { prepareDataFolder } from "../../../db/embedded/folders.ts";
import { runCommand } from "./run-command.ts";

await runCommand({
  parameters: process.argv.slice(2),
  folder: unpackedFolder,
  // An executable of Bun runs scripts, as Bun itself does, if this variable is set.
  environment: { ...process.env, BUN_BE_BUN: "1" },
});

/**
 * Returns the folder of the unpacked package below the data folder. Each build has its own, so an earlier version can
 * go on running. Another process may be unpacking too: the first one that finishes names the folder.
 */
async function unpackedFolder(): Promise<string> {
  const parent = join(prepareDataFolder(process.env.DATA_DIR || ".data").dataDir, "program");
  // Bun adds a hash of the content to the name of an embedded file: 1.0.0-25svgzrh.
  const folder = join(parent, basename(archivePath, ".zst"));
  if (existsSync(folder)) return folder;
  mkdirSync(parent, { recursive: true });
  const unfinished = `${folder}.${process.pid}`;
  try {
    const archive = Bun.zstdDecompressSync(await Bun.file(archivePath).bytes());
    await new Bun.Archive(archive).extract(unfinished);
    renameSync(unfinished, folder);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
