import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { CompressedFile } from "../http/compressed-file.ts";
import { acceptsType } from "../http/request-headers.ts";
import { type RouteDefinition, route } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";

const ENTRY_POINT = fileURLToPath(new URL("./web/main.tsx", import.meta.url));
const CONTENT_TYPES = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
} as const;
type AssetKind = keyof typeof CONTENT_TYPES;
/** Files by their stems: the script and the style of every page, and the script that the playground loads later. */
const ASSET_NAME = /^((?:app|markdown)-)\w{1,16}(\.(?:js|css))$/;
const CURRENT = "public, max-age=31536000, immutable";
/** Cache-Control if the requested name has another version: another instance served the page. */
const OUTDATED = "no-store";

const SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'self'",
].join("; ");

interface Asset {
  readonly name: string;
  readonly file: CompressedFile;
}

interface Assets extends Readonly<Record<AssetKind, Asset>> {
  /** Scripts that pages load when they need them. */
  readonly later: readonly Asset[];
}

/**
 * Scripts and styles of the pages. Built soon after the start, or for the first page, and cached in memory.
 */
export class PageBundle {
  #built: Promise<Assets> | undefined;

  assets(): Promise<Assets> {
    this.#built ??= build().catch((error: unknown) => {
      this.#built = undefined;
      throw error;
    });
    return this.#built;
  }

  /** Builds the files and compresses them. */
  async prepare(): Promise<void> {
    const { js, css, later } = await this.assets();
    await Promise.all([js, css, ...later].map(({ file }) => file.prepare()));
  }
}

async function build(): Promise<Assets> {
  const { outputs } = await Bun.build({
    entrypoints: [ENTRY_POINT],
    target: "browser",
    minify: true,
    splitting: true,
    naming: {
      entry: "app-[hash].[ext]",
      chunk: "[name]-[hash].[ext]",
      asset: "[name]-[hash].[ext]",
    },
  });
  const asset = async (
    kind: AssetKind,
    output: Bun.BuildArtifact,
    name?: string,
  ): Promise<Asset> => {
    const bytes = new Uint8Array(await output.arrayBuffer());
    const version = Bun.hash(bytes).toString(36);
    return {
      name: name ?? `app-${version}.${kind}`,
      file: new CompressedFile({
        contentType: CONTENT_TYPES[kind],
        version,
        cacheControl: CURRENT,
        bytes: () => bytes,
        plain: () => bytes,
      }),
    };
  };
  const first = (kind: AssetKind): Promise<Asset> => {
    const output = outputs.find((one) => one.kind !== "chunk" && one.path.endsWith(`.${kind}`));
    if (output === undefined) throw new Error(`the dashboard build produced no .${kind} file`);
    return asset(kind, output);
  };
  const chunks = outputs.filter(({ kind }) => kind === "chunk");
  const [js, css, ...later] = await Promise.all([
    first("js"),
    first("css"),
    // The script names them in its imports.
    ...chunks.map((chunk) => asset("js", chunk, basename(chunk.path))),
  ]);
  const odd = later.find(({ name }) => !ASSET_NAME.test(name));
  if (odd !== undefined) throw new Error(`the dashboard build produced the unlisted ${odd.name}`);
  return { js, css, later };
}

/**
 * Pages: path, summary, and path of the assets relative to the page. It is relative because a proxy can serve
 * the gateway under a path.
 */
const PAGES = [
  ["/dashboard", "Dashboard", "dashboard/assets"],
  ["/dashboard/:page", "Dashboard page", "assets"],
  ["/dashboard/settings/:section", "Dashboard settings section", "../assets"],
  ["/dashboard/responses/:section", "Dashboard responses section", "../assets"],
  ["/dashboard/storage/:section", "Dashboard storage section", "../assets"],
] as const;

/** Returns the routes of the HTML pages: the dashboard, and the redirect from the gateway's root. */
export function pageRoutes(bundle: PageBundle): RouteDefinition[] {
  return [
    {
      ...publicGet("/", "Redirect browsers to the dashboard"),
      responses: {
        302: { description: "Redirect to the dashboard." },
        404: { description: "The client does not accept HTML." },
      },
      handle: ({ request }) => redirectToDashboard(request),
    },
    ...PAGES.map(
      ([path, summary, base]): RouteDefinition => ({
        ...publicGet(path, summary),
        responses: {
          200: { description: "The page.", contentType: "text/html" },
          308: { description: "Redirect to the path without the trailing slash." },
        },
        handle: async ({ request }) =>
          withoutSlash(request) ?? pageResponse(await bundle.assets(), base),
      }),
    ),
    route({
      ...publicGet("/dashboard/assets/:name", "Get a script or style of the dashboard"),
      responses: {
        200: { description: "The file.", contentType: "text/javascript" },
        304: { description: "The browser's copy of the file is current." },
        404: { description: "The file does not exist." },
      },
      async handle({ request, params }) {
        const { name } = params;
        const [, stem, extension] = ASSET_NAME.exec(name) ?? [];
        const { js, css, later } = await bundle.assets();
        const asset = [js, css, ...later].find(
          (one) => stem && one.name.startsWith(stem) && one.name.endsWith(extension!),
        );
        if (asset === undefined) {
          throw new GatewayError("route_not_found", "The dashboard has no such file.");
        }
        return asset.file.answer(request, name === asset.name ? CURRENT : OUTDATED);
      },
    }),
  ];
}

function publicGet<Path extends string>(path: Path, summary: string) {
  const common = { tag: "Dashboard", access: { kind: "public" }, ignoresQuery: true } as const;
  return { method: "GET", path, summary, ...common } as const;
}

function redirectToDashboard({ method, headers }: Request): Response {
  const vary = { vary: "accept" };
  // Some clients send HEAD to check that the gateway is up.
  if (method === "HEAD") return new Response(null, { headers: vary });
  if (acceptsType(headers.get("accept"), "text/html")) {
    return new Response(null, { status: 302, headers: { ...vary, location: "dashboard" } });
  }
  throw new GatewayError(
    "route_not_found",
    "There is no endpoint here. All endpoints are described at /docs.",
  );
}

/**
 * Returns a redirect for a path with a trailing slash, because the relative paths of the page would be wrong.
 * Returns undefined for other paths.
 */
function withoutSlash({ url }: Request): Response | undefined {
  const { pathname, search } = new URL(url);
  const last = /([^/]+)\/+$/.exec(pathname)?.[1];
  if (last === undefined) return undefined;
  return new Response(null, { status: 308, headers: { location: `../${last}${search}` } });
}

/**
 * Returns the HTML page.
 *
 * @param base path of the assets relative to the page
 */
function pageResponse({ js, css }: Assets, base: string): Response {
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Model gateway</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${base}/${css.name}">
<script type="module" src="${base}/${js.name}"></script>
</head>
<body><noscript>The dashboard needs JavaScript.</noscript></body>
</html>
`;
  return new Response(html, {
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": SECURITY_POLICY,
      "cross-origin-opener-policy": "same-origin",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "cache-control": "no-cache",
    },
  });
}
