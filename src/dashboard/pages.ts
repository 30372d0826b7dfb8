import { fileURLToPath } from "node:url";
import { CompressedFile } from "../http/compressed-file.ts";
import { acceptsType } from "../http/request-headers.ts";
import type { RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";

const ENTRY_POINT = fileURLToPath(new URL("./web/main.tsx", import.meta.url));
const CONTENT_TYPES = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
} as const;
type AssetKind = keyof typeof CONTENT_TYPES;
const ASSET_NAME = /^app-\w{1,16}\.(js|css)$/;
const CURRENT = "public, max-age=31536000, immutable";
/** Of another version's name, which a page has that another instance served. */
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

type Assets = Readonly<Record<AssetKind, Asset>>;

/** What the pages load, built soon after the start, or when the first page is asked for, and kept in memory. */
export class PageBundle {
  #built: Promise<Assets> | undefined;

  assets(): Promise<Assets> {
    this.#built ??= build().catch((error: unknown) => {
      this.#built = undefined;
      throw error;
    });
    return this.#built;
  }

  /** With the form that browsers take. */
  async prepare(): Promise<void> {
    const { js, css } = await this.assets();
    await Promise.all([js.file.prepare(), css.file.prepare()]);
  }
}

async function build(): Promise<Assets> {
  const { outputs } = await Bun.build({
    entrypoints: [ENTRY_POINT],
    target: "browser",
    minify: true,
  });
  const asset = async (kind: AssetKind): Promise<Asset> => {
    const output = outputs.find(({ path }) => path.endsWith(`.${kind}`));
    if (output === undefined) throw new Error(`the dashboard's build made no .${kind} file`);
    const bytes = new Uint8Array(await output.arrayBuffer());
    const version = Bun.hash(bytes).toString(36);
    return {
      name: `app-${version}.${kind}`,
      file: new CompressedFile({
        contentType: CONTENT_TYPES[kind],
        version,
        cacheControl: CURRENT,
        bytes: () => bytes,
        plain: () => bytes,
      }),
    };
  };
  const [js, css] = await Promise.all([asset("js"), asset("css")]);
  return { js, css };
}

/** Each with where the assets are, relative to it: a proxy may put the gateway below a path. */
const PAGES = [
  ["/dashboard", "Dashboard", "dashboard/assets"],
  ["/dashboard/:page", "Page of the dashboard", "assets"],
  ["/dashboard/settings/:section", "Section of the dashboard's settings", "../assets"],
] as const;

/** The pages for people: the dashboard, and the way there from the gateway's address. */
export function pageRoutes(bundle: PageBundle): RouteDefinition[] {
  return [
    {
      ...publicGet("/", "The way to the dashboard, for people"),
      responses: {
        302: { description: "To the dashboard." },
        404: { description: "The client takes no page." },
      },
      handle: ({ request }) => wayToDashboard(request),
    },
    ...PAGES.map(
      ([path, summary, base]): RouteDefinition => ({
        ...publicGet(path, summary),
        responses: {
          200: { description: "The page.", contentType: "text/html" },
          308: { description: "Without the slash at its end it is the page." },
        },
        handle: async ({ request }) =>
          withoutSlash(request) ?? pageResponse(await bundle.assets(), base),
      }),
    ),
    {
      ...publicGet("/dashboard/assets/:name", "Script and style of the dashboard"),
      responses: {
        200: { description: "The file.", contentType: "text/javascript" },
        304: { description: "The file that the browser has is current." },
        404: { description: "There is no such file." },
      },
      async handle({ request, params }) {
        const name = params.name!;
        const kind = ASSET_NAME.exec(name)?.[1] as AssetKind | undefined;
        if (kind === undefined) {
          throw new GatewayError("route_not_found", "There is no such file of the dashboard.");
        }
        const asset = (await bundle.assets())[kind];
        return asset.file.answer(request, name === asset.name ? CURRENT : OUTDATED);
      },
    },
  ];
}

function publicGet(path: string, summary: string) {
  const forPeople = { tag: "Dashboard", access: { kind: "public" }, ignoresQuery: true } as const;
  return { method: "GET", path, summary, ...forPeople } as const;
}

function wayToDashboard({ method, headers }: Request): Response {
  const vary = { vary: "accept" };
  // Some clients ask with HEAD whether the gateway is there.
  if (method === "HEAD") return new Response(null, { headers: vary });
  if (acceptsType(headers.get("accept"), "text/html")) {
    return new Response(null, { status: 302, headers: { ...vary, location: "dashboard" } });
  }
  throw new GatewayError(
    "route_not_found",
    "There is no endpoint here. All endpoints are described at /docs.",
  );
}

/** Paths are relative to where an address ends: with a slash the page would find nothing. */
function withoutSlash({ url }: Request): Response | undefined {
  const { pathname, search } = new URL(url);
  const last = /([^/]+)\/+$/.exec(pathname)?.[1];
  if (last === undefined) return undefined;
  return new Response(null, { status: 308, headers: { location: `../${last}${search}` } });
}

/** @param base where the assets are, relative to the page */
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
