import type { OperatorRole, Role } from "../../src/lib/roles.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { identityProviders } from "../schema/identity-providers.ts";
import { sealingKeyId } from "./master-key.ts";
import { findMember, insertMember, lockMembers, removeMember, replaceTeams } from "./members.ts";

export type IdentityProvider = RecordOf<typeof identityProviders>;
export type IdentityProviderSettings = Omit<
  IdentityProvider,
  "id" | "secret" | "createdAtMs" | "updatedAtMs"
>;
type Row = RowOf<typeof identityProviders>;
const recordOf = recordReader(identityProviders);

const COLUMNS = {
  name: "name",
  issuer: "issuer",
  clientId: "client_id",
  scopes: "scopes",
  vouchesForEmail: "vouches_for_email",
} as const;

/** Lists the providers in the order of their names. */
export async function listIdentityProviders(sql: Database): Promise<IdentityProvider[]> {
  return (await sql<Row[]>`SELECT * FROM identity_providers ORDER BY name`).map(recordOf);
}

export async function findIdentityProvider(
  sql: Database | DatabaseTransaction,
  id: string,
): Promise<IdentityProvider | undefined> {
  const [row] = await sql<Row[]>`SELECT * FROM identity_providers WHERE id = ${id}`;
  return row && recordOf(row);
}

/**
 * Inserts a provider, or changes the stated settings of one. Returns undefined if it does not exist. Fails with 23505
 * if another one has the name.
 *
 * @param seal seals the client secret under the master key with this id. Undefined: the secret stays
 */
export function storeIdentityProvider(
  sql: Database,
  id: string,
  settings: Partial<IdentityProviderSettings>,
  { seal, isNew, nowMs }: { seal?: (keyId: string) => Uint8Array; isNew: boolean; nowMs: number },
): Promise<IdentityProvider | undefined> {
  const { rules, ...others } = settings;
  return sql.begin(async (transaction) => {
    const secret = seal?.(await sealingKeyId(transaction));
    const columns = {
      ...Object.fromEntries(
        Object.entries(others).map(([name, value]) => [
          COLUMNS[name as keyof typeof COLUMNS],
          value,
        ]),
      ),
      ...(rules !== undefined && { rules: transaction.json(rules as never) }),
      ...(secret !== undefined && { secret: Buffer.from(secret) }),
      updated_at: new Date(nowMs),
    };
    if (isNew) {
      const created = { ...columns, id, created_at: new Date(nowMs) };
      await transaction`INSERT INTO identity_providers ${transaction(created as never)}`;
    } else {
      await transaction`UPDATE identity_providers SET ${transaction(columns as never)} WHERE id = ${id}`;
    }
    return findIdentityProvider(transaction, id);
  });
}

/** Deletes a provider. Memberships and roles that it has granted stay. Returns false if it does not exist. */
export function deleteIdentityProvider(sql: Database, id: string): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`DELETE FROM identity_providers WHERE id = ${id}`;
    return deleted.count > 0;
  });
}

/** Returns the person with this account at a provider. */
export async function findIdentity(
  sql: DatabaseTransaction,
  providerId: string,
  subject: string,
): Promise<string | undefined> {
  const [row] = await sql<{ person_id: string }[]>`
    SELECT person_id FROM person_identities
    WHERE provider_id = ${providerId} AND subject = ${subject}`;
  return row?.person_id;
}

export async function insertIdentity(
  sql: DatabaseTransaction,
  identity: {
    readonly providerId: string;
    readonly subject: string;
    readonly personId: string;
    readonly nowMs: number;
  },
): Promise<void> {
  await sql`INSERT INTO person_identities (provider_id, subject, person_id, created_at)
    VALUES (${identity.providerId}, ${identity.subject}, ${identity.personId}, ${new Date(identity.nowMs)})
    ON CONFLICT (provider_id, subject) DO NOTHING`;
}

/** The roles that the rules of a provider grant a person. */
export interface Grants {
  readonly organizations: readonly {
    readonly id: string;
    readonly role: Role;
    readonly teamIds: readonly string[];
  }[];
  readonly operatorRole: OperatorRole | null;
}

/**
 * Makes the memberships and the operator role that a provider has granted a person equal to the grants. Those that come
 * from elsewhere stay as they are. A membership that is no longer granted ends, with its sessions and keys, even if its
 * member is the last owner: the organization still has its management keys.
 *
 * @param newMemberId returns an id for a new membership
 */
export async function applyGrants(
  sql: DatabaseTransaction,
  { providerId, personId, nowMs }: { providerId: string; personId: string; nowMs: number },
  { organizations, operatorRole }: Grants,
  newMemberId: () => string,
): Promise<void> {
  const granted = new Map(organizations.map((one) => [one.id, one]));
  const before = await sql<
    { id: string; organization_id: string; identity_provider_id: string | null }[]
  >`
    SELECT id, organization_id, identity_provider_id FROM members
    WHERE person_id = ${personId} AND deleted_at IS NULL`;
  const present = new Map(before.map((row) => [row.organization_id, row]));
  // In one order, so that sign-ins at the same time cannot deadlock.
  const ids = [...new Set([...granted.keys(), ...present.keys()])].sort();
  for (const organizationId of ids) {
    const [grant, member] = [granted.get(organizationId), present.get(organizationId)];
    if (member !== undefined && member.identity_provider_id !== providerId) continue;
    await lockMembers(sql, organizationId);
    if (grant === undefined) {
      await removeMember(sql, organizationId, member!.id, { isForced: true });
      continue;
    }
    const id = member?.id ?? newMemberId();
    if (member === undefined) {
      if (!(await organizationExists(sql, organizationId))) continue;
      const added = { id, organizationId, personId, role: grant.role, createdAtMs: nowMs };
      await insertMember(sql, { ...added, identityProviderId: providerId });
    } else {
      await sql`UPDATE members SET role = ${grant.role} WHERE id = ${id} AND role <> ${grant.role}`;
    }
    const current = await findMember(sql, organizationId, id);
    const teams = await existingTeams(sql, organizationId, grant.teamIds);
    const stated = teams.map((team) => ({
      id: team,
      role: current?.teams.find((one) => one.id === team)?.role ?? ("member" as const),
    }));
    await replaceTeams(sql, organizationId, id, stated);
  }
  await sql`UPDATE people SET operator_role = ${operatorRole},
      operator_provider_id = ${operatorRole === null ? null : providerId}
    WHERE id = ${personId} AND operator_role IS DISTINCT FROM ${operatorRole}
      AND (operator_role IS NULL OR operator_provider_id = ${providerId})`;
}

async function organizationExists(sql: DatabaseTransaction, id: string): Promise<boolean> {
  const found = await sql`SELECT 1 FROM organizations WHERE id = ${id}`;
  return found.count > 0;
}

async function existingTeams(
  sql: DatabaseTransaction,
  organizationId: string,
  ids: readonly string[],
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT id FROM teams WHERE id = ANY (${sql.array([...ids])}::text[])
      AND organization_id = ${organizationId} AND deleted_at IS NULL ORDER BY id`;
  return rows.map(({ id }) => id);
}
