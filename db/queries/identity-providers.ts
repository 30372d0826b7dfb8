import type { IdentityRule } from "../../src/lib/identity-rules.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { identityProviders } from "../schema/identity-providers.ts";
import { applyGrants, type GrantChange, peopleAt, readGrants } from "./identity-grants.ts";
import { sealingKeyId } from "./master-key.ts";

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
      await changingGrants(
        transaction,
        id,
        () =>
          transaction`UPDATE identity_providers SET ${transaction(columns as never)} WHERE id = ${id}`,
      );
    }
    return findIdentityProvider(transaction, id);
  });
}

/**
 * Deletes a provider. Memberships, teams and operator roles that only its rules have granted end. Returns undefined if
 * it does not exist.
 */
export function deleteIdentityProvider(
  sql: Database,
  id: string,
): Promise<GrantChange | undefined> {
  return sql.begin((transaction) =>
    changingGrants(
      transaction,
      id,
      () => transaction`DELETE FROM identity_providers WHERE id = ${id}`,
    ),
  );
}

/**
 * Changes a provider, and then the roles that its rules have granted. Rules that stay grant the same as before. Returns
 * undefined if it does not exist.
 */
async function changingGrants(
  sql: DatabaseTransaction,
  id: string,
  change: () => Promise<unknown>,
): Promise<GrantChange | undefined> {
  // Sign-ins at the provider wait, or have stored their rules before.
  const locked = await sql`SELECT 1 FROM identity_providers WHERE id = ${id} FOR UPDATE`;
  if (locked.count === 0) return undefined;
  const personIds = await peopleAt(sql, id);
  const before = await readGrants(sql, personIds);
  await change();
  return applyGrants(sql, personIds, before);
}

/** Locks a provider for the sign-in of a person. Returns its current rules, or undefined if it was deleted. */
export async function lockProvider(
  sql: DatabaseTransaction,
  id: string,
): Promise<readonly IdentityRule[] | undefined> {
  const [row] = await sql<Pick<Row, "rules">[]>`
    SELECT rules FROM identity_providers WHERE id = ${id} FOR SHARE`;
  return row?.rules;
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
