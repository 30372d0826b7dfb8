import { createHash, timingSafeEqual } from "node:crypto";
import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import { authored } from "../../db/authored.ts";
import type { Database, Query } from "../../db/client.ts";
import {
  changeView,
  deleteSession,
  deleteSessionsOf,
  findSession,
  insertSession,
  listSignedInSubjects,
  listSignInKeys,
  noteSessionUse,
  type SessionBounds,
  type SessionRecord,
  type SessionSubject,
  type SignedInSubject,
  type SignInKey,
} from "../../db/queries/dashboard-sessions.ts";
import { findOperatorKey } from "../../db/queries/operator-keys.ts";
import { loadOrganization } from "../../db/queries/organizations.ts";
import { findPersonAccess, type Membership, type PersonAccess } from "../../db/queries/people.ts";
import { identityOf, type SessionCaller, VIEW_ROLE } from "../http/access.ts";
import {
  type Authentication,
  type Suspensions,
  usable,
  usableKey,
} from "../http/authentication.ts";
import type { Sessions } from "../http/pipeline.ts";
import type { RequestContext, SessionAccess } from "../http/route.ts";
import { parseApiKey } from "../lib/api-key-format.ts";
import { type ApiKeyRecord, INITIAL_SETTINGS } from "../lib/api-key-record.ts";
import type { Author, Origin } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { grantedScopesOf, ROLE_RIGHTS, scopesOfRole } from "../lib/roles.ts";
import type { RateWindows } from "../platform/cluster/interface.ts";
import type { AccessRule } from "../platform/config/single-sign-on.ts";
import { assertSameSite, assertStatesOrigin, cookieToken } from "./browser.ts";
import { SignInRejected } from "./oidc-client.ts";
import type { SingleSignOn, Subject } from "./single-sign-on.ts";

export interface SessionDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keys: ApiKeyActors;
  readonly suspensions: Suspensions;
  readonly authentication: Authentication;
  readonly rates: RateWindows;
  readonly publicUrl: string | undefined;
  /** Undefined if users sign in with keys only. */
  readonly singleSignOn: SingleSignOn | undefined;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** When a session ends, in Unix milliseconds. */
export interface SessionEnd {
  /** The end if the session is not used until then. */
  readonly endsAtMs: number;
  /** The end however it is used. */
  readonly expiresAtMs: number;
}

/** The holder of a session in which a person acts as operator. */
export const OPERATOR = "operator";
const HOUR_MS = 3_600_000;
const MAX_AGE_MS = 12 * HOUR_MS;
const MAX_IDLE_MS = HOUR_MS;
/** Minimum time between two stored uses of a session, in milliseconds. It keeps writes rare. */
const MIN_USE_INTERVAL_MS = 15_000;
const ATTEMPTS_A_MINUTE = 10;
const TOKEN_BYTES = 32;
/** Header of automatic refreshes, which do not count as use of the session. */
const UNATTENDED = "x-dashboard-unattended";

/**
 * Sessions of the dashboard. The token is in a cookie. The database contains only its hash, so any instance
 * serves a session, and a copy of the database opens none. The CSRF token is derived from the token. A
 * session has the rights of its key at the time of each call, and ends with the key.
 */
export class DashboardSessions implements Sessions {
  readonly #dependencies: SessionDependencies;

