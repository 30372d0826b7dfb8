import { Type } from "typebox";
import { authored } from "../../db/authored.ts";
import type { Database } from "../../db/client.ts";
import { findFirstOrganization } from "../../db/queries/organizations.ts";
import { endSessionsOfPerson, findPerson, listSessionsOfPerson } from "../../db/queries/people.ts";
import { email } from "../accounts/members/routes.ts";
import type { Accounts } from "../accounts/people/accounts.ts";
import type { PeopleMail } from "../accounts/people/mail.ts";
import { linkUrl } from "../accounts/people/one-time-links.ts";
import { MAX_PASSWORD_CHARACTERS, MIN_PASSWORD_CHARACTERS } from "../accounts/people/passwords.ts";
import { jsonResponse } from "../http/error-response.ts";
import { publicUrl } from "../http/request-headers.ts";
import {
  type RequestContext,
  type RouteDefinition,
  route,
  type SessionAccess,
  type SessionPerson,
} from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import { isoTime } from "../lib/utc-time.ts";
import { assertDashboardPage } from "./browser.ts";
import type { DashboardSessions } from "./sessions.ts";

export interface AccountRouteDependencies {
  readonly accounts: Accounts;
  readonly mail: PeopleMail;
  readonly sessions: DashboardSessions;
  readonly sql: Database;
  readonly publicUrl: string | undefined;
  /** Returns the sender whose attempts are counted together. */
  senderOf(context: RequestContext): string;
  /** Returns the state of a new session, with its cookie. */
  begun(context: RequestContext, started: StartedSession): Promise<Response>;
}

type StartedSession = Awaited<ReturnType<DashboardSessions["beginForPerson"]>>;

export const PREFIX = "/dashboard/api";
const MAX_BODY_BYTES = 8_192;
const tag = "Dashboard";
const anySession: SessionAccess = { kind: "session", of: { kind: "public" } };
export const publicPage = {
  tag,
  access: { kind: "public" },
  maxBodyBytes: MAX_BODY_BYTES,
} as const;
export const ofSession = { tag, access: anySession, maxBodyBytes: MAX_BODY_BYTES } as const;

const token = Type.String({ pattern: "^[A-Za-z0-9_-]{43}$" });
export const name = Type.String({ minLength: 1, maxLength: 256, pattern: "^[^\\x00-\\x1f]+$" });
export const password = Type.String({ minLength: 1, maxLength: MAX_PASSWORD_CHARACTERS });
const newPassword = Type.String({
  minLength: MIN_PASSWORD_CHARACTERS,
  maxLength: MAX_PASSWORD_CHARACTERS,
});
const code = Type.String({ minLength: 6, maxLength: 16 });
export const body = <Fields extends Parameters<typeof Type.Object>[0]>(fields: Fields) =>
  Type.Object(fields, { additionalProperties: false });

export const STATE = { description: "The session and its CSRF token" };
export const DONE = { description: "Done" };

/**
 * Returns the routes by which people sign in with an account, accept invitations and manage their account. Answers do
 * not show whether an address has an account.
 */
export function accountRoutes(dependencies: AccountRouteDependencies): RouteDefinition[] {
  return [
    ...signInRoutes(dependencies),
    ...linkRoutes(dependencies),
    ...settingRoutes(dependencies),
  ];
}

function signInRoutes(dependencies: AccountRouteDependencies): RouteDefinition[] {
  const { accounts, sessions, begun } = dependencies;
  return [
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/session/password`,
      summary: "Sign in with an account",
      body: body({ email, password, code: Type.Optional(code) }),
      responses: { 200: STATE },
      async handle(context) {
        await countAttempt(dependencies, context);
        const person = await accounts.verify(context.body, context.origin);
        return begun(context, await sessions.beginForPerson(person.id, context.origin));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/session/switch`,
      summary: "Act for another organization, or as operator",
      body: body({ holder_id: Type.String({ minLength: 1, maxLength: 64 }) }),
      responses: { 200: STATE },
      async handle(context) {
        const { id } = personOf(context);
        const { holder_id: holderId } = context.body;
        const started = await sessions.beginForPerson(id, context.origin, holderId);
        // A new token, so that the old one, which pages of the other organization know, opens nothing.
        await sessions.end(context);
        return begun(context, started);
      },
    }),
  ];
}

