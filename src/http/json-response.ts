import { bodyInPieces } from "../lib/body-pieces.ts";

/** A JSON answer. What every response carries is added behind the route. */
export function jsonResponse(body: unknown, status = 200): Response {
  return new Response(bodyInPieces(JSON.stringify(body)), {
    status,
    headers: { "content-type": "application/json" },
  });
}
