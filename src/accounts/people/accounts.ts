import { createHash } from "node:crypto";
import { Secret, TOTP } from "otpauth";
import { authored } from "../../../db/authored.ts";
import { type Database, type DatabaseTransaction, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  acceptInvitation,
  findOpenInvitation,
  type Invitation,
  insertMember,
} from "../../../db/queries/members.ts";
import {
  changePersonName,
  findPerson,
  hasOperatorPerson,
  insertAccountLink,
  insertPerson,
  noteSignIn,
  type Person,
  recordFailedSignIn,
  recordPasswordLink,
  replacePassword,
  replaceSecondFactor,
  useAccountLink,
  useSecondFactor,
  verifyEmail,
} from "../../../db/queries/people.ts";
import type { Author, Origin } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { RateWindows } from "../../platform/cluster/interface.ts";
import { linkHash, newLinkSecret } from "./one-time-links.ts";
import { Passwords } from "./passwords.ts";

interface AccountsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keyring: Keyring;
  readonly rates: RateWindows;
}

export interface Credentials {
  readonly email: string;
  readonly password: string;
  /** A code of the second factor. */
  readonly code?: string | undefined;
}

/** The account that accepts an invitation. A name is needed only for a new account. */
export interface JoiningPerson {
  readonly name?: string | undefined;
  readonly password: string;
  readonly code?: string | undefined;
}

/** Sign-ins to one account, whichever address they come from. */
const ATTEMPTS_A_MINUTE = 5;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const PASSWORD_LINK_MS = HOUR_MS;
const FIRST_OPERATOR_LINK_MS = 7 * DAY_MS;
const TOTP_PERIOD_SECONDS = 30;
/** Time steps before and after the current one whose codes are accepted. */
const TOTP_WINDOW = 1;
const ISSUER = "Model gateway";

/**
 * Accounts of people: passwords, second factors, and links that work once. Answers do not show whether an address has
 * an account.
 */
export class Accounts {
  readonly #dependencies: AccountsDependencies;
  readonly #passwords = new Passwords();

  constructor(dependencies: AccountsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Returns the person with these credentials. Throws 401 if they are wrong or the second factor is missing, and 429 if
   * there were too many attempts for the account.
   */
  async verify({ email, password, code }: Credentials, origin: Origin): Promise<Person> {
    const { sql, clock } = this.#dependencies;
    await this.#countAttempt(email);
    const person = await findPerson(sql, { email });
    const isRight = await this.#passwords.verify(password, person?.passwordHash ?? null);
    if (!isRight || person === undefined) {
      await this.#noteFailure(person?.id ?? null, email, origin);
      throw new GatewayError("invalid_credentials", "The email address or the password is wrong.");
    }
    await this.#verifySecondFactor(person, code, origin);
    await noteSignIn(sql, person.id, clock.nowMs());
    return person;
  }

  async #countAttempt(email: string): Promise<void> {
    const { rates } = this.#dependencies;
    const digest = createHash("sha256").update(email.toLowerCase()).digest("hex");
    const attempt = await rates.take(`account sign-in ${digest}`, ATTEMPTS_A_MINUTE);
    if (attempt.isAdmitted) return;
    throw new GatewayError(
      "rate_limit_exceeded",
      "Too many attempts to sign in to this account. Wait a minute.",
      { retryAfterSeconds: attempt.retryAfterMs / 1_000 },
    );
  }

  async #noteFailure(personId: string | null, email: string, origin: Origin): Promise<void> {
    const author = authorOfAttempt(personId, email, origin);
    await recordFailedSignIn(authored(this.#dependencies.sql, author), personId);
  }

  async #verifySecondFactor(
    { id, email, totpSecret }: Person,
    code: string | undefined,
    origin: Origin,
  ): Promise<void> {
    if (totpSecret === null) return;
    if (code === undefined || code === "") {
      throw new GatewayError("second_factor_required", "Enter the code of your second factor.", {
        param: "code",
      });
    }
    const { sql, clock, keyring } = this.#dependencies;
    const secret = new TextDecoder().decode(keyring.open(totpSecret));
    const step = acceptedStep(secret, code, clock.nowMs());
    if (step !== undefined && (await useSecondFactor(sql, id, step))) return;
    await this.#noteFailure(id, email, origin);
    throw new GatewayError("invalid_credentials", "The code is wrong or was used before.", {
      param: "code",
    });
  }

  /** Returns the open invitation of a link. Throws 404 if it was used or withdrawn, or has expired. */
  async invitation(
    token: string,
  ): Promise<Invitation & { readonly organizationName: string; readonly hasAccount: boolean }> {
    const { sql, clock } = this.#dependencies;
    const invitation = await findOpenInvitation(sql, linkHash(token), clock.nowMs());
    if (invitation === undefined) throw expiredLink();
    const person = await findPerson(sql, { email: invitation.email });
    return { ...invitation, hasAccount: person !== undefined };
  }