  constructor(dependencies: SessionDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Starts a session and returns its token. Throws 401 if the key is invalid, 403 if it is a secret key, 402 or 403
   * if the organization is suspended, and 429 if the sender has made too many attempts.
   */
  async begin(
    secret: string,
    sender: string,
    origin: Origin,
  ): Promise<{ token: string; caller: SessionCaller }> {
    await this.countAttempt(sender);
    const caller = await this.#callerWith(secret);
    return { token: await this.#insert(caller, origin), caller };
  }

  /**
   * Starts a session of a person with an account. Throws 403 if the person is neither a member of an organization nor an
   * operator, and 402 or 403 if the organization is suspended.
   *
   * @param holderId the membership to act for, or "operator". Undefined: operator, or else the first membership
   */
  async beginForPerson(
    personId: string,
    origin: Origin,
    holderId?: string,
  ): Promise<{ token: string; caller: SessionCaller }> {
    const access = await this.#dependencies.read(findPersonAccess(personId));
    if (access === undefined) throw sessionEnded();
    const { person, memberships } = access;
    const first = person.operatorRole === null ? memberships[0]?.memberId : OPERATOR;
    const caller = await this.#callerOfPerson(access, holderId ?? first ?? "");
    if (caller === undefined) {
      const message =
        "Your account is not a member of an organization. Ask its owner to invite you.";
      throw new GatewayError("role_not_permitted", message);
    }
    return { token: await this.#insert(caller, origin), caller };
  }

  /**
   * Starts a session for a user of the identity provider. Throws SignInRejected if the organization does not exist
   * or is suspended.
   */
  async beginFor(subject: Subject, origin: Origin): Promise<string> {
    const { singleSignOn, read } = this.#dependencies;
    const { rule, name } = subject;
    if (rule.to !== "operator" && (await read(loadOrganization(rule.to))) === undefined) {
      throw new SignInRejected(
        403,
        "The organization of your account does not exist on this gateway.",
      );
    }
    const caller = await this.#callerOfSubject(subject.id, name, rule).catch((error: unknown) => {
      if (!(error instanceof GatewayError) || error.code === "database_unavailable") throw error;
      throw new SignInRejected(403, "The organization of your account is suspended.", error);
    });
    const { issuer } = singleSignOn!;
    return this.#insert(caller, origin, { issuer, name, rule: rule.text });
  }

  /** Returns the active memberships of a person, and whether the person is an operator. */
  async rolesOf(
    personId: string,
  ): Promise<{ readonly isOperator: boolean; readonly memberships: readonly Membership[] }> {
    const access = await this.#dependencies.read(findPersonAccess(personId));
    return {
      isOperator: (access?.person.operatorRole ?? null) !== null,
      memberships: access?.memberships ?? [],
    };
  }

  /** Returns the id of a person's active membership in an organization. */
  async memberIdOf(personId: string, organizationId: string): Promise<string | undefined> {
    const access = await this.#dependencies.read(findPersonAccess(personId));
    return access?.memberships.find((one) => one.organizationId === organizationId)?.memberId;
  }

  /** Counts a sign-in attempt. Throws 429 if the sender has made too many. */
  async countAttempt(sender: string): Promise<void> {
    const { rates } = this.#dependencies;
    const attempt = await rates.take(`dashboard sign-in ${sender}`, ATTEMPTS_A_MINUTE);
    if (!attempt.isAdmitted) {
      throw new GatewayError(
        "rate_limit_exceeded",
        "Too many attempts to sign in. Wait a minute.",
        {
          retryAfterSeconds: attempt.retryAfterMs / 1_000,
        },
      );
    }
  }

  /**
   * Begins the view of an organization by the operator of an accepted request, or ends it. The session gets another
   * token, so that pages of the state before can call nothing. Throws 404 if the organization does not exist, and 401 if
   * the session has ended or was changed in the meantime.
   *
   * @param organizationId null: the view ends
   */
  async view(
    { request, author }: Pick<RequestContext, "request" | "author">,
    organizationId: string | null,
  ): Promise<{ token: string; caller: SessionCaller }> {
    const { sql, read, publicUrl } = this.#dependencies;
    if (organizationId !== null && (await read(loadOrganization(organizationId))) === undefined) {
      throw new GatewayError("organization_not_found", "No organization with this id exists.");
    }
    const before = cookieToken(request, publicUrl) ?? "";
    const token = newToken();
    const hashes = { tokenHash: hashOf(before), newTokenHash: hashOf(token) };
    if (!(await changeView(authored(sql, author), { ...hashes, organizationId }))) {
      throw sessionEnded();
    }
    return { token, caller: await this.#callerBy(await this.#find(token)) };
  }

  /** Returns the name of an organization. Undefined if it does not exist. */
  async organizationName(organizationId: string): Promise<string | undefined> {
    return (await this.#dependencies.read(loadOrganization(organizationId)))?.name;
  }

  async #insert(
    caller: SessionCaller,
    origin: Origin,
    subject: SessionSubject | null = null,
  ): Promise<string> {
    const { sql, clock } = this.#dependencies;
    const text = newToken();
    const createdAtMs = clock.nowMs();
    const holder = caller.kind === "operator" ? caller.operator : caller.key;
    const author: Author = { ...identityOf(holder, caller.person), via: "dashboard", ...origin };
    const session = {
      tokenHash: hashOf(text),
      kind: caller.kind,
      keyId: holder.id,
      subject,
      personId: caller.person?.id ?? null,
      createdAtMs,
    };
    const organizationId = caller.kind === "operator" ? null : caller.key.organizationId;
    await insertSession(authored(sql, author), organizationId, session, createdAtMs - MAX_AGE_MS);
    return text;
  }

  async callerOf(request: Request, access: SessionAccess): Promise<SessionCaller> {
    const { publicUrl, clock, sql } = this.#dependencies;
    assertSameSite(request, publicUrl);
    const token = cookieToken(request, publicUrl);
    if (token === undefined) throw sessionEnded();
    assertStatesOrigin(request);
    if (access.givesToken !== true) assertCsrfToken(request, token);
    const session = await this.#find(token);
    const caller = await this.#callerBy(session);
    const nowMs = clock.nowMs();
    const isUse = !request.headers.has(UNATTENDED);
    if (isUse && nowMs - session.lastUsedAtMs > MIN_USE_INTERVAL_MS) {
      await noteSessionUse(sql, session.tokenHash, nowMs);
    }
    return caller;
  }

  /** Returns the current session of an accepted request. Throws 401 if the session has ended. */
  async currentSession(request: Request): Promise<SessionRecord> {
    const token = cookieToken(request, this.#dependencies.publicUrl);
    if (token === undefined) throw sessionEnded();
    const session = await this.#find(token);
    await this.#callerBy(session);
    return session;
  }

  /** Returns the end of the session of an accepted request. Throws 401 if the session has ended. */
  async endOf(request: Request): Promise<SessionEnd> {
    const { createdAtMs, lastUsedAtMs } = await this.currentSession(request);
    const expiresAtMs = createdAtMs + MAX_AGE_MS;
    return { endsAtMs: Math.min(expiresAtMs, lastUsedAtMs + MAX_IDLE_MS), expiresAtMs };
  }

  /** Returns the end of a session that starts now. */
  newEnd(): SessionEnd {
    const nowMs = this.#dependencies.clock.nowMs();
    return { endsAtMs: nowMs + MAX_IDLE_MS, expiresAtMs: nowMs + MAX_AGE_MS };
  }

  /** Returns an id for the session of an accepted request. The id is not secret. */
  idOf(request: Request): string {
    return hashOf(cookieToken(request, this.#dependencies.publicUrl) ?? "");
  }

  /** Throws 401 if the key of a session is no longer valid, and 402 or 403 if its organization is suspended. */
  async assertKey(session: SessionRecord): Promise<void> {
    await this.#callerBy(session);
  }

  async end({ request, caller, operator, author }: RequestContext): Promise<void> {
    const token = cookieToken(request, this.#dependencies.publicUrl);
    if (token !== undefined) {
      const sql = authored(this.#dependencies.sql, author);
      const isOfOperator = operator !== undefined;
      await deleteSession(sql, isOfOperator ? null : caller.key.organizationId, hashOf(token));
    }
  }

  /** Returns the keys with which users of an organization sign in, and their open sessions. */
  signInKeys(organizationId: string): Promise<SignInKey[]> {
    return listSignInKeys(this.#dependencies.sql, organizationId, this.bounds());
  }

  /** Returns the time bounds of open sessions. */
  bounds(): SessionBounds {
    const nowMs = this.#dependencies.clock.nowMs();
    return { createdAfterMs: nowMs - MAX_AGE_MS, usedAfterMs: nowMs - MAX_IDLE_MS };
  }

  /** Returns the users that have signed in through the identity provider by the rules of the organization. */
  async signedInSubjects(organizationId: string): Promise<SignedInSubject[]> {
    const { sql, singleSignOn } = this.#dependencies;
    if (singleSignOn === undefined) return [];
    return listSignedInSubjects(sql, singleSignOn.rulesOf(organizationId), this.bounds());
  }

  /**
   * Ends the sessions of a key, or of a user of the identity provider, except for the session of the request.
   * Throws 404 if the organization has no such key or user.
   */
  async endSessionsOf(
    holderId: string,
    { request, caller, author }: RequestContext,
  ): Promise<number> {
    const { sql, singleSignOn } = this.#dependencies;
    const { organizationId } = caller!.key;
    const ended = await deleteSessionsOf(authored(sql, author), {
      ...(singleSignOn?.rulesOf(organizationId) ?? { issuer: "", rules: [] }),
      ...{ organizationId, holderId, currentHash: this.idOf(request) },
    });
    if (ended === undefined) {
      throw new GatewayError(
        "key_not_found",
        "No key with this id exists, and no user with this id is signed in.",
      );
    }
    return ended;
  }

  /** Returns the CSRF token of an accepted request. */
  csrfToken(request: Request): string {
    return csrfTokenOf(cookieToken(request, this.#dependencies.publicUrl) ?? "");
  }

  async #find(token: string): Promise<SessionRecord> {
    const { clock, read } = this.#dependencies;
    const session = await read(findSession(hashOf(token)));
    if (session === undefined) throw sessionEnded();
    const nowMs = clock.nowMs();
    const isExpired = nowMs - session.createdAtMs >= MAX_AGE_MS;
    if (isExpired || nowMs - session.lastUsedAtMs >= MAX_IDLE_MS) throw sessionEnded();
    return session;
  }

  /** Returns the caller by its current rights. Throws 401 if it has lost them. */
  async #callerBy(session: SessionRecord): Promise<SessionCaller> {
    const holder = await this.#holderOf(session);
    const { viewedOrganizationId } = session;
    if (viewedOrganizationId === null || holder.kind !== "operator") return holder;
    return viewerOf(holder, viewedOrganizationId);
  }

  async #holderOf({ kind, keyId, subject, personId }: SessionRecord): Promise<SessionCaller> {
    if (personId !== null) {
      const access = await this.#dependencies.read(findPersonAccess(personId));
      const holderId = kind === "operator" ? OPERATOR : keyId;
      const caller = access && (await this.#callerOfPerson(access, holderId));
      if (caller === undefined) throw sessionEnded();
      return caller;
    }
    if (subject !== null) {
      const rule = this.#dependencies.singleSignOn?.ruleOf(subject.issuer, subject.rule);
      if (rule === undefined) throw sessionEnded();
      return this.#callerOfSubject(keyId, subject.name, rule);
    }
    if (kind === "organization") {
      return { kind, key: await usableKey(this.#dependencies, keyId) };
    }
    const operator = await this.#dependencies.read(findOperatorKey({ id: keyId }));
    if (operator === undefined) throw sessionEnded();
    return { kind, operator };
  }

  /** Returns a caller with the rights of a person's role. Returns undefined if the person no longer has it. */
  async #callerOfPerson(
    { person, memberships }: PersonAccess,
    holderId: string,
  ): Promise<SessionCaller | undefined> {
    const { id, email, operatorRole } = person;
    if (holderId === OPERATOR) {
      if (operatorRole === null) return undefined;
      const isViewer = operatorRole === "operator_viewer";
      return { kind: "operator", operator: { id, name: email }, person: { id, email, isViewer } };
    }
    const membership = memberships.find(({ memberId }) => memberId === holderId);
    if (membership === undefined) return undefined;
    const { suspensions } = this.#dependencies;
    while (!suspensions.isCurrent) await suspensions.refresh();
    const { memberId, role } = membership;
    const key = usable(keyOfMember(membership, email), this.#dependencies);
    return { kind: "organization", key, person: { id, email, memberId, role } };
  }

  /** Returns a caller with the rights of a management key or of an operator. */
  async #callerOfSubject(id: string, name: string, { to }: AccessRule): Promise<SessionCaller> {
    if (to === "operator") return { kind: "operator", operator: { id, name } };
    const { suspensions } = this.#dependencies;
    while (!suspensions.isCurrent) await suspensions.refresh();
    return { kind: "organization", key: usable(keyOfSubject(id, name, to), this.#dependencies) };
  }

  async #callerWith(secret: string): Promise<SessionCaller> {
    const { authentication } = this.#dependencies;
    const authorization = `Bearer ${secret}`;
    if (parseApiKey(secret)?.kind === "operator") {
      const operator = await authentication.authenticateOperator(authorization);
      return { kind: "operator", operator };
    }
    const key = await authentication.authenticate(authorization);
    if (key.kind === "management") return { kind: "organization", key };
    throw new GatewayError(
      "wrong_key_kind",
      "A secret key cannot sign in. Use a management key (gateway_mgmt_…) or an operator key.",
    );
  }
}

/**
 * Returns an operator as viewer of an organization. Its suspension does not matter: that is when operators look.
 */
function viewerOf(
  { operator, person }: Extract<SessionCaller, { kind: "operator" }>,
  organizationId: string,
): SessionCaller {
  const { id, name } = operator;
  const key = keyOfMember({ memberId: id, organizationId, role: VIEW_ROLE }, name);
  const viewer = person && { id: person.id, email: person.email, role: VIEW_ROLE };
  return { kind: "organization", key, person: viewer, viewedBy: operator };
}

/** Returns a key record with the scopes of a member's role. It has no row. Some members see only the keys of their own. */
function keyOfMember(
  { memberId, organizationId, role }: Pick<Membership, "memberId" | "organizationId" | "role">,
  email: string,
): ApiKeyRecord {
  return {
    ...keyOfSubject(memberId, email, organizationId),
    scopes: scopesOfRole(role),
    grantedScopes: grantedScopesOf(role),
    ownerId: ROLE_RIGHTS[role].isSelfOnly === true ? memberId : null,
  };
}

/** Returns a key record for the checks of a management key. It has no row, so it cannot sign in. */
function keyOfSubject(id: string, name: string, organizationId: string): ApiKeyRecord {
  return {
    ...INITIAL_SETTINGS,
    id,
    organizationId,
    kind: "management",
    name,
    keyPrefix: "",
    createdAtMs: 0,
  };
}

export function csrfTokenOf(token: string): string {
  return createHash("sha256").update(`csrf ${token}`).digest("base64url");
}

function newToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(TOKEN_BYTES))).toString("base64url");
}

function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

function assertCsrfToken({ headers }: Request, token: string): void {
  const expected = Buffer.from(csrfTokenOf(token));
  const given = Buffer.from(headers.get("x-csrf-token") ?? "");
  if (given.length === expected.length && timingSafeEqual(given, expected)) return;
  throw new GatewayError("invalid_csrf_token", "X-CSRF-Token is missing, or not this session's.");
}

export function sessionEnded(): GatewayError {
  return new GatewayError("no_session", "There is no session, or it has ended. Sign in again.");
}
