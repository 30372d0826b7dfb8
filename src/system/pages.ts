import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { acceptedCoding, acceptsType, publicUrl } from "../http/request-headers.ts";
import type { RouteDefinition } from "../http/route.ts";
import { bodyInPieces } from "../lib/body-pieces.ts";
import { GatewayError } from "../lib/errors.ts";

interface DescriptionDependencies {
  /** The OpenAPI document; asked once, when it is first needed. */
  document(): object;
}

/** The API's description for programs, and the same for people. */
export function descriptionRoutes(dependencies: DescriptionDependencies): RouteDefinition[] {
  let text: Uint8Array | undefined;
  const script = new ReaderScript();
  return [
    {
      ...publicGet("/openapi.json", "OpenAPI document"),
      responses: { 200: { description: "The document.", contentType: "application/json" } },
      handle() {
        text ??= Buffer.from(JSON.stringify(dependencies.document()));
        return new Response(bodyInPieces(text), {
          headers: { "content-type": "application/json", "cache-control": "no-cache" },
        });
      },
    },
    {
      ...publicGet("/docs", "Reference page"),
      responses: {
        200: { description: "The page.", contentType: "text/html" },
        308: { description: "Without the slash at its end it is the page." },
      },
      handle: ({ request }) => (request.url.endsWith("/") ? pageWithoutSlash() : page()),
    },
    {
      ...publicGet("/docs/scalar.js", "Script of the reference page"),
      responses: {
        200: { description: "The script.", contentType: "text/javascript" },
        304: { description: "The script that the browser has is current." },
      },
      handle: ({ request }) => script.answer(request),
    },
  ];
}

function publicGet(path: string, summary: string) {
  return { method: "GET", path, summary, tag: "Operation", access: { kind: "public" } } as const;
}

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

/** The page names its files relative to itself, for proxies that put it below a path: from `/docs/` they are not there. */
function pageWithoutSlash(): Response {
  return new Response(null, { status: 308, headers: { location: "../docs" } });
}

/** Best first; brotli's default effort would take seconds. */
const CODINGS = ["br", "zstd", "gzip"] as const;
type Coding = (typeof CODINGS)[number];
const BROTLI_QUALITY = 6;

const compress: Readonly<Record<Coding, (bytes: Uint8Array) => Promise<Uint8Array>>> = {
  br: (bytes) =>
    promisify(brotliCompress)(bytes, {
      params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY },
    }),
  zstd: (bytes) => Bun.zstdCompress(bytes),
  gzip: (bytes) => promisify(gzip)(bytes),
};

/** The script as a browser takes it; each form is made once, off the event loop, and kept in memory. */
class ReaderScript {
  readonly #compressed = new Map<Coding, Promise<Uint8Array>>();

  /** Uncompressed it is sent from the disk. */
  async answer(request: Request): Promise<Response> {
    const file = Bun.file(SCRIPT_PATH);
    const coding = acceptedCoding(request.headers.get("accept-encoding"), CODINGS);
    const version = `${file.size.toString(36)}-${file.lastModified.toString(36)}`;
    const etag = `"${version}${coding === undefined ? "" : `-${coding}`}"`;
    const headers: Record<string, string> = {
      "content-type": "text/javascript; charset=utf-8",
      "cache-control": `public, max-age=${SCRIPT_MAX_AGE_SECONDS}`,
      "x-content-type-options": "nosniff",
      vary: "accept-encoding",
      etag,
    };
    if (isKnown(request.headers.get("if-none-match"), etag)) {
      return new Response(null, { status: 304, headers });
    }
    if (coding === undefined) return new Response(file, { headers });
    headers["content-encoding"] = coding;
    return new Response(bodyInPieces(await this.#made(coding)), { headers });
  }

  #made(coding: Coding): Promise<Uint8Array> {
    const made = this.#compressed.get(coding) ?? this.#make(coding);
    this.#compressed.set(coding, made);
    return made;
  }

  async #make(coding: Coding): Promise<Uint8Array> {
    try {
      return await compress[coding](await Bun.file(SCRIPT_PATH).bytes());
    } catch (error) {
      this.#compressed.delete(coding);
      throw error;
    }
  }
}

/** Whether an If-None-Match header names the tag (RFC 9110, section 13.1.2). */
function isKnown(header: string | null, etag: string): boolean {
  if (header === null) return false;
  return header.split(",").some((one) => one.trim().replace(/^W\//, "") === etag);
}

const HOME_PAGE = readFileSync(fileURLToPath(new URL("./home.html", import.meta.url)), "utf8");
const HOME_STYLE = /<style>([\s\S]*)<\/style>/.exec(HOME_PAGE)![1]!;
const HOME_STYLE_HASH = new Bun.CryptoHasher("sha256").update(HOME_STYLE).digest("base64");

/** Nothing but the page itself, with the one style that it holds. */
const HOME_SECURITY_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${HOME_STYLE_HASH}'`,
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** What a person finds at the gateway's address; programs that take no page get the usual 404. */
export function homeRoutes(publicBase: string | undefined): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/",
      tag: "Operation",
      summary: "What this is, for people",
      access: { kind: "public" },
      responses: {
        200: { description: "The page.", contentType: "text/html" },
        404: { description: "The client takes no page." },
      },
      handle({ request }) {
        // Some clients ask with HEAD whether anybody is there.
        if (request.method !== "HEAD" && !acceptsType(request.headers.get("accept"), "text/html")) {
          throw new GatewayError(
            "route_not_found",
            "There is no endpoint here. All endpoints are described at /docs.",
          );
        }
        return new Response(homePage(publicUrl("", request, publicBase)), {
          headers: {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": HOME_SECURITY_POLICY,
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
            vary: "accept, host",
          },
        });
      },
    },
  ];
}

function homePage(baseUrl: string): string {
  return HOME_PAGE.replaceAll("{{base_url}}", Bun.escapeHTML(baseUrl.replace(/\/+$/, "")));
}
