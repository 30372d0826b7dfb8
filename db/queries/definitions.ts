import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { definitions } from "../schema/definitions.ts";
import { recordChange } from "./changes.ts";

export type DefinitionKind = RowOf<typeof definitions>["kind"];

/** A preset or guardrail that an organization has defined. */
export type DefinitionRecord = RecordOf<typeof definitions, "organizationId">;

const recordOf = recordReader(definitions, "organizationId");

/** Limits of one organization and kind, exact across instances. */
export interface DefinitionLimits {
  readonly maxCount: number;
  /** Size of the JSON of all bodies together. */
  readonly maxBytes: number;
}

export interface DefinitionKey {
  readonly organizationId: string;
  readonly kind: DefinitionKind;
  readonly id: string;
}

/**
 * Inserts a definition. Throws the error of `refuse` if a limit is exceeded. Fails with 23505 if the name is taken.
 */
export function insertDefinition(
  sql: Database,
  key: DefinitionKey,
  definition: Pick<DefinitionRecord, "name" | "body" | "createdAtMs">,
  limits: DefinitionLimits,
  refuse: () => Error,
): Promise<DefinitionRecord> {
  return sql.begin(async (transaction) => {
    await lockOrganization(transaction, key);
    const createdAt = new Date(definition.createdAtMs).toISOString();
    const [row] = await transaction<RowOf<typeof definitions>[]>`
      INSERT INTO definitions (id, organization_id, kind, name, body, created_at, updated_at)
      VALUES (${key.id}, ${key.organizationId}, ${key.kind}, ${definition.name},
        ${JSON.stringify(definition.body)}::text::jsonb,
        ${createdAt}::text::timestamptz, ${createdAt}::text::timestamptz)
      RETURNING *`;
    await assertWithin(transaction, key, limits, refuse);
    await recordChange(transaction, "definitions", key.organizationId);
    return recordOf(row!);
  });
}

/** Lists definitions, newest first. */
export async function listDefinitions(
  sql: Database,
  organizationId: string,
  kind: DefinitionKind,
): Promise<DefinitionRecord[]> {
  const rows = await sql<RowOf<typeof definitions>[]>`
    SELECT * FROM definitions WHERE organization_id = ${organizationId} AND kind = ${kind}
    ORDER BY id DESC`;
  return rows.map(recordOf);
}

export async function findDefinition(
  sql: Database,
  { organizationId, kind, id }: DefinitionKey,
): Promise<DefinitionRecord | undefined> {
  const [row] = await sql<RowOf<typeof definitions>[]>`
    SELECT * FROM definitions
    WHERE id = ${id} AND organization_id = ${organizationId} AND kind = ${kind}`;
  return row && recordOf(row);
}

export interface OrganizationDefinitions {
  readonly definitions: readonly DefinitionRecord[];
  /**
   * Ids of guardrails that apply to every call: by key, and under "" for the whole organization.
   */
  readonly defaults: ReadonlyMap<string, string>;
}

/**
 * Returns all definitions that an organization's requests can name, and those that apply to every call.
 */
export function definitionsOf(organizationId: string): Query<OrganizationDefinitions> {
  return {
    name: "definitions-of-organization",
    tables: ["definitions", "guardrail_defaults"],
    async run(sql) {
      const rows = await sql<RowOf<typeof definitions>[]>`
        SELECT * FROM definitions WHERE organization_id = ${organizationId} ORDER BY id`;
      // Read after the definitions, so that each default names one that was read, or the change feed reports a newer
      // one.
      const defaults = await sql<{ key_id: string; guardrail_id: string }[]>`
        SELECT key_id, guardrail_id FROM guardrail_defaults
        WHERE organization_id = ${organizationId}`;
      return {
        definitions: rows.map(recordOf),
        defaults: new Map(defaults.map((row) => [row.key_id, row.guardrail_id])),
      };
    },
  };
}

/**
 * Sets the default guardrail of a key, or of the whole organization if the key is "". Null removes it. Returns false if
 * the guardrail or the key does not exist.
 */
