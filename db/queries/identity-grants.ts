import {
  type Grants,
  grantsOf,
  type IdentityRule,
  mergeGrants,
  NO_GRANTS,
} from "../../src/lib/identity-rules.ts";
import type { OperatorRole, Role } from "../../src/lib/roles.ts";
import type { DatabaseTransaction } from "../client.ts";
import { endMemberships, insertMember, lockMembers } from "./members.ts";

/** A membership that rules of identity providers have granted, and that no admin has changed since. */
interface GrantedMember {
  readonly id: string;
  readonly person_id: string;
  readonly organization_id: string;
  readonly identity_provider_id: string;
  readonly role: Role;
  readonly team_ids: readonly string[];
}

/** The grants of all identity providers to a person. */
type GrantsByPerson = ReadonlyMap<string, Grants>;

/** The effect of a change of a provider on people and organizations. */
export interface GrantChange {
  readonly membershipsEnded: number;
  /** Organizations that the change has left without an active owner. */
  readonly organizationsWithoutOwner: readonly string[];
}

/** Returns the ids of people with an account at a provider. */
export async function peopleAt(sql: DatabaseTransaction, providerId: string): Promise<string[]> {
  const rows = await sql<{ person_id: string }[]>`
    SELECT DISTINCT person_id FROM person_identities WHERE provider_id = ${providerId}`;
  return rows.map((row) => row.person_id);
}

/**
 * Stores the rules that a person meets at a provider. They replace those of the person's other accounts there: the
 * issuer may have created the user again.
 */
export async function storeMetRules(
  sql: DatabaseTransaction,
  identity: { readonly providerId: string; readonly subject: string; readonly personId: string },
  rules: readonly IdentityRule[],
): Promise<void> {
  await sql`UPDATE person_identities
    SET met_rules = CASE WHEN subject = ${identity.subject} THEN ${sql.json(rules as never)} ELSE '[]' END
    WHERE provider_id = ${identity.providerId} AND person_id = ${identity.personId}`;
}

/**
 * Returns all grants of people. A rule that a provider no longer has grants nothing. One with another role or other
 * teams grants these, because the end of a membership would end its keys. An account that an earlier version has stored
 * has no rules: it grants the roles and teams that its provider has given the person.
 */
export async function readGrants(
  sql: DatabaseTransaction,
  personIds: readonly string[],
): Promise<GrantsByPerson> {
  const rows = await sql<
    {
      person_id: string;
      provider_id: string;
      met_rules: readonly IdentityRule[] | null;
      rules: readonly IdentityRule[];
      operator_role: OperatorRole | null;
      operator_provider_id: string | null;
    }[]
  >`
    SELECT i.person_id, i.provider_id, i.met_rules, r.rules, p.operator_role, p.operator_provider_id
    FROM person_identities i JOIN identity_providers r ON r.id = i.provider_id
    JOIN people p ON p.id = i.person_id
    WHERE i.person_id = ANY (${sql.array([...personIds])}::text[])`;
  const legacy = new Map<string, GrantedMember[]>();
  if (rows.some((row) => row.met_rules === null)) {
    for (const member of await readGrantedMembers(sql, personIds)) {
      const key = `${member.person_id} ${member.identity_provider_id}`;
      legacy.set(key, [...(legacy.get(key) ?? []), member]);
    }
  }
  const grants = new Map<string, Grants>();
  for (const row of rows) {
    const met = new Set(row.met_rules?.map(conditionOf));
    const added =
      row.met_rules === null
        ? grantsOfMembers(legacy.get(`${row.person_id} ${row.provider_id}`) ?? [], row)
        : grantsOf(row.rules.filter((rule) => met.has(conditionOf(rule))));
    grants.set(row.person_id, mergeGrants(grants.get(row.person_id) ?? NO_GRANTS, added));
  }
  return grants;
}

/** Returns the claim, the value and the organization of a rule: with another role or other teams it is the same rule. */
function conditionOf(rule: IdentityRule): string {
  const organizationId = "organization_id" in rule ? rule.organization_id : null;
  return JSON.stringify([rule.claim, rule.value, organizationId]);
}

function grantsOfMembers(
  members: readonly GrantedMember[],
  person: {
    readonly provider_id: string;
    readonly operator_role: OperatorRole | null;
    readonly operator_provider_id: string | null;
  },
): Grants {
  return {
    organizations: new Map(
      members.map((one) => [one.organization_id, { role: one.role, teamIds: one.team_ids }]),
    ),
    operatorRole: person.operator_provider_id === person.provider_id ? person.operator_role : null,
  };
}

function readGrantedMembers(
  sql: DatabaseTransaction,
  personIds: readonly string[],
): Promise<GrantedMember[]> {
  return sql<GrantedMember[]>`
    SELECT id, person_id, organization_id, identity_provider_id, role, ARRAY(
      SELECT team_id FROM team_members t WHERE t.member_id = m.id ORDER BY team_id) AS team_ids
    FROM members m
    WHERE person_id = ANY (${sql.array([...personIds])}::text[]) AND deleted_at IS NULL
      AND identity_provider_id IS NOT NULL
    ORDER BY organization_id, id`;
}

