import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const PAGE_PATH = fileURLToPath(new URL("./reference-page.html", import.meta.url));
/** Scalar's API reference as one file, which its package holds beside its modules. */
const SCRIPT_PATH = fileURLToPath(
  new URL("./js/standalone.js", import.meta.resolve("@scalar/fastify-api-reference")),
);
const SCRIPT_MAX_AGE_SECONDS = 86_400;

/**
 * Nothing from outside, no script but ours, and requests only to this gateway. Scalar sets styles on
 * elements and inserts style sheets, hence the one permission for inline styles.
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
 * The page around the script. Read first: of a small file that is sent from the disk the platform makes a
 * copy for each request, also for a client that reads none of them.
 */
export function page(): Response {
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

/** The page names its files relative to itself, for proxies that put it below a path: from `/docs/` they are not there. */
export function pageWithoutSlash(): Response {
  return new Response(null, { status: 308, headers: { location: "../docs" } });
}

/**
 * Sent from the disk, not held in memory.
 *
 * @param known the If-None-Match header
 */
export function readerScript(known: string | null): Response {
  const file = Bun.file(SCRIPT_PATH);
  const etag = `"${file.size.toString(36)}-${file.lastModified.toString(36)}"`;
  const headers = {
    "content-type": "text/javascript; charset=utf-8",
    "cache-control": `public, max-age=${SCRIPT_MAX_AGE_SECONDS}`,
    "x-content-type-options": "nosniff",
    etag,
  };
  if (known === etag) return new Response(null, { status: 304, headers });
  return new Response(file, { headers });
}
