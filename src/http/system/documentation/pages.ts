import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { PARTS } from "./parts.ts";

/** The folder with the sources of the documentation: pages in Markdown, and the files that they link. */
export const DOCUMENTATION_FOLDER = fileURLToPath(new URL("../../../../docs", import.meta.url));

export interface DocumentationPage {
  /** Path of the source relative to the documentation's folder, such as `guides/routing.md`. */
  readonly file: string;
  readonly title: string;
  /** The first sentence after the title. Empty if the title is followed by something else. */
  readonly summary: string;
}

/** A page, or a folder with the pages in it. The page of a folder is its index. */
export interface DocumentationEntry {
  readonly title: string;
  readonly page: DocumentationPage | undefined;
  readonly entries: readonly DocumentationEntry[];
}

export const HOME = "index.md";
const EXTENSION = ".md";

/** Returns the paths of all sources relative to the documentation's folder, sorted. */
export function sourceFiles(): string[] {
  return filesBelow(DOCUMENTATION_FOLDER).filter((file) => !/(^|\/)\./.test(file));
}

/** Returns the paths of all files below a folder, relative to it and sorted. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(folder, join(parentPath, name)).replaceAll(sep, "/"))
    .toSorted();
}

/** Returns the parts that have pages, with their entries in order. The home page is in none. */
export function readParts(): DocumentationEntry[] {
  const pages = sourceFiles()
    .filter((file) => file.endsWith(EXTENSION) && file !== HOME)
    .map(readPage);
  return PARTS.map(({ folder, title, order }) => {
    const isInPart = ({ file }: DocumentationPage) =>
      folder === "" ? !file.includes("/") : file.startsWith(`${folder}/`);
    const prefix = folder === "" ? "" : `${folder}/`;
    const entries = entriesIn(prefix, pages.filter(isInPart), (path) => {
      const position = order.indexOf(path.slice(prefix.length));
      return position < 0 ? order.length : position;
    });
    return { title, page: undefined, entries };
  }).filter(({ entries }) => entries.length > 0);
}

/** Returns the pages of the entries, in order. */
export function pagesOf(entries: readonly DocumentationEntry[]): DocumentationPage[] {
  return entries.flatMap(({ page, entries: inner }) => [
    ...(page === undefined ? [] : [page]),
    ...pagesOf(inner),
  ]);
}

/**
 * Returns the entries of a folder in order.
 *
 * @param prefix path of the folder, with a slash at its end
 * @param pages the pages below the folder
 */
function entriesIn(
  prefix: string,
  pages: readonly DocumentationPage[],
  positionOf: (path: string) => number,
): DocumentationEntry[] {
  const below = pages.filter(({ file }) => file !== prefix + HOME);
  const named = Map.groupBy(below, ({ file }) => file.slice(prefix.length).split("/")[0]!);
  const entries = [...named].map(([name, inside]) => {
    if (name.endsWith(EXTENSION)) {
      const page = inside[0]!;
      return { path: withoutExtension(page.file), title: page.title, page, entries: [] };
    }
    const path = prefix + name;
    const page = inside.find(({ file }) => file === `${path}/${HOME}`);
    const title = page?.title ?? name[0]!.toUpperCase() + name.slice(1).replaceAll("-", " ");
    return { path, title, page, entries: entriesIn(`${path}/`, inside, positionOf) };
  });
  return entries
    .toSorted(
      (left, right) =>
        positionOf(left.path) - positionOf(right.path) || left.title.localeCompare(right.title),
    )
    .map(({ path: _, ...entry }) => entry);
}

function withoutExtension(file: string): string {
  return file.slice(0, -EXTENSION.length);
}

export function readSource(file: string): string {
  return readFileSync(join(DOCUMENTATION_FOLDER, file), "utf8");
}

/** Reads the title and the summary of a page. */
export function readPage(file: string): DocumentationPage {
  const text = readSource(file);
  const [, heading, paragraph = ""] = /^# (.+)\n+((?!```)[\w`*[].*(?:\n.+)*)?/m.exec(text) ?? [];
  return {
    file,
    title: plainText(heading ?? withoutExtension(file)),
    summary: firstSentence(plainText(paragraph)),
  };
}

/** Returns Markdown text without its links and code marks. */
function plainText(markdown: string): string {
  return markdown
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[`*]/g, "")
    .replace(/\s+/g, " ")
    .trim();
}

/** Returns the text up to the first full stop. A colon at the end of the text is a full stop too. */
function firstSentence(text: string): string {
  const end = /\.(?= |$)|:$/.exec(text);
  return end === null ? text : `${text.slice(0, end.index)}.`;
}
