import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { version } from "../../package.json";
import { jsonResponse } from "../http/error-response.ts";
import type { SessionCaller } from "../http/pipeline.ts";
import {
  type KeyAccess,
  type RequestContext,
  type RouteDefinition,
  route,
  type SessionAccess,
} from "../http/route.ts";
import type { Clock } from "../lib/clock.ts";
import { assertDashboardPage, senderOf, sessionCookie } from "./browser.ts";
import type { LiveFigures } from "./live.ts";
import { overviewRoute } from "./overview.ts";
import { type PageBundle, pageRoutes } from "./pages.ts";
import { csrfTokenOf, type DashboardSessions } from "./sessions.ts";
import { type Offers, settingsRoutes } from "./settings.ts";
import { signOnRoutes } from "./sign-on-routes.ts";
import type { SignInRejected, SingleSignOn } from "./single-sign-on.ts";

export interface DashboardDependencies {
  readonly sessions: DashboardSessions;
  readonly live: LiveFigures;
  readonly bundle: PageBundle;
  readonly sql: Database;
  readonly clock: Clock;
  readonly publicUrl: string | undefined;
  isTrustedProxy(address: string): boolean;
  readonly singleSignOn: SingleSignOn | undefined;
  onRejected(error: SignInRejected): void;
  readonly offers: Offers;
}

const PREFIX = "/dashboard/api";
/** Access kinds that a session can use. Model endpoints are never among them. */
const SESSION_ACCESS_KINDS: ReadonlySet<KeyAccess["kind"]> = new Set([
  "administration",
  "catalogue",
  "self",
  "operator",
]);
const MAX_SIGN_IN_BYTES = 4_096;
const MAX_KEY_CHARACTERS = 256;
const tag = "Dashboard";
const anySession: SessionAccess = { kind: "session", of: { kind: "public" } };

const signInBody = Type.Object(
  { key: Type.String({ minLength: 1, maxLength: MAX_KEY_CHARACTERS }) },
  { additionalProperties: false },
);

/**
 * Returns the routes of the dashboard: its pages, its sessions, and the administrative routes of the API
 * under /dashboard/api, authenticated by session instead of key. Routes that call models are not included.
 */
export function dashboardRoutes(
  routes: readonly RouteDefinition[],
  dependencies: DashboardDependencies,
): RouteDefinition[] {
  const { singleSignOn } = dependencies;
  return [
    ...pageRoutes(dependencies.bundle),
    ...sessionRoutes(dependencies),
    ...(singleSignOn === undefined
      ? []
      : signOnRoutes({ ...dependencies, singleSignOn, senderOf: senderIn(dependencies) })),
    {
      method: "GET",
      path: `${PREFIX}/sign_in`,
      tag,
      summary: "Get sign-in methods",
      access: { kind: "public" },
      responses: { 200: { description: "The name of the identity provider, or null" } },
      handle({ request }) {
        assertDashboardPage(request, dependencies.publicUrl);
        return unstored(jsonResponse({ single_sign_on: singleSignOn?.name ?? null }));
      },
    },
    {
      method: "GET",
      path: `${PREFIX}/events`,
      tag,
      summary: "Stream changes of figures",
      access: anySession,
      responses: { 200: { description: "The stream", contentType: "text/event-stream" } },
      handle: (context) => dependencies.live.open(context),
    },
    ...[
      overviewRoute("/overview", dependencies),
      ...settingsRoutes("/settings", dependencies),
      ...routes,
    ].flatMap((route) => sessionRoutesFor(route)),
  ];
}

function senderIn({ isTrustedProxy }: DashboardDependencies) {
  return ({ request, address }: RequestContext) => senderOf(request, address, isTrustedProxy);
}

function sessionRoutesFor(route: RouteDefinition): RouteDefinition[] {
  const { access, path } = route;
  if (access.kind === "session" || !SESSION_ACCESS_KINDS.has(access.kind)) return [];
  return [
    {
      ...route,
      path: PREFIX + path,
      access: { kind: "session", of: access },
      handle: async (context) => unstored(await route.handle(context)),
    },
  ];
}

function sessionRoutes(dependencies: DashboardDependencies): RouteDefinition[] {
  const { sessions, publicUrl, offers } = dependencies;
  const hasTestPayments = offers.paymentProcessor === "test";
  const senderOfAttempt = senderIn(dependencies);
  const path = `${PREFIX}/session`;
  const state = { description: "The session and its CSRF token" };
  return [
    route({
      method: "POST",
      path,
      tag,
      summary: "Sign in with a management key or an operator key",
      access: { kind: "public" },
      maxBodyBytes: MAX_SIGN_IN_BYTES,
      body: signInBody,
      responses: { 200: state },
      async handle(context) {
        const { request, body, origin } = context;
        assertDashboardPage(request, publicUrl);
        const sender = senderOfAttempt(context);
        const { key } = body;
        const { token, caller } = await sessions.begin(key, sender, origin);
        const response = stateOf(caller, csrfTokenOf(token), hasTestPayments);
        response.headers.set("set-cookie", sessionCookie(request, publicUrl, token));
        return response;
      },
    }),
    {
      method: "GET",
      path,
      tag,
      summary: "Get the session and its CSRF token",
      access: { ...anySession, givesToken: true },
      responses: { 200: state },
      handle: (context) =>
        stateOf(callerIn(context), sessions.csrfToken(context.request), hasTestPayments),
    },
    {
      method: "DELETE",
      path,
      tag,
      summary: "Sign out",
      access: anySession,
      responses: { 200: { description: "The session was deleted" } },
      async handle(context) {
        const { request } = context;
        await sessions.end(context);
        const response = unstored(jsonResponse({ deleted: true }));
        response.headers.set("set-cookie", sessionCookie(request, publicUrl, ""));
        return response;
      },
    },
  ];
}

function callerIn({ caller, operator }: RequestContext): SessionCaller {
  return caller === undefined
    ? { kind: "operator", operator }
    : { kind: "organization", key: caller.key };
}

function stateOf(caller: SessionCaller, csrfToken: string, hasTestPayments: boolean): Response {
  const key =
    caller.kind === "operator"
      ? { id: caller.operator.id, name: caller.operator.name }
      : { id: caller.key.id, name: caller.key.name };
  return unstored(
    jsonResponse({
      kind: caller.kind,
      key,
      csrf_token: csrfToken,
      test_payments: hasTestPayments,
      version,
    }),
  );
}

function unstored(response: Response): Response {
  response.headers.set("cache-control", "no-store");
  return response;
}
