import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { DOCUMENTATION_FOLDER, sourceFiles } from "../../src/http/system/documentation/pages.ts";
import { PARTS } from "../../src/http/system/documentation/parts.ts";
import { documentationRoutes } from "../../src/http/system/documentation/routes.ts";
import { DocumentationSite } from "../../src/http/system/documentation/site.ts";
import { callPublic, refusalOf } from "./public-context.ts";

/** A small built site. */
const BUILT: Readonly<Record<string, string>> = {
  "404.html": "<title>No such page</title>",
  "index.html": "<title>Home</title>",
  "assets/app.CfNyY7Ds.js": "// the script",
  "assets/style.CfNyY7Ds.css": "/* the styles */",
  "guides/clients/index.html": "<title>Clients</title>",
  "guides/routing.html": "<title>Routing</title>",
  "deploy/nginx.conf": "server {}",
};
const PAGES = sourceFiles().filter((file) => file.endsWith(".md"));

let folder: string;
let built: ReturnType<typeof documentationRoutes>;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "documentation-"));
  for (const [name, content] of Object.entries(BUILT)) {
    mkdirSync(dirname(join(folder, "site", name)), { recursive: true });
    writeFileSync(join(folder, "site", name), content);
  }
  writeFileSync(join(folder, "secret.txt"), "not of the site");
  built = documentationRoutes(new DocumentationSite(join(folder, "site")));
});
afterAll(() => rmSync(folder, { recursive: true }));

const get = async (path: string, headers: Record<string, string> = {}, routes = built) =>
  (await callPublic(routes, path === "/docs" ? path : "/docs/*", headers, path)).response;

describe("a built site", () => {
  test.each([
    ["/docs/", "index.html", "text/html; charset=utf-8"],
    ["/docs/index.html", "index.html", "text/html; charset=utf-8"],
    ["/docs/guides/routing", "guides/routing.html", "text/html; charset=utf-8"],
    ["/docs/guides/clients/", "guides/clients/index.html", "text/html; charset=utf-8"],
    ["/docs/assets/app.CfNyY7Ds.js", "assets/app.CfNyY7Ds.js", "text/javascript; charset=utf-8"],
    ["/docs/assets/style.CfNyY7Ds.css", "assets/style.CfNyY7Ds.css", "text/css; charset=utf-8"],
    ["/docs/deploy/nginx.conf", "deploy/nginx.conf", "text/plain; charset=utf-8"],
  ])("GET %s is the file %s", async (path, file, contentType) => {
    const response = await get(path);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe(contentType);
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(await response.text()).toBe(BUILT[file]!);
  });

  test("paths without the slash of a folder lead to the folder, below a proxy's path too", async () => {
    const home = await get("/docs");
    expect(home.status).toBe(308);
    expect(new URL(home.headers.get("location")!, "http://host/models/docs").pathname).toBe(
      "/models/docs/",
    );
    const clients = await get("/docs/guides/clients");
    expect(clients.status).toBe(307);
    expect(
      new URL(clients.headers.get("location")!, "http://host/models/docs/guides/clients").pathname,
    ).toBe("/models/docs/guides/clients/");
  });

  test("browsers revalidate pages, and keep files with a hash in their name", async () => {
    const page = await get("/docs/guides/routing");
    expect(page.headers.get("cache-control")).toBe("no-cache");
    const etag = page.headers.get("etag")!;
    const again = await get("/docs/guides/routing", { "if-none-match": etag });
    expect(again.status).toBe(304);
    expect(await again.text()).toBe("");
    const script = await get("/docs/assets/app.CfNyY7Ds.js");
    expect(script.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(script.headers.get("etag")).not.toBe(etag);
  });

  test("files are compressed for clients that accept it", async () => {
    const response = await get("/docs/", { "accept-encoding": "br" });
    expect(response.headers.get("content-encoding")).toBe("br");
    expect(brotliDecompressSync(await response.bytes()).toString()).toBe(BUILT["index.html"]!);
  });

  test("pages allow no inline scripts, other origins, frames or forms", async () => {
    for (const path of ["/docs/", "/docs/guides/routing", "/docs/missing"]) {
      const response = await get(path, { accept: "text/html" });
      const policy = response.headers.get("content-security-policy")!.split("; ");
      expect(policy).toEqual(
        expect.arrayContaining([
          "default-src 'none'",
          "script-src 'self'",
          "connect-src 'self'",
          "base-uri 'none'",
          "form-action 'none'",
          "frame-ancestors 'none'",
        ]),
      );
      expect(policy.join()).not.toMatch(/http|\*|unsafe-eval/);
      expect(response.headers.get("referrer-policy")).toBe("no-referrer");
    }
  });

  test("a browser gets a page for a missing path, and other clients an error", async () => {
    const page = await get("/docs/missing", { accept: "text/html,*/*;q=0.8" });
    expect(page.status).toBe(404);
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(await page.text()).toBe(BUILT["404.html"]!);
    expect(await refusalOf(get("/docs/missing"))).toBe("route_not_found");
  });

  test.each([
    "/docs/..%2fsecret.txt",
    "/docs/%2e%2e%2fsecret.txt",
    "/docs/..%5csecret.txt",
    "/docs//etc/passwd",
    "/docs/%2fetc%2fpasswd",
    "/docs/guides/..%2f..%2f..%2fsecret.txt",
    "/docs/.vitepress/config.ts",
    "/docs/guides",
    "/docs/%",
    "/docs/%00",
    "/docs/constructor",
  ])("GET %s finds no file", async (path) => {
    expect(await refusalOf(get(path))).toBe("route_not_found");
  });
});

describe("without a built site", () => {
  const unbuilt = documentationRoutes(new DocumentationSite("/nonexistent"));

  test("/docs/ lists every page, the API reference and the command that builds the site", async () => {
    const response = await get("/docs/", {}, unbuilt);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("content-security-policy")).toContain("script-src 'self'");
    const html = await response.text();
    const links = [...html.matchAll(/<a href="([^"]+)"/g)].map(([, link]) => link!);
    const pages = PAGES.filter((file) => file !== "index.md");
    expect(links.toSorted()).toEqual(["api-reference", ...pages].toSorted());
    expect(html).toContain("bun run docs");
  });

  test("the path of a page leads to its source", async () => {
    const page = await get("/docs/guides/routing", {}, unbuilt);
    expect(page.status).toBe(307);
    expect(page.headers.get("location")).toBe("routing.md");
    const folderPage = await get("/docs/guides/clients/", {}, unbuilt);
    expect(folderPage.headers.get("location")).toBe("index.md");
  });

  test("the site is served without a restart once it is built", async () => {
    const later = join(folder, "later");
    const routes = documentationRoutes(new DocumentationSite(later));
    expect(await (await get("/docs/", {}, routes)).text()).toContain("bun run docs");
    mkdirSync(later);
    writeFileSync(join(later, "index.html"), "built now");
    expect(await (await get("/docs/", {}, routes)).text()).toBe("built now");
  });

  test("the site is served anew once it is built again, and its old files are not found", async () => {
    const again = join(folder, "again");
    mkdirSync(again);
    writeFileSync(join(again, "index.html"), "first");
    writeFileSync(join(again, "old.js"), "");
    const routes = documentationRoutes(new DocumentationSite(again));
    expect(await (await get("/docs/", {}, routes)).text()).toBe("first");
    rmSync(join(again, "old.js"));
    expect(await refusalOf(get("/docs/old.js", {}, routes))).toBe("route_not_found");
    writeFileSync(join(again, "index.html"), "second");
    utimesSync(join(again, "index.html"), 1, 1);
    writeFileSync(join(again, "new.js"), "");
    expect(await (await get("/docs/", {}, routes)).text()).toBe("second");
    expect((await get("/docs/new.js", {}, routes)).status).toBe(200);
  });
});

