import { publicUrl } from "../http/request-headers.ts";
import type { RequestContext, RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import { expiredFlow, flowCookie, flowSecret, sessionCookie } from "./browser.ts";
import type { IdentitySignOn } from "./identity-sign-on.ts";
import { SignInRejected } from "./oidc-client.ts";
import type { DashboardSessions } from "./sessions.ts";
import type { SingleSignOn } from "./single-sign-on.ts";

const PATH = "/dashboard/sign-on";

export interface SignOnDependencies {
  /** The identity provider of the environment. */
  readonly singleSignOn: SingleSignOn | undefined;
  readonly identitySignOn: IdentitySignOn;
  readonly sessions: DashboardSessions;
  readonly publicUrl: string | undefined;
  senderOf(context: RequestContext): string;
  onRejected(error: SignInRejected): void;
}

/** The way to an issuer and back. */
interface SignOn {
  readonly path: string;
  begin(context: RequestContext, redirectUri: string): Promise<{ url: string; secret: string }>;
  /** Returns the token of the session. */
  finish(context: RequestContext, answer: URL, secret: string): Promise<string>;
}

/**
 * Returns the routes to the identity provider of the environment and back, and to those that operators have configured.
 * They are opened by the browser, not by the dashboard's script. No part of a request decides the target of a redirect.
 */
export function signOnRoutes(dependencies: SignOnDependencies): RouteDefinition[] {
  const { singleSignOn, identitySignOn, sessions } = dependencies;
  return [
    ...(singleSignOn === undefined
      ? []
      : routesOf(dependencies, {
          path: PATH,
          begin: (_, redirectUri) => singleSignOn.begin(redirectUri),
          finish: async ({ origin }, answer, secret) =>
            sessions.beginFor(await singleSignOn.finish(answer, secret), origin),
        })),
    ...routesOf(dependencies, {
      path: `${PATH}/:id`,
      begin: ({ params }, redirectUri) => identitySignOn.begin(params.id!, redirectUri),
      async finish({ params, origin }, answer, secret) {
        const personId = await identitySignOn.finish(params.id!, answer, secret, origin);
        return (await sessions.beginForPerson(personId, origin)).token;
      },
    }),
  ];
}

function routesOf(dependencies: SignOnDependencies, signOn: SignOn): RouteDefinition[] {
  const { sessions, publicUrl: base, senderOf } = dependencies;
  const callbackOf = ({ request, params }: RequestContext) =>
    publicUrl(`${signOn.path.replace(":id", params.id ?? "")}/callback`, request, base);
  const common = {
    method: "GET",
    tag: "Dashboard",
    access: { kind: "public" },
    ignoresQuery: true,
  } as const;
  const failures = {
    403: { description: "A page with the reason", contentType: "text/html" },
    502: { description: "A page: the identity provider does not answer" },
  };
  return [
    {
      ...common,
      path: signOn.path,
      summary: "Sign in through the identity provider",
      responses: { 302: { description: "Redirect to the identity provider" }, ...failures },
      handle: (context) =>
        orPage(dependencies, context, async () => {
          await sessions.countAttempt(senderOf(context));
          const { request } = context;
          const { url, secret } = await signOn.begin(context, callbackOf(context));
          return redirect(url, flowCookie(request, base, secret));
        }),
    },
    {
      ...common,
      path: `${signOn.path}/callback`,
      summary: "Finish the sign-in through the identity provider",
      responses: { 302: { description: "Redirect to the dashboard, signed in" }, ...failures },
      handle: (context) =>
        orPage(dependencies, context, async () => {
          await sessions.countAttempt(senderOf(context));
          const { request } = context;
          const secret = flowSecret(request, base);
          if (secret === undefined) {
            const message = "This sign-in was not started in this browser, or has expired.";
            throw new SignInRejected(403, message);
          }
          const answer = new URL(callbackOf(context));
          answer.search = new URL(request.url).search;
          const token = await signOn.finish(context, answer, secret);
          const up = "../".repeat(signOn.path.split("/").length - 1);
          const response = redirect(`${up}dashboard`, sessionCookie(request, base, token));
          response.headers.append("set-cookie", expiredFlow(request, base));
          return response;
        }),
    },
  ];
}

async function orPage(
  { publicUrl: base, onRejected }: SignOnDependencies,
  { request }: RequestContext,
  work: () => Promise<Response>,
): Promise<Response> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof SignInRejected)) throw error;
    onRejected(error);
    const response = failurePage(error, publicUrl("/dashboard", request, base));
    response.headers.append("set-cookie", expiredFlow(request, base));
    return response;
  }
}

function redirect(location: string, cookie: string): Response {
  const headers = { location, "cache-control": "no-store", "referrer-policy": "no-referrer" };
  const response = new Response(null, { status: 302, headers });
  response.headers.append("set-cookie", cookie);
  return response;
}

/** Returns the page of a failed sign-in. Its messages are the gateway's own and quote no external text. */
function failurePage({ status, message }: SignInRejected, dashboard: string): Response {
  if (/["<>&]/.test(dashboard)) throw new GatewayError("internal", "not a URL");
  const html = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Model gateway</title></head>
<body><main><h1>Not signed in</h1><p>${message}</p><p><a href="${dashboard}">Back to the dashboard</a></p></main></body>
</html>
`;
  return new Response(html, {
    status,
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "cache-control": "no-store",
    },
  });
}
