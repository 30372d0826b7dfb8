import type { RouteDefinition } from "../http/route.ts";
import { bodyInPieces } from "../lib/body-pieces.ts";
import { page, pageWithoutSlash, ReaderScript } from "./reference-page.ts";

export interface DescriptionDependencies {
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
