import { type OperatorRole, ROLES, type Role } from "./roles.ts";

/** A rule: people with the value in a claim get the grant, as long as they have the value. */
export type IdentityRule = {
  readonly claim: string;
  readonly value: string;
} & (
  | {
      readonly organization_id: string;
      readonly role: Role;
      readonly team_ids?: readonly string[];
    }
  | { readonly operator_role: OperatorRole }
);

/** The grant of rules in one organization. */
export interface OrganizationGrant {
  readonly role: Role;
  readonly teamIds: readonly string[];
}

/** The roles that rules grant a person. */
export interface Grants {
  /** The grant in each organization, by its id. */
  readonly organizations: ReadonlyMap<string, OrganizationGrant>;
  readonly operatorRole: OperatorRole | null;
}

export const NO_GRANTS: Grants = { organizations: new Map(), operatorRole: null };

/** Returns true if grants contain a role. */
export function isGranting({ organizations, operatorRole }: Grants): boolean {
  return organizations.size > 0 || operatorRole !== null;
}

/** Returns the grants of rules that a person meets. */
export function grantsOf(rules: readonly IdentityRule[]): Grants {
  return rules.reduce<Grants>((grants, rule) => mergeGrants(grants, grantOf(rule)), NO_GRANTS);
}

function grantOf(rule: IdentityRule): Grants {
  if ("operator_role" in rule) return { ...NO_GRANTS, operatorRole: rule.operator_role };
  const { organization_id: id, role, team_ids: teamIds = [] } = rule;
  return { ...NO_GRANTS, organizations: new Map([[id, { role, teamIds }]]) };
}

/** Returns both grants: in an organization the higher role, and all teams. */
export function mergeGrants(one: Grants, other: Grants): Grants {
  const organizations = new Map(one.organizations);
  for (const [id, added] of other.organizations) {
    const before = organizations.get(id) ?? added;
    const isHigher = ROLES.indexOf(added.role) < ROLES.indexOf(before.role);
    organizations.set(id, {
      role: isHigher ? added.role : before.role,
      teamIds: [...new Set([...before.teamIds, ...added.teamIds])],
    });
  }
  const isOperator = one.operatorRole === "operator" || other.operatorRole === "operator";
  const operatorRole = isOperator ? "operator" : (one.operatorRole ?? other.operatorRole);
  return { organizations, operatorRole };
}
