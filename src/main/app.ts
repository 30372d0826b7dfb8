import http from "node:http";
import { Elysia } from "elysia";
import { createCors } from "../http/cors.ts";
import { type ClientWire, errorResponse } from "../http/error-response.ts";
import { MissingRoutes } from "../http/missing-route.ts";
import { compileRoute, type PipelineDependencies, RequestRun } from "../http/pipeline.ts";
import { assertHost } from "../http/request-headers.ts";
import { type RouteDefinition, wireOf } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";

/** Bytes of a body that Bun accepts. Above every limit of the gateway, so that those decide. */
const MAX_REQUEST_BODY_BYTES = 1_100_000_000;
/** Bytes of the request line and headers. Bun answers 431 to more, without an error envelope. */
const MAX_HEADER_BYTES = 32_768;
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"] as const;

/** Mounts the routes. An unknown path is answered with 404, and another method of a mounted path with 405. */
export function createApp(
  routes: readonly RouteDefinition[],
  pipeline: PipelineDependencies & { readonly corsOrigins: readonly string[] },
) {
  // Bun applies this limit to the whole process.
  Object.assign(http, { maxHeaderSize: MAX_HEADER_BYTES });
  const app = new Elysia({
    serve: {
      // Bun's default page for a failure shows source lines and paths.
      development: false,
      error: (error: unknown) => failed(error),
      maxRequestBodySize: MAX_REQUEST_BODY_BYTES,
      idleTimeout: pipeline.connectionIdleSeconds,
    },
    aot: true,
    normalize: false,
    // Otherwise Elysia finds the path of a wildcard only after a host of four letters or more.
    handler: { standardHostname: false },
  });
  /** Receives a failure outside the pipeline, which handles its own failures. */
  const failed = (thrown: unknown, wire?: ClientWire): Response => {
    const requestId = newId("req");
    const error = new GatewayError("internal", INTERNAL, { cause: thrown });
    pipeline.onInternalError(error, requestId);
    return errorResponse(error, requestId, {}, wire);
  };
  const cors = createCors(pipeline.corsOrigins);
  const readable = (request: Request, response: Response): Response =>
    cors === undefined ? response : cors.allow(request, response);
  const methodsByPath = new Map<string, Set<string>>();
  const wires = new Map(routes.map(({ path, wire }) => [path, wire]));
  for (const route of routes) {
    const compiled = compileRoute(route, pipeline);
    const run = (request: Request, params: Mounted["params"]): Promise<Response> =>
      new RequestRun(compiled, request, storable(params), app.server).answer();
    // Elysia reads the source text of its handlers, and prepares everything that they seem to use: bodies and
    // cookies if a handler passes on the whole context, an async frame if it returns a call.
    const answer =
      cors === undefined
        ? ({ request, params }: Mounted): Promise<Response> =>
            new RequestRun(compiled, request, storable(params), app.server).answer()
        : async ({ request, params }: Mounted) => readable(request, await run(request, params));
    app.route(route.method, route.path, answer);
    const methods = methodsByPath.get(route.path) ?? new Set();
    methodsByPath.set(route.path, methods.add(route.method));
    if (route.method !== "GET") continue;
    methods.add("HEAD");
    app.route("HEAD", route.path, async ({ request, params }: Mounted) =>
      withoutBody(readable(request, await run(request, params))),
    );
  }
  for (const { path, methods, method } of notMounted(methodsByPath)) {
    const isPreflight = method === "OPTIONS" && cors !== undefined;
    app.route(
      method,
      path,
      ({ request }) => {
        const wire = wireOf(wires.get(path), request);
        const refused = refusedHost(request, wire);
        if (refused !== undefined) return refused;
        return isPreflight
          ? identified(cors.preflight(request, methods))
          : readable(request, refuseMethod(request, path, methods, wire));
      },
      { parse: "none" },
    );
  }
  const missing = new MissingRoutes(methodsByPath.keys());
  return app.onError(({ code, request, error }) => {
    const refused = refusedHost(request);
    if (refused !== undefined) return refused;
    if (code !== "NOT_FOUND") return readable(request, failed(error, wireBelow(wires, request)));
    // Without a Host header the URL of the request is only its path, and parsing would read its beginning as a host.
    if (request.url.startsWith("/"))
      return app.handle(new Request(ANY_HOST + request.url, request));
    const { pathname } = new URL(request.url);
    const message = missing.message(request.method, pathname);
    return readable(request, refuse("route_not_found", message, {}, wireBelow(wires, request)));
  });
}

