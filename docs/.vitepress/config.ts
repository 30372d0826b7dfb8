import { defineConfig } from "vitepress";
import {
  type DocumentationEntry,
  HOME,
  readPage,
  readParts,
} from "../../src/http/system/documentation/pages.ts";
import { moveScripts } from "./inline-scripts.ts";
import { labelledFences } from "./labelled-fences.ts";
import { LinkedFiles } from "./linked-files.ts";

const BASE = "/docs/";
const linkedFiles = new LinkedFiles(BASE);

export default defineConfig({
  title: "Model gateway",
  description: readPage(HOME).summary,
  lang: "en",
  base: BASE,
  cleanUrls: true,
  // Otherwise each page has the sizes and names of all pages in an inline script.
  metaChunk: true,
  head: [["link", { rel: "icon", href: "data:," }]],
  markdown: {
    theme: { light: "github-light", dark: "github-dark" },
    config(markdown) {
      markdown.use(labelledFences);
      markdown.use(linkedFiles.plugin);
    },
  },
  themeConfig: {
    nav: [
      ...readParts()
        .filter(({ title }) => title !== "Project")
        .map(({ title, entries }) => ({
          text: title,
          link: firstLink(entries),
          activeMatch: `^/${title.toLowerCase()}/`,
        })),
      { text: "API reference", link: "/api-reference", target: "_self" },
    ],
    sidebar: readParts().map(({ title, entries }) => ({
      text: title,
      items: entries.map(sidebarItem),
    })),
    outline: [2, 3],
    search: { provider: "local" },
    docFooter: { prev: "Previous", next: "Next" },
  },
  transformPageData(page) {
    page.description = readPage(page.relativePath).summary;
  },
  transformHtml: (html, _path, { siteConfig }) => moveScripts(html, siteConfig.outDir, BASE),
  buildEnd: ({ outDir }) => linkedFiles.copyTo(outDir),
});

interface SidebarItem {
  text: string;
  link?: string;
  collapsed?: boolean;
  items?: SidebarItem[];
}

/**
 * Returns the item of a page, or the items of a folder. A folder without a page stays open, because
 * its title would be a button with a button in it.
 */
function sidebarItem({ title, page, entries }: DocumentationEntry): SidebarItem {
  return {
    text: title,
    ...(page !== undefined && { link: linkTo(page.file) }),
    ...(entries.length > 0 && {
      ...(page !== undefined && { collapsed: true }),
      items: entries.map(sidebarItem),
    }),
  };
}

function firstLink(entries: readonly DocumentationEntry[]): string {
  const [{ page, entries: inner }] = entries as [DocumentationEntry];
  return page === undefined ? firstLink(inner) : linkTo(page.file);
}

/** Returns the path of a page on the site. */
function linkTo(file: string): string {
  return `/${file.replace(/(?:index)?\.md$/, "")}`;
}
