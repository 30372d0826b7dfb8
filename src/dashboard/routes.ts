import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { version } from "../../package.json";
import type { Accounts } from "../accounts/people/accounts.ts";
import type { PeopleMail } from "../accounts/people/mail.ts";
import type { Passkeys } from "../accounts/people/passkeys.ts";
import type { AlertChannels } from "../alerts/alert-channels.ts";
import type { SessionCaller } from "../http/access.ts";
import { jsonResponse } from "../http/error-response.ts";
import {
  type KeyAccess,
  type RequestContext,
  type RouteDefinition,
  route,
  type SessionAccess,
  type SessionPerson,
} from "../http/route.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { isoTime } from "../lib/utc-time.ts";
import { accountRoutes } from "./account-routes.ts";
import { memberAlertRoutes } from "./alert-routes.ts";
import { assertDashboardPage, senderOf, sessionCookie } from "./browser.ts";
import type { IdentitySignOn } from "./identity-sign-on.ts";
import type { LiveFigures } from "./live.ts";
import type { ObjectServices } from "./objects/object-access.ts";
import { objectRoutes } from "./objects/routes.ts";
import type { SignInRejected } from "./oidc-client.ts";
import { operationRoutes } from "./operation.ts";
import { overviewRoute } from "./overview.ts";
import { type PageBundle, pageRoutes } from "./pages.ts";
import { type PasskeyRouteDependencies, passkeyRoutes } from "./passkey-routes.ts";
import { type PlaygroundKeysDependencies, playgroundRoutes } from "./playground-keys.ts";
import { csrfTokenOf, type DashboardSessions, OPERATOR, type SessionEnd } from "./sessions.ts";
import { type Offers, settingsRoutes } from "./settings.ts";
import { signOnRoutes } from "./sign-on-routes.ts";
import type { SingleSignOn } from "./single-sign-on.ts";

