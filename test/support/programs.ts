import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { type BunPlugin, pathToFileURL } from "bun";

const PROJECT = join(import.meta.dir, "..", "..");
const SOURCE = join(PROJECT, "src");
const PROGRAMS = { gateway: "main", cli: "main/cli/main" } as const;
type Program = keyof typeof PROGRAMS;

/** The folder of the bundled programs of this run, where it has one. */
const VARIABLE = "GATEWAY_TEST_PROGRAMS";

interface Programs {
  remove(): void;
}

/**
 * Bundles the programs that tests start again and again. Without it each start loads 1,600 modules, two
 * thirds of its CPU time. What a program starts itself, its threads and child processes, stays source.
 */
export async function bundlePrograms(): Promise<Programs> {
  // Below the project, where packages that are found at run time are found too.
  const parent = join(PROJECT, "node_modules", ".cache");
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, "gateway-programs-"));
  const remove = () => {
    delete process.env[VARIABLE];
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    chmodSync(folder, 0o755);
    await Bun.build({
      entrypoints: Object.values(PROGRAMS).map((path) => join(SOURCE, `${path}.ts`)),
      root: SOURCE,
      outdir: folder,
      target: "bun",
      splitting: true,
      sourcemap: "linked",
      plugins: [ownPlaces],
    });
  } catch (error) {
    remove();
    throw error;
  }
  process.env[VARIABLE] = folder;
  return { remove };
}

/** Keeps paths to files next to a module valid in the bundle. */
const ownPlaces: BunPlugin = {
  name: "own places",
  setup(build) {
    build.onLoad({ filter: /\/(src|db|actors)\/.*\.ts$/ }, async ({ path }) => {
      const text = await Bun.file(path).text();
      const contents = text
        .replaceAll(/\bimport\.meta\.url\b/g, JSON.stringify(pathToFileURL(path).href))
        .replaceAll(/\bimport\.meta\.dir\b/g, JSON.stringify(dirname(path)));
      return { contents, loader: "ts" };
    });
  },
};

/** The file to start a program from: bundled in a run of a tier, its source otherwise. */
export function programFile(program: Program): string {
  const folder = process.env[VARIABLE];
  return folder === undefined ? programSource(program) : join(folder, `${PROGRAMS[program]}.js`);
}

/** What an operator starts. */
export function programSource(program: Program): string {
  return join(SOURCE, `${PROGRAMS[program]}.ts`);
}

/** What a program is started with besides its settings: nothing of them comes from this process. */
export function programEnvironment(): Record<string, string | undefined> {
  const { PATH, HOME, BUN_JSC_useFTLJIT } = process.env;
  return { PATH, HOME, BUN_JSC_useFTLJIT };
}
