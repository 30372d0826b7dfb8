import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { acceptsType, publicUrl } from "../http/request-headers.ts";
import type { RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";

const PAGE = readFileSync(fileURLToPath(new URL("./home.html", import.meta.url)), "utf8");
const STYLE = /<style>([\s\S]*)<\/style>/.exec(PAGE)![1]!;
const STYLE_HASH = new Bun.CryptoHasher("sha256").update(STYLE).digest("base64");

/** Nothing but the page itself, with the one style that it holds. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${STYLE_HASH}'`,
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
        return new Response(pageFor(publicUrl("", request, publicBase)), {
          headers: {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": CONTENT_SECURITY_POLICY,
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

function pageFor(baseUrl: string): string {
  return PAGE.replaceAll("{{base_url}}", Bun.escapeHTML(baseUrl.replace(/\/+$/, "")));
}
