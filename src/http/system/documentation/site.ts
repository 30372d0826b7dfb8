import { existsSync, readFileSync, statSync } from "node:fs";
import { extname, join } from "node:path";
import { bodyInPieces } from "../../../lib/body-pieces.ts";
import { CompressedFile } from "../../compressed-file.ts";
import { DOCUMENTATION_FOLDER, filesBelow, sourceFiles } from "./pages.ts";

/** The folder of the built site. Missing until `bun run docs` has built it. */
export const SITE_FOLDER = join(DOCUMENTATION_FOLDER, ".vitepress/dist");

/** Content types by extension. Other files are plain text. */
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".jpg": "image/jpeg",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".md": "text/markdown; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
};
const PLAIN_TEXT = "text/plain; charset=utf-8";
/** The name of a file in this folder has a hash of its content. */
const HASHED_FOLDER = "assets/";

/**
 * The files of a folder that the gateway serves. Only files that the folder has when this is constructed
 * are found, whatever path a client sends. A file that was requested stays in memory.
 */
class ServedFolder {
  readonly #folder: string;
  readonly #names: ReadonlySet<string>;
  readonly #files = new Map<string, CompressedFile>();

  constructor(folder: string, names: readonly string[]) {
    this.#folder = folder;
    this.#names = new Set(names);
  }

  /** Returns false also for a file that was deleted before its first request. */
  has(name: string): boolean {
    return this.#names.has(name) && (this.#files.has(name) || existsSync(join(this.#folder, name)));
  }

  /** Returns a file of the folder. */
  file(name: string): CompressedFile {
    const file = this.#files.get(name) ?? this.#read(name);
    this.#files.set(name, file);
    return file;
  }

  #read(name: string): CompressedFile {
    const bytes = readFileSync(join(this.#folder, name));
    return new CompressedFile({
      contentType: CONTENT_TYPES[extname(name)] ?? PLAIN_TEXT,
      version: Bun.hash(bytes).toString(36),
      cacheControl: name.startsWith(HASHED_FOLDER)
        ? "public, max-age=31536000, immutable"
        : "no-cache",
      bytes: () => bytes,
      plain: () => bodyInPieces(bytes),
    });
  }
}

const INDEX = "index.html";

/** A path of the site: a file, or the relative address of the file's page. */
type Found = { readonly file: CompressedFile } | { readonly location: string };

/** The built site, and the sources of its pages. */
export class DocumentationSite {
  readonly #folder: string;
  #built: { readonly files: ServedFolder; readonly builtMs: number } | undefined;
  #sources: ServedFolder | undefined;

  /** @param folder the folder of the built site */
  constructor(folder = SITE_FOLDER) {
    this.#folder = folder;
  }

  /** Returns the page for paths that do not exist, or undefined if the site is not built. */
  get notFoundPage(): CompressedFile | undefined {
    return this.#site?.file("404.html");
  }

  /**
   * Returns what the site has at a path. Returns undefined if it has nothing. If the site is not
   * built, the path of a page leads to its source.
   *
   * @param path the path below `/docs/`
   */
  find(path: string): Found | undefined {
    const site = this.#site;
    const isFolder = path === "" || path.endsWith("/");
    const name = path.slice(path.lastIndexOf("/") + 1);
    for (const file of isFolder ? [path + INDEX] : [path, `${path}.html`]) {
      if (site?.has(file)) return { file: site.file(file) };
    }
    if (!isFolder && site?.has(`${path}/${INDEX}`)) return { location: `${name}/` };
    this.#sources ??= new ServedFolder(DOCUMENTATION_FOLDER, sourceFiles());
    if (this.#sources.has(path)) return { file: this.#sources.file(path) };
    if (isFolder)
      return this.#sources.has(`${path}index.md`) ? { location: "index.md" } : undefined;
    if (this.#sources.has(`${path}.md`)) return { location: `${name}.md` };
    if (this.#sources.has(`${path}/index.md`)) return { location: `${name}/` };
    return undefined;
  }

  /** The site as it was built last: somebody may build it again while the gateway runs. */
  get #site(): ServedFolder | undefined {
    const builtMs = statSync(join(this.#folder, INDEX), { throwIfNoEntry: false })?.mtimeMs;
    if (builtMs === undefined) return undefined;
    if (this.#built?.builtMs !== builtMs) {
      const files = new ServedFolder(this.#folder, filesBelow(this.#folder));
      this.#built = { files, builtMs };
    }
    return this.#built.files;
  }
}
