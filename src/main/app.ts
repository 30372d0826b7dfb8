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

/** Above every limit of our own, so that those decide. */
const MAX_REQUEST_BODY_BYTES = 1_100_000_000;
/** Request line and headers. Bun answers 431 itself, without an error envelope, as soon as more have come. */
const MAX_HEADER_BYTES = 32_768;
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"] as const;

/** Mounts the routes. What is mounted nowhere is 404; another method of a mounted path is 405. */
export function createApp(
  routes: readonly RouteDefinition[],
  pipeline: PipelineDependencies & { readonly corsOrigins: readonly string[] },
) {
  // Bun has it for the whole process.
  Object.assign(http, { maxHeaderSize: MAX_HEADER_BYTES });
  const app = new Elysia({
    serve: {
      // Bun's own page for a failure shows source lines and paths.
      development: false,
      error: (error: unknown) => failed(error),
      maxRequestBodySize: MAX_REQUEST_BODY_BYTES,
      idleTimeout: pipeline.connectionIdleSeconds,
    },
    aot: true,
    normalize: false,
    // Else the path of a wildcard is found only behind a host of four letters or more.
    handler: { standardHostname: false },
  });
  /** A failure outside of the pipeline, which answers its own. */
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
    // Elysia reads its handlers' text, and prepares for each request what that seems to use: bodies, cookies
    // and all where the whole context is handed on, an async frame where a call is returned.
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
    // Of a request without a host the address is its path alone, whose beginning is then taken for a host.
    if (request.url.startsWith("/"))
      return app.handle(new Request(ANY_HOST + request.url, request));
    const { pathname } = new URL(request.url);
    const message = missing.message(request.method, pathname);
    return readable(request, refuse("route_not_found", message, {}, wireBelow(wires, request)));
  });
}

/** The wire of a path that is mounted nowhere: that of a mounted path above it. */
function wireBelow(
  wires: ReadonlyMap<string, RouteDefinition["wire"]>,
  request: Request,
): ClientWire | undefined {
  const { pathname } = new URL(request.url, ANY_HOST);
  for (const [path, wire] of wires) {
    if (wire !== undefined && pathname.startsWith(`${path}/`)) return wireOf(wire, request);
  }
  return undefined;
}

/** Each method that a mounted path does not take, with those that it takes. */
function* notMounted(methodsByPath: ReadonlyMap<string, ReadonlySet<string>>) {
  for (const [path, mounted] of methodsByPath) {
    const methods = [...mounted];
    for (const method of METHODS) if (!mounted.has(method)) yield { path, methods, method };
  }
}

const ANY_HOST = "http://localhost";

/** What the router hands to a handler. */
interface Mounted {
  readonly request: Request;
  readonly params?: Record<string, string>;
}

/** No text in the database holds a NUL: with another character in its place it names nothing either. */
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
/** As a parameter has it, or as the rest of a path still has it. */
const NUL = /\0|%00/;

/** Of a body whose length is not stated the server tells what a GET would, and sends nothing of it. */
function withoutBody(response: Response): Response {
  if (!response.headers.has("content-length")) return response;
  void response.body?.cancel();
  return new Response(null, { status: response.status, headers: response.headers });
}

/** What every response carries. */
function identified(response: Response): Response {
  const requestId = newId("req");
  response.headers.set("x-gateway-request-id", requestId);
  response.headers.set("x-request-id", requestId);
  return response;
}

const INTERNAL = "Something went wrong inside the gateway.";

/** Clients that prefer a WebSocket, such as Codex, send plain requests after 426 and try again after anything else. */
function refuseMethod(
  { method, headers }: Request,
  path: string,
  allowed: readonly string[],
  wire: ClientWire | undefined,
): Response {
  if (headers.get("upgrade")?.toLowerCase() === "websocket") {
    const message = `${path} has no WebSocket: send its requests by HTTP.`;
    return refuse("websocket_unsupported", message, { upgrade: "HTTP/1.1" }, wire);
  }
  const methods = allowed.join(", ");
  const message = `${path} does not take ${method}, but ${methods}.`;
  return refuse("method_not_allowed", message, { allow: methods }, wire);
}

/** The answer to a request whose Host header is invalid; nothing else of its address can be relied on. */
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
