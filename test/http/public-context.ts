import type { RequestContext, RouteDefinition } from "../../src/http/route.ts";
import { GatewayError } from "../../src/lib/errors.ts";

/**
 * Calls a route that needs no key, as the pipeline would after its checks.
 *
 * @param requested the path of the request, if it is not that of the route
 */
export async function callPublic(
  routes: readonly RouteDefinition[],
  path: string,
  headers: Record<string, string> = {},
  requested = path,
): Promise<{ response: Response; errorCode: string | undefined }> {
  const route = routes.find((one) => one.path === path && one.access.kind === "public");
  if (route === undefined) throw new Error(`no public route ${path}`);
  const context: RequestContext = {
    request: new Request(`http://localhost${requested}`, { headers }),
    requestId: "req_1",
    address: "",
    startedMs: 0,
    params: {},
    query: {},
    person: undefined,
    caller: undefined as never,
    operator: undefined as never,
    author: undefined as never,
    origin: undefined as never,
    admitAgain: () => Promise.reject(new Error("nobody called")),
    body: undefined,
    bodyText: "",
    admittedRateHeaders: undefined,
    log: {},
    lifetime: {},
    respond: (body, headers, status = 200) => new Response(body, { status, headers }),
    keepOpen: () => () => {},
  };
  const response = await route.handle(context);
  return { response, errorCode: context.log.errorCode };
}

/** The code of the error with which a call is refused. */
export async function refusalOf(call: Promise<unknown>): Promise<string> {
  const refusal = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(refusal instanceof GatewayError)) throw new Error("the call was not refused");
  return refusal.code;
}
