import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { testServices } from "./services.ts";

/**
 * Gives a data folder that does not exist yet the cluster of an embedded Postgres with a migrated, empty
 * database. A start on it skips initdb and migrations, two thirds of the CPU time of a first start. Where
 * the run has no such cluster the folder is not made, and the start is a first one.
 */
export async function fillDataDir(dataDir: string): Promise<void> {
  const { migratedDataDir } = await testServices();
  if (migratedDataDir !== undefined) await copyDatabase(migratedDataDir, dataDir);
}

/** Copies the cluster of a data folder, which must not be running, and its password. */
export async function copyDatabase(fromDataDir: string, toDataDir: string): Promise<void> {
  mkdirSync(toDataDir);
  // As root the server runs as another user, who has to pass through.
  if (process.getuid?.() === 0) chmodSync(toDataDir, 0o711);
  const sources = ["postgres", "postgres.password"].map((name) => join(fromDataDir, name));
  // Keeps owners and modes, which node:fs does not.
  const copy = Bun.spawn(["cp", "-a", ...sources, toDataDir], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if ((await copy.exited) !== 0) throw new Error(`cannot copy the database to ${toDataDir}`);
}
