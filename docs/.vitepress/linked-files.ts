import { copyFileSync, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { MarkdownRenderer } from "vitepress";
import { DOCUMENTATION_FOLDER, filesBelow } from "../../src/http/system/documentation/pages.ts";

const ROOT = dirname(DOCUMENTATION_FOLDER);
/** The site's folder for files of the repository that are not in `docs`. */
const OUTSIDE = "repository";
/** The file that a link to a folder leads to. */
const FOLDER_PAGE = "README.md";

/** Makes the linked files that are not pages a part of the site. */
export class LinkedFiles {
  readonly #base: string;
  /** Paths of the linked files and folders in the repository, by their paths on the site. */
  readonly #copies = new Map<string, string>();

  constructor(base: string) {
    this.#base = base;
  }

  /** Changes the links to files that are not pages. */
  readonly plugin = (markdown: MarkdownRenderer): void => {
    markdown.core.ruler.after("inline", "linked-files", ({ tokens, env }) => {
      const folder = dirname(env.path as string);
      for (const token of tokens.flatMap(({ children }) => children ?? [])) {
        if (token.type !== "link_open") continue;
        const href = this.#hrefOf(token.attrGet("href")!, folder);
        if (href === undefined) continue;
        token.attrSet("href", href);
        // VitePress treats only links without a target as links to pages.
        token.attrSet("target", "_self");
      }
    });
  };

  /** Copies the linked files to the site. */
  copyTo(outDir: string): void {
    for (const [onSite, source] of this.#copies) {
      if (!onSite.endsWith("/")) {
        copy(source, join(outDir, onSite));
        continue;
      }
      const files = filesBelow(source);
      for (const file of files) copy(join(source, file), join(outDir, onSite, file));
      writeFileSync(join(outDir, onSite, "index.html"), listing(onSite, files));
    }
  }

  /**
   * Returns the address on the site. Returns undefined if the link leads to a page, to another site
   * or to nothing.
   */
  #hrefOf(link: string, folder: string): string | undefined {
    if (/^(?:[a-z]+:|#|\/)/.test(link)) return undefined;
    let path = join(folder, decodeURI(link.replace(/[?#].*$/, ""))).replace(/\/$/, "");
    if (!existsSync(path)) return undefined;
    const isInside = path.startsWith(`${DOCUMENTATION_FOLDER}/`);
    if (isInside && path.endsWith(".md")) return undefined;
    const isFolder = statSync(path).isDirectory();
    // Other folders of the repository can have files that belong on no site.
    if (isFolder && !isInside) path = join(path, FOLDER_PAGE);
    if (!existsSync(path)) throw new Error(`the folder has no ${FOLDER_PAGE}: ${link}`);
    const onSite = isInside
      ? path.slice(DOCUMENTATION_FOLDER.length + 1) + (isFolder ? "/" : "")
      : `${OUTSIDE}/${path.slice(ROOT.length + 1)}`;
    this.#copies.set(onSite, path);
    return this.#base + onSite;
  }
}

function copy(source: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(source, target);
}

/** Returns a page with links to the files of a folder. */
function listing(folder: string, files: readonly string[]): string {
  const links = files.map((file) => `<li><a href="${encodeURI(file)}">${file}</a></li>`);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${folder}</title>
<h1>${folder}</h1>
<ul>
${links.join("\n")}
</ul>
</html>
`;
}