function linkRoutes(dependencies: AccountRouteDependencies): RouteDefinition[] {
  const { accounts, sessions, mail, sql, publicUrl: base, begun } = dependencies;
  return [
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/invitation`,
      summary: "Get the invitation of a link",
      body: body({ token }),
      responses: { 200: { description: "The organization, the address and the role" } },
      async handle(context) {
        await countAttempt(dependencies, context);
        const invitation = await accounts.invitation(context.body.token);
        return unstored(
          jsonResponse({
            email: invitation.email,
            organization: invitation.organizationName,
            role: invitation.role,
            has_account: invitation.hasAccount,
            expires_at: isoTime(invitation.expiresAtMs),
          }),
        );
      },
    }),
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/invitation/accept`,
      summary: "Accept the invitation of a link",
      body: body({
        token,
        name: Type.Optional(name),
        password: newPassword,
        code: Type.Optional(code),
      }),
      responses: { 200: STATE },
      async handle(context) {
        await countAttempt(dependencies, context);
        const { token: link, ...joining } = context.body;
        const { organizationId } = await accounts.invitation(link);
        const person = await accounts.join(link, joining, context.origin);
        const holderId = await sessions.memberIdOf(person.id, organizationId);
        return begun(context, await sessions.beginForPerson(person.id, context.origin, holderId));
      },
    }),
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/first_operator`,
      summary: "Create the account of the first operator",
      body: body({ token, email, name, password: newPassword }),
      responses: { 200: STATE },
      async handle(context) {
        await countAttempt(dependencies, context);
        const { token: link, ...stated } = context.body;
        const organization = await findFirstOrganization(sql);
        const person = await accounts.createFirstOperator(
          link,
          stated,
          organization?.id,
          context.origin,
        );
        return begun(context, await sessions.beginForPerson(person.id, context.origin));
      },
    }),
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/password/forgot`,
      summary: "Mail a link for a new password",
      description: "The answer is the same if the address has no account.",
      asksOtherServers: true,
      body: body({ email }),
      responses: { 200: { description: "Whether this gateway sends mail" } },
      async handle(context) {
        await countAttempt(dependencies, context);
        if (mail.isConfigured) {
          const url = (link: string) =>
            linkUrl(publicUrl("/", context.request, base), "new-password", link);
          // Not awaited, so that the time of the answer does not show whether there is an account.
          mail.sendPasswordLink(() => accounts.passwordLink(context.body.email), url);
        }
        return unstored(jsonResponse({ is_mailed: mail.isConfigured }));
      },
    }),
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/password/reset`,
      summary: "Set the password of the account of a link",
      body: body({ token, password: newPassword }),
      responses: { 200: DONE },
      async handle(context) {
        await countAttempt(dependencies, context);
        const { token: link, password: next } = context.body;
        await accounts.setPasswordByLink(link, next, context.origin);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
  ];
}

function settingRoutes({ accounts, sessions, sql }: AccountRouteDependencies): RouteDefinition[] {
  return [
    route({
      ...ofSession,
      method: "GET",
      path: `${PREFIX}/account`,
      summary: "Get the account of the session",
      responses: { 200: { description: "The account and its sessions" } },
      async handle(context) {
        const person = await findPerson(sql, { id: personOf(context).id });
        if (person === undefined) throw noAccount();
        const open = await listSessionsOfPerson(sql, person.id, sessions.bounds());
        const current = sessions.idOf(context.request);
        return unstored(
          jsonResponse({
            ...{ id: person.id, email: person.email, name: person.name },
            has_second_factor: person.totpSecret !== null,
            sessions: open.map(({ tokenHash, createdAtMs, lastUsedAtMs }) => ({
              is_current: tokenHash === current,
              created_at: isoTime(createdAtMs),
              last_used_at: isoTime(lastUsedAtMs),
            })),
          }),
        );
      },
    }),
    route({
      ...ofSession,
      method: "PATCH",
      path: `${PREFIX}/account`,
      summary: "Change the name of the account",
      body: body({ name }),
      responses: { 200: DONE },
      async handle(context) {
        await accounts.changeName(personOf(context).id, context.body.name, context.author);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/password`,
      summary: "Change the password, and end the other sessions",
      body: body({ current_password: password, password: newPassword }),
      responses: { 200: DONE },
      async handle(context) {
        const { current_password: current, password: next } = context.body;
        const { author, request } = context;
        const session = { author, currentHash: sessions.idOf(request) };
        await accounts.changePassword(personOf(context).id, { current, next }, session);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/sessions/end`,
      summary: "End the other sessions of the account",
      responses: { 200: { description: "The number of ended sessions" } },
      async handle(context) {
        const { author, request } = context;
        const { id } = personOf(context);
        const ended = await authored(sql, author).begin((transaction) =>
          endSessionsOfPerson(transaction, id, sessions.idOf(request)),
        );
        return unstored(jsonResponse({ ended }));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/second_factor/new`,
      summary: "Get a new secret for a second factor",
      responses: { 200: { description: "The secret, and the URL for authenticator apps" } },
      handle: (context) =>
        unstored(jsonResponse(accounts.newSecondFactor(personOf(context).email))),
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/second_factor`,
      summary: "Put a second factor in force",
      body: body({
        secret: Type.String({ pattern: "^[A-Z2-7]{16,64}$" }),
        code,
        current_password: password,
      }),
      responses: { 200: DONE },
      async handle(context) {
        const { secret, code: stated, current_password: current } = context.body;
        const factor = { secret, code: stated, password: current };
        await accounts.addSecondFactor(personOf(context).id, factor, context.author);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/second_factor/remove`,
      summary: "Remove the second factor",
      body: body({ current_password: password }),
      responses: { 200: DONE },
      async handle(context) {
        const { current_password: current } = context.body;
        await accounts.removeSecondFactor(personOf(context).id, current, context.author);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
  ];
}

/** Throws 403 for another site's page, and 429 if the sender has made too many attempts. */
export async function countAttempt(
  { sessions, publicUrl: base, senderOf }: AccountRouteDependencies,
  context: RequestContext,
): Promise<void> {
  assertDashboardPage(context.request, base);
  await sessions.countAttempt(senderOf(context));
}

/** Returns the person of the session. Throws 403 if the session has no account. */
export function personOf({ person }: Pick<RequestContext, "person">): SessionPerson {
  if (person === undefined) throw noAccount();
  return person;
}

function noAccount(): GatewayError {
  return new GatewayError("role_not_permitted", "This session was started without an account.");
}

export function unstored(response: Response): Response {
  response.headers.set("cache-control", "no-store");
  return response;
}
