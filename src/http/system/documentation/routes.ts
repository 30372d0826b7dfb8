import { bodyInPieces } from "../../../lib/body-pieces.ts";
import { GatewayError } from "../../../lib/errors.ts";
import type { RequestContext, RouteDefinition } from "../../route.ts";
import {
  type DocumentationEntry,
  type DocumentationPage,
  HOME,
  pagesOf,
  readPage,
  readParts,
  readSource,
} from "./pages.ts";
import { DocumentationSite } from "./site.ts";

/**
 * Allows no content from other origins and no inline scripts. The highlighted code on the pages has
 * its colours in style attributes, so inline styles are allowed.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");
const PAGE_HEADERS = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;
const HTML = "text/html";

/**
 * Returns the routes of the documentation. Without a built site, `/docs/` lists the sources of the
 * pages.
 */
export function documentationRoutes(site = new DocumentationSite()): RouteDefinition[] {
  let list: string | undefined;
  let everything: string | undefined;
  return [
    {
      ...publicGet("/docs", "Documentation"),
      responses: {
        200: { description: "The page.", contentType: HTML },
        308: { description: "Redirects to the path with a slash at its end." },
      },
      handle: (context) => answerPath(site, context),
    },
    {
      ...publicGet("/docs/*", "Page or file of the documentation"),
      responses: {
        200: { description: "The page or the file.", contentType: HTML },
        304: { description: "The client's copy is current." },
        307: { description: "Redirects to the page." },
        404: { description: "The documentation has no such page." },
      },
      handle: (context) => answerPath(site, context),
    },
    {
      ...publicGet("/llms.txt", "List of the documentation's pages for language models"),
      responses: { 200: { description: "The list.", contentType: "text/plain" } },
      handle() {
        list ??= pageList(readParts());
        return plainText(list);
      },
    },
    {
      ...publicGet("/llms-full.txt", "All pages of the documentation in one text"),
      responses: { 200: { description: "The text.", contentType: "text/plain" } },
      handle() {
        everything ??= allPages(readParts());
        return plainText(everything);
      },
    },
  ];
}

function publicGet(path: string, summary: string) {
  const common = { tag: "Operation", access: { kind: "public" }, ignoresQuery: true } as const;
  return { method: "GET", path, summary, ...common } as const;
}

async function answerPath(site: DocumentationSite, { request }: RequestContext): Promise<Response> {
  const { pathname } = new URL(request.url);
  // Locations are relative, because a proxy can serve the gateway below a path.
  if (pathname === "/docs") return redirect(308, "docs/");
  const path = pathname.slice("/docs/".length);
  const found = site.find(path);
  if (path === "" && (found === undefined || "location" in found)) return sourceListPage();
  if (found === undefined) return missingPage(site, request);
  if ("location" in found) return redirect(307, found.location);
  const response = await found.file.answer(request);
  if (response.headers.get("content-type")?.startsWith(HTML)) {
    for (const [name, value] of Object.entries(PAGE_HEADERS)) response.headers.set(name, value);
  }
  return response;
}

function redirect(status: 307 | 308, location: string): Response {
  return new Response(null, { status, headers: { location } });
}

/** Answers browsers with the site's page for missing pages, and other clients with an error. */
async function missingPage(site: DocumentationSite, request: Request): Promise<Response> {
  const isBrowser = request.headers.get("accept")?.includes(HTML) ?? false;
  const page = isBrowser ? site.notFoundPage : undefined;
  if (page === undefined) {
    throw new GatewayError(
      "route_not_found",
      "The documentation has no such page. Its pages are listed at /llms.txt.",
    );
  }
  const { body, headers } = await page.answer(new Request(request.url));
  return new Response(body, {
    status: 404,
    headers: { ...Object.fromEntries(headers), ...PAGE_HEADERS },
  });
}

function plainText(text: string): Response {
  return new Response(bodyInPieces(text), {
    headers: { "content-type": "text/plain; charset=utf-8", "cache-control": "no-cache" },
  });
}

/** Returns the list of the pages in the format of llmstxt.org. */
function pageList(parts: readonly DocumentationEntry[]): string {
  const { title, summary } = readPage(HOME);
  const sections = parts.map((part) => [
    `## ${part.title}\n`,
    ...pagesOf(part.entries).map((page) => `- ${listLine(page)}`),
    "",
  ]);
  return [
    `# ${title}\n`,
    `> ${summary}\n`,
    "Each page is also at its address without `.md`, as HTML.\n",
    ...sections.flat(),
    "## API description\n",
    "- [OpenAPI document](openapi.json): All endpoints with their parameters, bodies and answers.",
    "- [All pages in one text](llms-full.txt)",
    "",
  ].join("\n");
}

function listLine({ file, title, summary }: DocumentationPage): string {
  return `[${title}](docs/${file})${summary === "" ? "" : `: ${summary}`}`;
}

function allPages(parts: readonly DocumentationEntry[]): string {
  const files = [HOME, ...parts.flatMap(({ entries }) => pagesOf(entries)).map(({ file }) => file)];
  return files.map((file) => `<!-- docs/${file} -->\n\n${readSource(file)}`).join("\n");
}

/** Returns the page that lists the sources of the pages. */
function sourceListPage(): Response {
  const { title, summary } = readPage(HOME);
  const sections = readParts().map(
    (part) => `<h2>${escaped(part.title)}</h2>
<ul>
${pagesOf(part.entries)
  .map(
    ({ file, title, summary }) =>
      `<li><a href="${file}">${escaped(title)}</a>${escaped(summary && `: ${summary}`)}</li>`,
  )
  .join("\n")}
</ul>`,
  );
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
<style>
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.6 system-ui, sans-serif; }
h1 { font-size: 1.6rem; }
h2 { margin: 1.6rem 0 0.4rem; font-size: 1.1rem; }
ul { margin: 0; padding-left: 1.2rem; }
</style>
</head>
<body>
<h1>${escaped(title)}</h1>
<p>${escaped(summary)}</p>
<p>The <a href="api-reference">API reference</a> describes all endpoints. The pages below are Markdown.
<code>bun run docs</code> builds the site with search from them.</p>
${sections.join("\n")}
</body>
</html>
`;
  return new Response(bodyInPieces(html), {
    headers: {
      ...PAGE_HEADERS,
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-cache",
    },
  });
}

const ESCAPES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

function escaped(text: string): string {
  return text.replace(/[&<>]/g, (character) => ESCAPES[character]!);
}