/** Returns the wire format of a mounted path that is a prefix of the request's path, or undefined. */
function wireBelow(
  wires: ReadonlyMap<string, RouteDefinition["wire"]>,
  request: Request,
): ClientWire | undefined {
  const { pathname } = new URL(request.url, ANY_HOST);
  for (const [path, wire] of wires) {
    if (wire !== undefined && pathname.startsWith(`${path}/`)) return wireOf(wire, request);
  }
  // A folder whose paths all have one wire format, such as /scim/v2.
  for (const [path, wire] of wires) {
    const folder = path.slice(0, path.lastIndexOf("/") + 1);
    if (wire === undefined || !pathname.startsWith(folder)) continue;
    const isOnly = [...wires].every(([one, other]) => other === wire || !one.startsWith(folder));
    if (isOnly) return wireOf(wire, request);
  }
  return undefined;
}

/** Yields each method that a mounted path rejects, with the methods that it accepts. */
function* notMounted(methodsByPath: ReadonlyMap<string, ReadonlySet<string>>) {
  for (const [path, mounted] of methodsByPath) {
    const methods = [...mounted];
    for (const method of METHODS) if (!mounted.has(method)) yield { path, methods, method };
  }
}

const ANY_HOST = "http://localhost";

/** The part of the router's context that handlers use. */
interface Mounted {
  readonly request: Request;
  readonly params?: Record<string, string>;
}

/**
 * Returns the path parameters with each NUL replaced. No text in the database has a NUL, so no object has the resulting
 * name.
 */
function storable(params = NO_PARAMS): Readonly<Record<string, string>> {
  for (const name in params) {
    if (!NUL.test(params[name]!)) continue;
    const clean = (value: string) =>
      value.replaceAll("\0", "\ufffd").replaceAll("%00", "%EF%BF%BD");
    return Object.fromEntries(Object.entries(params).map(([key, value]) => [key, clean(value)]));
  }
  return params;
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({});
/** A NUL: decoded in a parameter, still encoded in the rest of a path. */
const NUL = /\0|%00/;

/** Returns the response without its body. If it has no length, the server itself answers HEAD correctly. */
function withoutBody(response: Response): Response {
  if (!response.headers.has("content-length")) return response;
  void response.body?.cancel();
  return new Response(null, { status: response.status, headers: response.headers });
}

/** Adds the request ids that every response has. */
function identified(response: Response): Response {
  const requestId = newId("req");
  response.headers.set("x-gateway-request-id", requestId);
  response.headers.set("x-request-id", requestId);
  return response;
}

const INTERNAL = "Something went wrong inside the gateway.";

/** Returns 405, or 426 for a WebSocket handshake: after 426, clients such as Codex send plain requests immediately. */
function refuseMethod(
  { method, headers }: Request,
  path: string,
  allowed: readonly string[],
  wire: ClientWire | undefined,
): Response {
  if (headers.get("upgrade")?.toLowerCase() === "websocket") {
    const message = `${path} does not support WebSocket. Use HTTP requests.`;
    return refuse("websocket_unsupported", message, { upgrade: "HTTP/1.1" }, wire);
  }
  const methods = allowed.join(", ");
  const message = `${path} does not accept ${method}. It accepts ${methods}.`;
  return refuse("method_not_allowed", message, { allow: methods }, wire);
}

/** Returns the rejection of a request with an invalid Host header, whose URL cannot be trusted, or undefined. */
function refusedHost({ headers }: Request, wire?: ClientWire): Response | undefined {
  try {
    assertHost(headers);
    return undefined;
  } catch (error) {
    return errorResponse(error as GatewayError, newId("req"), {}, wire);
  }
}

function refuse(
  code: "route_not_found" | "method_not_allowed" | "websocket_unsupported",
  message: string,
  headers: Readonly<Record<string, string>> = {},
  wire?: ClientWire,
): Response {
  return errorResponse(new GatewayError(code, message, { headers }), newId("req"), {}, wire);
}