test.each(PAGES)("GET /docs/%s is the source of the page, built or not", async (file) => {
  const routes = documentationRoutes(new DocumentationSite("/nonexistent"));
  for (const response of [await get(`/docs/${file}`), await get(`/docs/${file}`, {}, routes)]) {
    expect(response.headers.get("content-type")).toBe("text/markdown; charset=utf-8");
    expect(await response.text()).toBe(readFileSync(join(DOCUMENTATION_FOLDER, file), "utf8"));
  }
});

test("/llms.txt has a title, a summary and a line for every page, in the format of llmstxt.org", async () => {
  const { response } = await callPublic(built, "/llms.txt");
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  const lines = (await response.text()).split("\n").filter((line) => line !== "");
  expect(lines[0]).toMatch(/^# \S/);
  expect(lines[1]).toMatch(/^> \S/);
  const entries = lines.filter((line) => line.startsWith("- "));
  for (const line of entries) expect(line).toMatch(/^- \[[^\]]+\]\([\w./-]+\)(: \S.*)?$/);
  const listed = entries.map((line) => /\(([^)]+)\)/.exec(line)![1]!);
  const pages = PAGES.filter((file) => file !== "index.md").map((file) => `docs/${file}`);
  expect(listed.toSorted()).toEqual([...pages, "openapi.json", "llms-full.txt"].toSorted());
  expect(lines.filter((line) => line.startsWith("## ")).length).toBeGreaterThanOrEqual(3);
});

test("/llms-full.txt contains every page", async () => {
  const { response } = await callPublic(built, "/llms-full.txt");
  const text = await response.text();
  for (const file of PAGES) {
    expect(text).toContain(readFileSync(join(DOCUMENTATION_FOLDER, file), "utf8"));
  }
});

test("the order of the pages names only pages and folders that exist", () => {
  const missing = PARTS.flatMap(({ folder, order }) =>
    order
      .map((name) => join(folder, name))
      .filter(
        (path) => !PAGES.some((file) => file === `${path}.md` || file.startsWith(`${path}/`)),
      ),
  );
  expect(missing).toEqual([]);
});
