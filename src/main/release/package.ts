/*
 * Builds the folder of the npm package, `dist/package` by default. The container image and the single executable
 * contain the same folder.
 */
import { chmod, cp, readdir, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import manifest from "../../../package.json" with { type: "json" };
import { bundle, INSTALLED_PACKAGES, PROJECT } from "./bundle.ts";

const COMMAND = "src/main/bin/model-gateway.js";
const FILES = ["CHANGELOG.md", "LICENSE", "README.md", "docs", "gateway.config.schema.json"];
const NOTICES = "THIRD-PARTY-NOTICES.txt";

/** Builds the package into an empty folder. Returns the folders of the bundled packages, relative to the project. */
export async function buildPackage(folder: string): Promise<string[]> {
  await rm(folder, { recursive: true, force: true });
  const bundled = [...new Set((await bundle(folder)).map(packageFolder))].sort();
  await chmod(join(folder, COMMAND), 0o755);
  for (const name of FILES) {
    await cp(join(PROJECT, name), join(folder, name), { recursive: true, filter: isPublished });
  }
  await Bun.write(join(folder, NOTICES), await noticesOf(bundled));
  await Bun.write(
    join(folder, "package.json"),
    `${JSON.stringify(publishedManifest(), null, 2)}\n`,
  );
  return bundled;
}

/** Returns true for files to publish: of the documentation site only its built files. */
function isPublished(path: string): boolean {
  return !/\/\.vitepress\/(?!dist(\/|$))/.test(path);
}

/** Returns the manifest of the package. Bundled packages are no dependencies of it. */
function publishedManifest() {
  const { name, version, description, license, type, engines, optionalDependencies } = manifest;
  const dependencies = Object.fromEntries(
    INSTALLED_PACKAGES.map((name) => [name, manifest.dependencies[name]]),
  );
  const bin = { [name]: COMMAND };
  return {
    name,
    version,
    description,
    license,
    type,
    engines,
    bin,
    dependencies,
    optionalDependencies,
  };
}

/** The licenses of packages, by their folders. */
async function noticesOf(folders: readonly string[]): Promise<string> {
  const notices = await Promise.all(folders.map(noticeOf));
  return `model-gateway contains the following packages.\n\n${notices.join("\n")}`;
}

function packageFolder(path: string): string {
  return /^.*node_modules\/(@[^/]+\/)?[^/]+/.exec(path)![0];
}

async function noticeOf(folder: string): Promise<string> {
  const { name, version, license } = await Bun.file(join(PROJECT, folder, "package.json")).json();
  const files = await readdir(join(PROJECT, folder));
  const texts = await Promise.all(
    files
      .filter((file) => /^(licen[cs]e|notice|copying)/i.test(file))
      .map((file) => Bun.file(join(PROJECT, folder, file)).text()),
  );
  return `== ${name} ${version} (${license})\n\n${texts.join("\n")}`;
}

if (import.meta.main) {
  const folder = resolve(process.argv[2] ?? join(PROJECT, "dist", "package"));
  await buildPackage(folder);
  process.stdout.write(`${folder}\n`);
}