  /**
   * Accepts an invitation. Creates the account, or verifies the password of the existing one. Returns the person.
   * Throws 404 if the link no longer works, and 401 if the password of the existing account is wrong.
   */
  async join(token: string, joining: JoiningPerson, origin: Origin): Promise<Person> {
    const { sql, clock } = this.#dependencies;
    const { email, hasAccount } = await this.invitation(token);
    const existing = hasAccount ? await this.verify({ email, ...joining }, origin) : undefined;
    const passwordHash =
      existing === undefined ? await this.#passwords.hash(joining.password) : null;
    const nowMs = clock.nowMs();
    const id = existing?.id ?? newId("usr");
    const author: Author = { ...{ kind: "person", id, name: email, via: "dashboard" }, ...origin };
    try {
      await authored(sql, author).begin(async (transaction) => {
        const invitation = await findOpenInvitation(transaction, linkHash(token), nowMs);
        if (invitation === undefined) throw expiredLink();
        if (existing === undefined) {
          const name = joining.name ?? email;
          const person = { id, email, name, passwordHash, operatorRole: null, createdAtMs: nowMs };
          await insertPerson(transaction, person);
        }
        await acceptInvitation(transaction, invitation, {
          ...{ personId: id, newMemberId: newId("mem"), nowMs },
        });
      });
    } catch (error) {
      // Another link has created the account in the meantime.
      if (sqlState(error) === UNIQUE_VIOLATION) return this.join(token, joining, origin);
      throw error;
    }
    if (existing === undefined) await noteSignIn(sql, id, nowMs);
    return (await findPerson(sql, { id }))!;
  }

  /**
   * Creates the account of the first operator, who also becomes an owner of the first organization. Throws 404 if the
   * link no longer works, and 409 if the address has an account.
   */
  async createFirstOperator(
    token: string,
    {
      email,
      name,
      password,
    }: { readonly email: string; readonly name: string; readonly password: string },
    firstOrganizationId: string | undefined,
    origin: Origin,
  ): Promise<Person> {
    const { sql, clock } = this.#dependencies;
    const passwordHash = await this.#passwords.hash(password);
    const [id, nowMs] = [newId("usr"), clock.nowMs()];
    const author: Author = { ...{ kind: "person", id, name: email, via: "dashboard" }, ...origin };
    try {
      await authored(sql, author).begin(async (transaction) => {
        const link = await useAccountLink(transaction, linkHash(token), "first_operator", nowMs);
        if (link === undefined || (await hasOperatorPerson(transaction))) throw expiredLink();
        await insertPerson(transaction, {
          ...{ id, email, name, passwordHash, operatorRole: "operator" as const },
          createdAtMs: nowMs,
        });
        if (firstOrganizationId === undefined) return;
        await insertMember(transaction, {
          ...{ id: newId("mem"), organizationId: firstOrganizationId, personId: id },
          ...{ role: "owner" as const, createdAtMs: nowMs },
        });
      });
    } catch (error) {
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      const message = "The address has an account already. Sign in with it.";
      throw new GatewayError("name_taken", message, { param: "email", cause: error });
    }
    await noteSignIn(sql, id, nowMs);
    return (await findPerson(sql, { id }))!;
  }

  /**
   * Returns the token of a link for a new password, or undefined if the address has no account.
   *
   * @param author the operator who creates the link for the person
   */
  async passwordLink(
    email: string,
    author?: Author,
  ): Promise<{ person: Person; token: string } | undefined> {
    const { sql, clock } = this.#dependencies;
    const person = await findPerson(sql, { email });
    if (person === undefined) return undefined;
    const { token, tokenHash } = newLinkSecret();
    const createdAtMs = clock.nowMs();
    const link = { tokenHash, purpose: "password" as const, personId: person.id, createdAtMs };
    const expiresAtMs = createdAtMs + PASSWORD_LINK_MS;
    if (author === undefined) {
      await sql.begin((transaction) => insertAccountLink(transaction, { ...link, expiresAtMs }));
    } else {
      await authored(sql, author).begin(async (transaction) => {
        await insertAccountLink(transaction, { ...link, expiresAtMs });
        await recordPasswordLink(transaction, person.id);
      });
    }
    return { person, token };
  }

  /** Sets the password of the account of a link, and ends its sessions. Throws 404 if the link no longer works. */
  async setPasswordByLink(token: string, password: string, origin: Origin): Promise<void> {
    const { sql, clock } = this.#dependencies;
    const passwordHash = await this.#passwords.hash(password);
    await authored(sql, anonymous(origin)).begin(async (transaction) => {
      const link = await useAccountLink(transaction, linkHash(token), "password", clock.nowMs());
      if (link === undefined || link.personId === null) throw expiredLink();
      await verifyEmail(transaction, link.personId, clock.nowMs());
      await replacePassword(transaction, link.personId, passwordHash);
    });
  }

