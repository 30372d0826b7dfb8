import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { FOREIGN_KEY_VIOLATION } from "../../../db/error-states.ts";
import {
  AlreadyMemberError,
  changeMember,
  deleteInvitation,
  findMember,
  type Invitation,
  insertInvitation,
  LastOwnerError,
  listInvitations,
  listMembers,
  MAX_OPEN_INVITATIONS,
  type Member,
  type MemberChange,
  removeMember,
  TooManyInvitationsError,
  UnknownTeamError,
} from "../../../db/queries/members.ts";
import { type ApiKeyRecord, holdsScope } from "../../lib/api-key-record.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { mayGrant, ROLE_RIGHTS, type Role } from "../../lib/roles.ts";
import { newLinkSecret } from "../people/one-time-links.ts";

interface MembersDependencies {
  readonly sql: Database;
  readonly clock: Clock;
}

/** The caller of a change: a key, or a member with a role. */
export interface Granter {
  readonly key: ApiKeyRecord;
  /** Undefined: the caller uses a management key. */
  readonly role: Role | undefined;
}

interface Page {
  readonly limit: number;
  readonly offset: number;
}

const INVITATION_DAYS = 7;
const DAY_MS = 86_400_000;

/** Members of organizations, and invitations to them (contract §14). */
export class Members {
  readonly #dependencies: MembersDependencies;

  constructor(dependencies: MembersDependencies) {
    this.#dependencies = dependencies;
  }

  list(organizationId: string, page: Page): Promise<{ members: Member[]; total: number }> {
    return listMembers(this.#dependencies.sql, organizationId, page);
  }

  /**
   * Changes a member. Throws 403 if the caller cannot give the old and the new role, 404 if the member or a team does
   * not exist, and 409 if no owner would remain.
   */
  async change(
    granter: Granter,
    id: string,
    change: MemberChange,
    author: Author,
  ): Promise<Member> {
    const { sql, clock } = this.#dependencies;
    const { organizationId } = granter.key;
    const facts = { newBudgetId: newId("bud"), nowMs: clock.nowMs() };
    const assertMay = (before: Member) => {
      assertMayGrant(granter, before.role);
      if (change.role !== undefined) assertMayGrant(granter, change.role);
    };
    const changed = await withGatewayErrors(
      authored(sql, author).begin((transaction) =>
        changeMember(transaction, organizationId, id, change, facts, assertMay),
      ),
    );
    if (changed === undefined) throw noMember();
    return changed;
  }

  /** Removes a member. Its sessions and its keys end within a second. Throws like `change`. */
  async remove(granter: Granter, id: string, author: Author): Promise<void> {
    const { organizationId } = granter.key;
    const sql = authored(this.#dependencies.sql, author);
    const isRemoved = await withGatewayErrors(
      sql.begin((transaction) =>
        removeMember(transaction, organizationId, id, ({ role }) => assertMayGrant(granter, role)),
      ),
    );
    if (!isRemoved) throw noMember();
  }

  /**
   * Invites a person. Returns the invitation and the token of its link. Throws 403 if the caller cannot give the role,
   * 404 if a team does not exist, 409 if the address belongs to a member, and 403 if too many invitations are open.
   */
  async invite(
    granter: Granter,
    {
      email,
      role,
      teamIds,
    }: { readonly email: string; readonly role: Role; readonly teamIds: readonly string[] },
    author: Author,
  ): Promise<{ invitation: Invitation; token: string }> {
    assertMayGrant(granter, role);
    return this.inviteTo(granter.key.organizationId, { email, role, teamIds }, author);
  }

  /** Invites a person on behalf of the operator, like `invite`. Throws 404 if the organization does not exist. */
  async inviteTo(
    organizationId: string,
    {
      email,
      role,
      teamIds,
    }: { readonly email: string; readonly role: Role; readonly teamIds: readonly string[] },
    author: Author,
  ): Promise<{ invitation: Invitation; token: string }> {
    const { sql, clock } = this.#dependencies;
    const { token, tokenHash } = newLinkSecret();
    const createdAtMs = clock.nowMs();
    const invitation = {
      ...{ id: newId("inv"), organizationId, email, role },
      ...{ teamIds: [...new Set(teamIds)], createdAtMs },
      expiresAtMs: createdAtMs + INVITATION_DAYS * DAY_MS,
    };
    await withGatewayErrors(insertInvitation(authored(sql, author), { ...invitation, tokenHash }));
    return { invitation: { ...invitation, acceptedAtMs: null }, token };
  }

  invitations(
    organizationId: string,
    page: Page,
  ): Promise<{ invitations: Invitation[]; total: number }> {
    return listInvitations(this.#dependencies.sql, organizationId, page);
  }

  /** Deletes an invitation, so that its link no longer works. Throws 404 if it does not exist. */
  async withdraw(organizationId: string, id: string, author: Author): Promise<void> {
    const sql = authored(this.#dependencies.sql, author);
    if (await deleteInvitation(sql, organizationId, id)) return;
    throw new GatewayError("invitation_not_found", "There is no such invitation.");
  }

  async find(organizationId: string, id: string): Promise<Member> {
    const member = await findMember(this.#dependencies.sql, organizationId, id);
    if (member === undefined) throw noMember();
    return member;
  }
}

/** Throws 403 if the caller cannot give a role, or take it away. No caller grants rights that it does not have. */
export function assertMayGrant({ key, role }: Granter, granted: Role): void {
  if (role !== undefined) {
    if (mayGrant(role, granted)) return;
    throw notPermitted(
      `A member with the role ${role} cannot manage members with the role ${granted}.`,
    );
  }
  const { changes, reads, keys = [] } = ROLE_RIGHTS[granted];
  const missing = [...new Set([...changes, ...reads, ...keys])].filter(
    (scope) => !holdsScope(key, scope),
  );
  if (missing.length === 0) return;
  throw notPermitted(
    `This API key cannot manage members with the role ${granted}: it lacks the scopes ${missing.join(", ")}.`,
  );
}

function notPermitted(message: string): GatewayError {
  return new GatewayError("role_not_permitted", message, { param: "role" });
}

function noMember(): GatewayError {
  return new GatewayError("member_not_found", "There is no such member.");
}

async function withGatewayErrors<Result>(change: Promise<Result>): Promise<Result> {
  try {
    return await change;
  } catch (error) {
    throw toGatewayError(error);
  }
}

function toGatewayError(error: unknown): unknown {
  if (sqlState(error) === FOREIGN_KEY_VIOLATION) {
    return new GatewayError("organization_not_found", "There is no such organization.");
  }
  if (error instanceof LastOwnerError) {
    const message = "The organization needs an active owner. Make another member an owner first.";
    return new GatewayError("last_owner", message, { cause: error });
  }
  if (error instanceof UnknownTeamError) {
    return new GatewayError("team_not_found", "One of the teams does not exist.", { cause: error });
  }
  if (error instanceof AlreadyMemberError) {
    const message = "A member already has this address.";
    return new GatewayError("name_taken", message, { param: "email", cause: error });
  }
  if (error instanceof TooManyInvitationsError) {
    const message = `At most ${MAX_OPEN_INVITATIONS} invitations can be open.`;
    return new GatewayError("quota_exceeded", message, { cause: error });
  }
  return error;
}
