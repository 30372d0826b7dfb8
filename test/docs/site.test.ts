import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import {
  filesBelow,
  pagesOf,
  readPage,
  readParts,
  readSource,
  sourceFiles,
} from "../../src/http/system/documentation/pages.ts";
import { documentationRoutes } from "../../src/http/system/documentation/routes.ts";
import { DocumentationSite } from "../../src/http/system/documentation/site.ts";
import { callPublic } from "../http/public-context.ts";
import { CHROMIUM, launchChromium, seriousFindings, watchFaults } from "../support/chromium.ts";

/*
 * The documentation site as `bun run docs` builds it. The part with a browser needs a Chromium on this machine.
 */
if (CHROMIUM === undefined) {
  console.warn("NO CHROMIUM ON THIS MACHINE: the documentation is not tried in a browser.");
}
const ROOT = join(import.meta.dir, "../..");
const BUILD_TIMEOUT_MS = 300_000;
const BROWSER_TIMEOUT_MS = 180_000;
const PAGES = sourceFiles().filter((file) => file.endsWith(".md"));

let folder: string;
let site: DocumentationSite;
let server: Bun.Server<undefined>;
let origin: string;
let browser: Browser;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "documentation-site-"));
  const command = ["bun", "run", "docs", "--outDir", folder];
  const build = Bun.spawn(command, { cwd: ROOT, stdout: "pipe", stderr: "pipe" });
  const [exitCode, ...output] = await Promise.all([
    build.exited,
    new Response(build.stdout).text(),
    new Response(build.stderr).text(),
  ]);
  // A dead link fails the build.
  expect(exitCode, output.join("\n")).toBe(0);
  site = new DocumentationSite(folder);
  const routes = documentationRoutes(site);
  server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname } = new URL(request.url);
      const headers = Object.fromEntries(request.headers);
      const path = pathname === "/docs" ? pathname : "/docs/*";
      return (await callPublic(routes, path, headers, pathname)).response;
    },
  });
  origin = server.url.origin;
  if (CHROMIUM !== undefined) browser = await launchChromium();
}, BUILD_TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await server?.stop(true);
  rmSync(folder, { recursive: true });
});

/** Returns the path of a page on the site. */
function pathOf(file: string): string {
  return `/docs/${file.replace(/(?:index)?\.md$/, "")}`;
}

interface Html {
  readonly links: readonly string[];
  /** Addresses of the files that a browser loads with the page. */
  readonly files: readonly string[];
  readonly inlineScripts: readonly string[];
  readonly title: string;
}

/** Reads a file of the site. Addresses are paths if they are of the gateway. */
function readHtml(file: string): Html {
  const base = `http://gateway/docs/${file.replace(/(?:index)?\.html$/, "")}`;
  const html = { links: [] as string[], files: [] as string[], inlineScripts: [] as string[] };
  let title = "";
  const address = (value: string) => new URL(value, base).href.replace("http://gateway/", "/");
  new HTMLRewriter()
    .on("title", {
      text({ text }) {
        title += text;
      },
    })
    .on("a[href]", {
      element: (element) => void html.links.push(address(element.getAttribute("href")!)),
    })
    .on("link[href]:not([rel=icon]), script[src], img[src]", {
      element(element) {
        html.files.push(address(element.getAttribute("src") ?? element.getAttribute("href")!));
      },
    })
    .on("script:not([src])", {
      element: () => void html.inlineScripts.push(file),
    })
    .transform(readFileSync(join(folder, file), "utf8"));
  return { ...html, title };
}

test("the sidebar has every page, in its part", () => {
  const listed = readParts().flatMap(({ entries }) => pagesOf(entries));
  expect(["index.md", ...listed.map(({ file }) => file)].toSorted()).toEqual(PAGES);
  const { links } = readHtml("index.html");
  for (const { file } of listed) {
    expect(links).toContain(pathOf(file));
  }
});

test.each(PAGES)("%s is on the site under its title", (file) => {
  const { title } = readHtml(file.replace(/\.md$/, ".html"));
  expect(title.replaceAll("&#39;", "'").replaceAll("&amp;", "&")).toStartWith(readPage(file).title);
});

