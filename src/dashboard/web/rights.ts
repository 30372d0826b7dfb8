import type { Scope } from "../../lib/api-key-record.ts";
import { OPERATOR_ROLES, ROLE_RIGHTS, ROLES, type Role } from "../../lib/roles.ts";
import { session } from "./api.ts";
import { titled } from "./format.ts";

/*
 * The rights of the session, from the table of roles that the API enforces. A session that was started with a key has
 * no role. The API alone checks the scopes of its key.
 */

/** A scope, or "operator" for changes to the gateway. */
export type Right = Scope | "operator";

/** The member's role in the organization of the session. Undefined without an account, and for operators. */
export function memberRole(): Role | undefined {
  if (session.value?.viewing) return "viewer";
  const role = session.value?.person?.role;
  return ROLES.find((one) => one === role);
}

export function mayRead(scope: Scope): boolean {
  const role = memberRole();
  return role === undefined || ROLE_RIGHTS[role].reads.includes(scope);
}

export function mayChange(right: Right): boolean {
  if (right === "operator") return session.value?.person?.role !== OPERATOR_ROLES[1];
  const role = memberRole();
  return role === undefined || ROLE_RIGHTS[role].changes.includes(right);
}

/** Returns true if the member is self-only: its role sees only the keys, usage and requests of the member. */
export function isSelfOnly(): boolean {
  const role = memberRole();
  return role !== undefined && ROLE_RIGHTS[role].isSelfOnly === true;
}

/** Returns the roles that the session can give to others, and take away. */
export function grantableRoles(): readonly Role[] {
  const role = memberRole();
  return role === undefined ? ROLES : ROLE_RIGHTS[role].grants;
}

/** Returns the title of a role, such as "Operator viewer". */
export const roleTitle = titled;