  async changeName(personId: string, name: string, author: Author): Promise<void> {
    await changePersonName(authored(this.#dependencies.sql, author), personId, name);
  }

  /**
   * Changes the password, and ends the other sessions. Throws 401 if the current password is wrong, and 429 after too
   * many attempts.
   *
   * @param currentHash the token hash of the session that stays
   */
  async changePassword(
    personId: string,
    { current, next }: { readonly current: string; readonly next: string },
    { author, currentHash }: { readonly author: Author; readonly currentHash: string },
  ): Promise<void> {
    const { sql } = this.#dependencies;
    await this.#assertPassword(personId, current);
    const passwordHash = await this.#passwords.hash(next);
    await authored(sql, author).begin((transaction) =>
      replacePassword(transaction, personId, passwordHash, currentHash),
    );
  }

  /**
   * Returns the person. Throws 400 if the person has a password and this is another one, and 429 after too many
   * attempts.
   */
  async confirmPassword(personId: string, password: string | undefined): Promise<Person> {
    const person = (await findPerson(this.#dependencies.sql, { id: personId }))!;
    if (person.passwordHash !== null) await this.#assertPassword(personId, password ?? "");
    return person;
  }

  async #assertPassword(personId: string, password: string): Promise<void> {
    const person = await findPerson(this.#dependencies.sql, { id: personId });
    await this.#countAttempt(person?.email ?? "");
    if (await this.#passwords.verify(password, person?.passwordHash ?? null)) return;
    // Not 401, which would mean that the session has ended.
    throw new GatewayError("invalid_body", "The current password is wrong.", {
      param: "current_password",
    });
  }

  /** Returns a new secret for a second factor, and the URL that authenticator apps read. It is not in force yet. */
  newSecondFactor(email: string): { readonly secret: string; readonly url: string } {
    const secret = new Secret({ size: 20 });
    return { secret: secret.base32, url: totpOf(secret.base32, email).toString() };
  }

  /** Puts a second factor in force. Throws 400 if the code, or the current password, is wrong. */
  async addSecondFactor(
    personId: string,
    stated: { readonly secret: string; readonly code: string; readonly password: string },
    author: Author,
  ): Promise<void> {
    const { sql, clock, keyring } = this.#dependencies;
    await this.#assertPassword(personId, stated.password);
    if (acceptedStep(stated.secret, stated.code, clock.nowMs()) === undefined) {
      throw new GatewayError("invalid_body", "The code is wrong.", { param: "code" });
    }
    const plain = new TextEncoder().encode(stated.secret);
    await replaceSecondFactor(authored(sql, author), personId, (keyId) =>
      keyring.sealUnder(keyId, plain),
    );
  }

  /** Removes the second factor. Throws 400 if the current password is wrong. */
  async removeSecondFactor(personId: string, password: string, author: Author): Promise<void> {
    await this.#assertPassword(personId, password);
    await replaceSecondFactor(authored(this.#dependencies.sql, author), personId);
  }
}

/**
 * Returns the token of the link that creates the account of the first operator, or undefined if the gateway has such an
 * account. Earlier links no longer work.
 */
export async function firstOperatorLink(
  transaction: DatabaseTransaction,
  nowMs: number,
): Promise<string | undefined> {
  // One instance at a time, so that the printed link is the one that works.
  await transaction`SELECT pg_advisory_xact_lock(hashtextextended('first_operator', 0))`;
  if (await hasOperatorPerson(transaction)) return undefined;
  const { token, tokenHash } = newLinkSecret();
  await insertAccountLink(transaction, {
    ...{ tokenHash, purpose: "first_operator" as const, personId: null, createdAtMs: nowMs },
    expiresAtMs: nowMs + FIRST_OPERATOR_LINK_MS,
  });
  return token;
}

/** Returns the author of an attempt to sign in. */
export function authorOfAttempt(personId: string | null, name: string, origin: Origin): Author {
  return { kind: "person", id: personId ?? "unknown", name, via: "dashboard", ...origin };
}

function totpOf(secret: string, label = ""): TOTP {
  return new TOTP({ issuer: ISSUER, label, secret, period: TOTP_PERIOD_SECONDS });
}

/** Returns the time step of a code, or undefined if the code is wrong. */
function acceptedStep(secret: string, code: string, nowMs: number): number | undefined {
  try {
    const delta = totpOf(secret).validate({
      ...{ token: code.replaceAll(" ", ""), timestamp: nowMs },
      window: TOTP_WINDOW,
    });
    if (delta === null) return undefined;
    return Math.floor(nowMs / 1_000 / TOTP_PERIOD_SECONDS) + delta;
  } catch {
    return undefined;
  }
}

function anonymous(origin: Origin): Author {
  return {
    kind: "person",
    id: "unknown",
    name: "link for a new password",
    via: "dashboard",
    ...origin,
  };
}

function expiredLink(): GatewayError {
  return new GatewayError(
    "link_expired",
    "This link was used or withdrawn, or has expired. Ask for a new one.",
  );
}