test("every link of the site leads to a page or a file of it, and every file is the gateway's", () => {
  const faults: string[] = [];
  const pages = filesBelow(folder).filter((file) => file.endsWith(".html"));
  for (const page of pages) {
    const { links, files, inlineScripts } = readHtml(page);
    faults.push(...inlineScripts.map((file) => `${file} has an inline script`));
    for (const link of [...links.filter((one) => one.startsWith("/")), ...files]) {
      const path = link.replace(/[?#].*$/, "");
      if (path === "/docs/api-reference") continue;
      const found = path.startsWith("/docs/") ? site.find(path.slice(6)) : undefined;
      if (found === undefined || "location" in found) faults.push(`${page}: ${link}`);
    }
  }
  expect(pages.length).toBeGreaterThan(PAGES.length);
  expect(faults).toEqual([]);
});

test("an example in several languages has a tab for each", () => {
  const page = PAGES.find((file) => /^```ts \[TypeScript\]/m.test(readSource(file)))!;
  const html = readFileSync(join(folder, page.replace(/\.md$/, ".html")), "utf8");
  expect(html).toMatch(/<div class="tabs">(?:<input[^>]*><label[^>]*>[^<]*<\/label>){2,}/);
  expect(html).toContain('data-title="TypeScript"');
});

const browserTest = test.skipIf(CHROMIUM === undefined);

/** Opens a page of the site, and gathers its faults and the errors in its console. */
async function open(path: string, width: number): Promise<{ page: Page; faults: string[] }> {
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: "light",
  });
  const page = await context.newPage();
  const faults = watchFaults(page, origin) as string[];
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(message.text());
  });
  await page.goto(origin + path);
  await page.getByRole("heading", { level: 1 }).waitFor();
  return { page, faults };
}

/** VitePress writes the shortcut K into the button that is named Search. */
const SEARCH_BUTTON = /^label-content-name-mismatch: .*DocSearch-Button/;

async function accessFindings(page: Page): Promise<string[]> {
  return (await seriousFindings(page)).filter((finding) => !SEARCH_BUTTON.test(finding));
}

const isDark = (page: Page): Promise<boolean> =>
  page.evaluate(() => document.documentElement.classList.contains("dark"));

browserTest(
  "a wide browser finds a page by search, reads it in dark, and asks no other address",
  async () => {
    const { page, faults } = await open("/docs", 1440);
    expect(page.url()).toBe(`${origin}/docs/`);
    await page.keyboard.press("Control+k");
    await page.locator("#localsearch-input").fill("guardrail");
    await page.locator(".result").filter({ hasText: "Guardrails" }).first().click();
    await page.waitForURL(/guardrails/);
    await page.getByRole("heading", { level: 1, name: "Guardrails" }).waitFor();
    expect(await accessFindings(page)).toEqual([]);
    expect(await isDark(page)).toBe(false);
    await page.locator(".VPNavBarAppearance button").click();
    expect(await isDark(page)).toBe(true);
    expect(await accessFindings(page)).toEqual([]);
    await page.reload();
    expect(await isDark(page)).toBe(true);
    await page.locator(".VPSidebar").getByRole("link", { name: "Routing", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Routing" }).waitFor();
    expect(faults).toEqual([]);
    await page.context().close();
  },
  BROWSER_TIMEOUT_MS,
);

browserTest(
  "the menus open on a telephone's screen",
  async () => {
    const { page, faults } = await open("/docs/guides/routing", 390);
    await page.getByRole("button", { name: "Menu", exact: true }).click();
    await page.locator(".VPSidebar").getByRole("link", { name: "Webhooks", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Webhooks" }).waitFor();
    await page.getByRole("button", { name: "mobile navigation" }).click();
    await page.locator(".VPNavScreen").getByRole("switch").click();
    expect(await isDark(page)).toBe(true);
    expect(faults).toEqual([]);
    await page.context().close();
  },
  BROWSER_TIMEOUT_MS,
);

browserTest(
  "no page is wider than a telephone's screen",
  async () => {
    // The pages look the same before their scripts run, and load faster without them.
    const context = await browser.newContext({
      viewport: { width: 390, height: 900 },
      javaScriptEnabled: false,
    });
    const page = await context.newPage();
    for (const file of PAGES) {
      await page.goto(origin + pathOf(file));
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      expect({ file, width }).toEqual({ file, width: 390 });
    }
    await context.close();
  },
  BROWSER_TIMEOUT_MS,
);

browserTest(
  "a tab that is chosen once is chosen in every example, on later pages too",
  async () => {
    const { page, faults } = await open("/docs/", 1440);
    const examples = /^```sh.* \[curl\]$[\s\S]*?^```python.* \[Python\]$/gm;
    const withTabs = PAGES.filter((file) => [...readSource(file).matchAll(examples)].length > 1);
    const [first, second] = withTabs as [string, string];
    await page.goto(origin + pathOf(first));
    await page.locator(".vp-code-group label", { hasText: "Python" }).first().click();
    const areAllChosen = () =>
      page.evaluate(() =>
        [...document.querySelectorAll<HTMLLabelElement>(".vp-code-group label")]
          .filter(({ textContent }) => textContent === "Python")
          .every(({ control }) => (control as HTMLInputElement).checked),
      );
    expect(await areAllChosen()).toBe(true);
    await page.goto(origin + pathOf(second));
    await page.waitForFunction(() =>
      document.querySelector(".vp-code-group .language-python.active"),
    );
    expect(await areAllChosen()).toBe(true);
    expect(faults).toEqual([]);
    await page.context().close();
  },
  BROWSER_TIMEOUT_MS,
);