export async function setGuardrailDefault(
  sql: DatabaseTransaction,
  organizationId: string,
  keyId: string,
  nameOrId: string | null,
): Promise<boolean> {
  await sql`DELETE FROM guardrail_defaults
    WHERE organization_id = ${organizationId} AND key_id = ${keyId}`;
  await recordChange(sql, "definitions", organizationId);
  if (nameOrId === null) return true;
  const set = await sql`
    INSERT INTO guardrail_defaults (organization_id, key_id, guardrail_id)
    SELECT organization_id, ${keyId}, id FROM definitions
    WHERE organization_id = ${organizationId} AND kind = 'guardrail'
      AND (id = ${nameOrId} OR name = ${nameOrId})
      AND (${keyId} = '' OR EXISTS (SELECT 1 FROM api_keys k
        WHERE k.id = ${keyId} AND k.organization_id = ${organizationId} AND k.deleted_at IS NULL))
    ORDER BY id = ${nameOrId} DESC LIMIT 1`;
  return set.count > 0;
}

/**
 * Returns undefined if the definition does not exist. `changed` gets the current definition, and whether the operator
 * has set it as a default; its errors abort the change. Fails with 23505 if the name is taken.
 */
export function changeDefinition(
  sql: Database,
  key: DefinitionKey,
  changed: (
    current: DefinitionRecord,
    isEnforced: boolean,
  ) => Pick<DefinitionRecord, "name" | "body" | "updatedAtMs">,
  limits: DefinitionLimits,
  refuse: () => Error,
): Promise<DefinitionRecord | undefined> {
  return sql.begin(async (transaction) => {
    await lockOrganization(transaction, key);
    const [current] = await transaction<(RowOf<typeof definitions> & { is_enforced: boolean })[]>`
      SELECT *, EXISTS (
        SELECT 1 FROM guardrail_defaults WHERE guardrail_id = definitions.id
      ) AS is_enforced
      FROM definitions
      WHERE id = ${key.id} AND organization_id = ${key.organizationId} AND kind = ${key.kind}`;
    if (current === undefined) return undefined;
    const next = changed(recordOf(current), current.is_enforced);
    const [row] = await transaction<RowOf<typeof definitions>[]>`
      UPDATE definitions SET name = ${next.name},
        body = ${JSON.stringify(next.body)}::text::jsonb,
        updated_at = ${new Date(next.updatedAtMs).toISOString()}::text::timestamptz
      WHERE id = ${key.id} RETURNING *`;
    await assertWithin(transaction, key, limits, refuse);
    await recordChange(transaction, "definitions", key.organizationId);
    return recordOf(row!);
  });
}

/**
 * Returns false if the definition does not exist. Fails with 23503 if it is a default of an organization or a key.
 */
export function deleteDefinition(
  sql: Database,
  { organizationId, kind, id }: DefinitionKey,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      DELETE FROM definitions
      WHERE id = ${id} AND organization_id = ${organizationId} AND kind = ${kind}`;
    if (deleted.count === 0) return false;
    await recordChange(transaction, "definitions", organizationId);
    return true;
  });
}

/** One change of an organization's definitions at a time, so that its limits are exact. */
async function lockOrganization(
  sql: DatabaseTransaction,
  { organizationId }: DefinitionKey,
): Promise<void> {
  await sql`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
}

async function assertWithin(
  sql: DatabaseTransaction,
  { organizationId, kind }: DefinitionKey,
  { maxCount, maxBytes }: DefinitionLimits,
  refuse: () => Error,
): Promise<void> {
  const [used] = await sql<{ count: number; bytes: number }[]>`
    SELECT count(*)::int AS count, coalesce(sum(octet_length(body::text)), 0)::int AS bytes
    FROM definitions WHERE organization_id = ${organizationId} AND kind = ${kind}`;
  if (used!.count > maxCount || used!.bytes > maxBytes) throw refuse();
}