/**
 * Makes the memberships, teams and operator roles that identity providers have given people equal to their current
 * grants. Roles and teams that come from elsewhere stay. A membership that is no longer granted ends, with its sessions
 * and keys, even if its member is the last owner: operators can invite another one.
 *
 * @param before the grants before the change. Teams that are not among them come from elsewhere
 */
export async function applyGrants(
  sql: DatabaseTransaction,
  personIds: readonly string[],
  before: GrantsByPerson,
): Promise<GrantChange> {
  const after = await readGrants(sql, personIds);
  await lockOrganizations(sql, (await readGrantedMembers(sql, personIds)).map(organizationOf));
  const ended: GrantedMember[] = [];
  for (const member of await readGrantedMembers(sql, personIds)) {
    const of = (grants: GrantsByPerson) =>
      grants.get(member.person_id)?.organizations.get(member.organization_id);
    const granted = of(after);
    if (granted === undefined) ended.push(member);
    else await setGranted(sql, member, { ...granted, teamIdsBefore: of(before)?.teamIds ?? [] });
  }
  await endMemberships(
    sql,
    ended.map(({ id }) => id),
  );
  await setOperatorRoles(sql, personIds, after);
  const owned = ended.filter(({ role }) => role === "owner").map(organizationOf);
  const ownerless = await sql<{ id: string }[]>`
    SELECT id FROM organizations o WHERE id = ANY (${sql.array([...new Set(owned)])}::text[])
      AND NOT EXISTS (SELECT 1 FROM members m WHERE m.organization_id = o.id AND m.role = 'owner'
        AND m.is_active AND m.deleted_at IS NULL)
    ORDER BY id`;
  return {
    membershipsEnded: ended.length,
    organizationsWithoutOwner: ownerless.map(({ id }) => id),
  };
}

function organizationOf(member: GrantedMember): string {
  return member.organization_id;
}

/** Locks the members of organizations in one order, so that sign-ins at the same time cannot deadlock. */
async function lockOrganizations(sql: DatabaseTransaction, ids: readonly string[]): Promise<void> {
  for (const id of [...new Set(ids)].sort()) await lockMembers(sql, id);
}

async function setGranted(
  sql: DatabaseTransaction,
  { id, organization_id: organizationId, role: roleBefore, team_ids: current }: GrantedMember,
  {
    role,
    teamIds,
    teamIdsBefore,
  }: {
    readonly role: Role;
    readonly teamIds: readonly string[];
    readonly teamIdsBefore: readonly string[];
  },
): Promise<void> {
  if (role !== roleBefore) await sql`UPDATE members SET role = ${role} WHERE id = ${id}`;
  const ended = teamIdsBefore.filter((one) => !teamIds.includes(one) && current.includes(one));
  if (ended.length > 0) {
    await sql`DELETE FROM team_members
      WHERE member_id = ${id} AND team_id = ANY (${sql.array(ended)}::text[])`;
  }
  const added = teamIds.filter((one) => !current.includes(one));
  if (added.length > 0) {
    await sql`INSERT INTO team_members (team_id, member_id, organization_id, role)
      SELECT id, ${id}, organization_id, 'member' FROM teams
      WHERE id = ANY (${sql.array(added)}::text[]) AND organization_id = ${organizationId}
        AND deleted_at IS NULL
      FOR SHARE ON CONFLICT (team_id, member_id) DO NOTHING`;
  }
}

/** Sets the operator roles of people. A role that the gateway itself has given stays. */
async function setOperatorRoles(
  sql: DatabaseTransaction,
  personIds: readonly string[],
  grants: GrantsByPerson,
): Promise<void> {
  await sql`
    UPDATE people p SET operator_role = g.role,
      operator_provider_id = CASE WHEN g.role IS NOT NULL THEN coalesce(p.operator_provider_id, (
        SELECT provider_id FROM person_identities i WHERE i.person_id = p.id
          AND met_rules IS NOT NULL ORDER BY provider_id LIMIT 1)) END
    FROM unnest(${sql.array([...personIds])}::text[],
      ${sql.array(personIds.map((id) => grants.get(id)?.operatorRole ?? null) as string[])}::text[]) AS g(id, role)
    WHERE p.id = g.id AND p.operator_role IS DISTINCT FROM g.role
      AND (p.operator_role IS NULL OR p.operator_provider_id IS NOT NULL)`;
}

/** Adds a person to the organizations of grants. A person who is a member already stays one as before. */
export async function addGrantedMembers(
  sql: DatabaseTransaction,
  { providerId, personId, nowMs }: { providerId: string; personId: string; nowMs: number },
  { organizations }: Grants,
  newMemberId: () => string,
): Promise<void> {
  const present = await readGrantedMembers(sql, [personId]);
  await lockOrganizations(sql, [...organizations.keys(), ...present.map(organizationOf)]);
  for (const [organizationId, { role }] of organizations) {
    const [open] = await sql`
      SELECT 1 FROM organizations o WHERE id = ${organizationId} AND NOT EXISTS (
        SELECT 1 FROM members WHERE organization_id = o.id AND person_id = ${personId}
          AND deleted_at IS NULL)`;
    if (open === undefined) continue;
    const member = { id: newMemberId(), organizationId, personId, role, createdAtMs: nowMs };
    await insertMember(sql, { ...member, identityProviderId: providerId });
  }
}