export interface DashboardDependencies {
  readonly sessions: DashboardSessions;
  readonly live: LiveFigures;
  readonly bundle: PageBundle;
  readonly sql: Database;
  readonly clock: Clock;
  readonly keys: PlaygroundKeysDependencies["keys"];
  readonly publicUrl: string | undefined;
  isTrustedProxy(address: string): boolean;
  readonly singleSignOn: SingleSignOn | undefined;
  readonly identitySignOn: IdentitySignOn;
  readonly accounts: Accounts;
  readonly passkeys: Passkeys;
  readonly mail: PeopleMail;
  readonly alerts: AlertChannels;
  /** True if keys can sign in, beside accounts. */
  readonly keysSignIn: boolean;
  onRejected(error: SignInRejected): void;
  readonly offers: Offers;
  readonly objects: ObjectServices;
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

const viewBody = Type.Object(
  { organization_id: Type.String({ minLength: 1, maxLength: 128 }) },
  { additionalProperties: false },
);

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
  const ofAccounts: PasskeyRouteDependencies = {
    ...dependencies,
    senderOf: senderIn(dependencies),
    begun: (context, started) => begun(dependencies, context, started),
  };
  return [
    ...pageRoutes(dependencies.bundle),
    ...sessionRoutes(dependencies),
    ...accountRoutes(ofAccounts),
    ...passkeyRoutes(ofAccounts),
    ...memberAlertRoutes(dependencies),
    ...signOnRoutes({ ...dependencies, senderOf: senderIn(dependencies) }),
    {
      method: "GET",
      path: `${PREFIX}/sign_in`,
      tag,
      summary: "Get sign-in methods",
      access: { kind: "public" },
      responses: { 200: { description: "The name of the identity provider, or null" } },
      async handle({ request }) {
        assertDashboardPage(request, dependencies.publicUrl);
        const providers = await dependencies.identitySignOn.buttons();
        return unstored(
          jsonResponse({
            single_sign_on: singleSignOn?.name ?? null,
            providers,
            keys: dependencies.keysSignIn,
            mail: dependencies.mail.isConfigured,
          }),
        );
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
      ...operationRoutes("/operation", dependencies),
      ...settingsRoutes("/settings", dependencies),
      ...objectRoutes(dependencies.objects),
      ...playgroundRoutes("/playground", dependencies),
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
  const { sessions, publicUrl } = dependencies;
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
        if (!dependencies.keysSignIn) {
          const message = "Keys cannot sign in to this dashboard. Sign in with your account.";
          throw new GatewayError("wrong_key_kind", message);
        }
        const sender = senderOfAttempt(context);
        const { key } = body;
        return begun(dependencies, context, await sessions.begin(key, sender, origin));
      },
    }),
    {
      method: "GET",
      path,
      tag,
      summary: "Get the session and its CSRF token",
      access: { ...anySession, givesToken: true },
      responses: { 200: state },
      async handle(context) {
        const { request } = context;
        const end = await sessions.endOf(request);
        return stateOf(dependencies, callerIn(context), sessions.csrfToken(request), end);
      },
    },
    route({
      method: "POST",
      path: `${path}/view`,
      tag,
      summary: "View an organization as operator, read-only",
      access: anySession,
      maxBodyBytes: MAX_SIGN_IN_BYTES,
      body: viewBody,
      responses: { 200: state, 404: { description: "There is no such organization" } },
      async handle(context) {
        if (context.operator === undefined) {
          throw new GatewayError("wrong_key_kind", "Only operators can view an organization.");
        }
        const started = await sessions.view(context, context.body.organization_id);
        return begun(dependencies, context, started);
      },
    }),
    {
      method: "DELETE",
      path: `${path}/view`,
      tag,
      summary: "Leave the view of an organization",
      access: { ...anySession, endsView: true },
      responses: { 200: state },
      async handle(context) {
        if (context.operator === undefined || context.caller === undefined) {
          throw new GatewayError("wrong_key_kind", "This session views no organization.");
        }
        return begun(dependencies, context, await sessions.view(context, null));
      },
    },
    {
      method: "DELETE",
      path,
      tag,
      summary: "Sign out",
      access: { ...anySession, endsView: true },
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

function callerIn({ caller, operator, person }: RequestContext): SessionCaller {
  return caller === undefined
    ? { kind: "operator", operator, person }
    : { kind: "organization", key: caller.key, person, viewedBy: operator };
}

/** Returns the state of a new session, with its cookie. */
async function begun(
  dependencies: DashboardDependencies,
  { request }: RequestContext,
  { token, caller }: { readonly token: string; readonly caller: SessionCaller },
): Promise<Response> {
  const end = dependencies.sessions.newEnd();
  const response = await stateOf(dependencies, caller, csrfTokenOf(token), end);
  response.headers.set("set-cookie", sessionCookie(request, dependencies.publicUrl, token));
  return response;
}

async function stateOf(
  { sessions, offers }: DashboardDependencies,
  caller: SessionCaller,
  csrfToken: string,
  { endsAtMs, expiresAtMs }: SessionEnd,
): Promise<Response> {
  const key =
    caller.kind === "operator"
      ? { id: caller.operator.id, name: caller.operator.name }
      : { id: caller.key.id, name: caller.key.name };
  return unstored(
    jsonResponse({
      kind: caller.kind,
      key,
      person: caller.person === undefined ? null : await personState(sessions, caller.person),
      viewing: await viewState(sessions, caller),
      csrf_token: csrfToken,
      ends_at: isoTime(endsAtMs),
      expires_at: isoTime(expiresAtMs),
      test_payments: offers.paymentProcessor === "test",
      version,
    }),
  );
}

/** Returns the organization that an operator views. Null in other sessions. */
async function viewState(sessions: DashboardSessions, caller: SessionCaller) {
  if (caller.kind === "operator" || caller.viewedBy === undefined) return null;
  const { organizationId: id } = caller.key;
  return { id, name: (await sessions.organizationName(id)) ?? id };
}

/** Returns the person of a session, the role and the teams, and the roles to which the person can switch. */
async function personState(
  sessions: DashboardSessions,
  { id, email, memberId, role, isViewer }: SessionPerson,
) {
  const { isOperator, memberships } = await sessions.rolesOf(id);
  return {
    ...{ id, email, member_id: memberId ?? null },
    role: role ?? (isViewer === true ? "operator_viewer" : "operator"),
    holders: [
      ...(isOperator ? [{ id: OPERATOR, name: "Operator" }] : []),
      ...memberships.map((one) => ({ id: one.memberId, name: one.organizationName })),
    ],
    teams: memberships.find((one) => one.memberId === memberId)?.teams ?? [],
  };
}

function unstored(response: Response): Response {
  response.headers.set("cache-control", "no-store");
  return response;
}
