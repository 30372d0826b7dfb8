import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import { CompressedFile } from "../compressed-file.ts";
import type { RouteDefinition } from "../route.ts";

interface DescriptionDependencies {
  /** Returns the OpenAPI document. Called once, at the first request. */
  document(): object;
}

/** Returns the routes for the OpenAPI document and for its reference page. */
export function descriptionRoutes(dependencies: DescriptionDependencies): RouteDefinition[] {
  let text: Uint8Array | undefined;
  let script: CompressedFile | undefined;
  return [
    {
      ...publicGet("/openapi.json", "OpenAPI document"),
      operationId: "openapi.retrieve",
      responses: { 200: { description: "The document.", contentType: "application/json" } },
      handle() {
        text ??= Buffer.from(JSON.stringify(dependencies.document()));
        return new Response(bodyInPieces(text), {
          headers: { "content-type": "application/json", "cache-control": "no-cache" },
        });
      },
    },
    {
      ...publicGet("/docs/api-reference", "Reference page"),
      operationId: "docs.retrieve",
      responses: {
        200: { description: "The page.", contentType: "text/html" },
        308: { description: "Redirects to the page without the trailing slash." },
      },
      handle: ({ request }) => (request.url.endsWith("/") ? pageWithoutSlash() : page()),
    },
    {
      ...publicGet("/docs/scalar.js", "Script of the reference page"),
      operationId: "docs.script.retrieve",
      responses: {
        200: { description: "The script.", contentType: "text/javascript" },
        304: { description: "The browser's copy of the script is current." },
      },
      handle({ request }) {
        script ??= readerScript();
        return script.answer(request);
      },
    },
  ];
}

function publicGet(path: string, summary: string) {
  return { method: "GET", path, summary, tag: "Operation", access: { kind: "public" } } as const;
}

const PAGE_PATH = fileURLToPath(new URL("./reference-page.html", import.meta.url));
/** Scalar's API reference as one file, which its package contains next to its modules. */
const SCRIPT_PATH = fileURLToPath(
  new URL("./js/standalone.js", import.meta.resolve("@scalar/fastify-api-reference")),
);
const SCRIPT_MAX_AGE_SECONDS = 86_400;

/**
 * Allows no content from other origins, no inline scripts, and requests only to this gateway.
 * Scalar sets styles on elements and inserts style sheets, so inline styles are allowed.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'unsafe-inline'",
  "img-src 'self' data: blob:",
  "font-src data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/**
 * Returns the page that loads the script. Reads the file into memory: when a small file is sent
 * from disk, the platform copies it for each request, even if the client reads nothing.
 */
function page(): Response {
  return new Response(readFileSync(PAGE_PATH), {
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": CONTENT_SECURITY_POLICY,
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "cache-control": "no-cache",
    },
  });
}

/**
 * Redirects to the path without the slash at its end. The page names its files relative to itself,
 * for proxies that serve it below a path, and below the slash these names would be wrong.
 */
function pageWithoutSlash(): Response {
  return new Response(null, { status: 308, headers: { location: "../api-reference" } });
}

/** Returns the script. The uncompressed form is sent from disk. */
function readerScript(): CompressedFile {
  const file = Bun.file(SCRIPT_PATH);
  return new CompressedFile({
    contentType: "text/javascript; charset=utf-8",
    version: `${file.size.toString(36)}-${file.lastModified.toString(36)}`,
    cacheControl: `public, max-age=${SCRIPT_MAX_AGE_SECONDS}`,
    bytes: () => file.bytes(),
    plain: () => file,
  });
}
