import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { recordChange } from "./changes.ts";

export type DefinitionKind = "preset" | "guardrail";

/** What an organization has defined for its requests to name. */
export interface DefinitionRecord {
  readonly id: string;
  readonly kind: DefinitionKind;
  readonly name: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface DefinitionRow {
  readonly id: string;
  readonly kind: DefinitionKind;
  readonly name: string;
  readonly body: Record<string, unknown>;
  readonly created_at: Date;
  readonly updated_at: Date;
}

function recordOf(row: DefinitionRow): DefinitionRecord {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    body: row.body,
    createdAtMs: row.created_at.getTime(),
    updatedAtMs: row.updated_at.getTime(),
  };
}

/** Of one organization and kind, exact over all instances. */
export interface DefinitionLimits {
  readonly maxCount: number;
  /** Of the JSON of all bodies together. */
  readonly maxBytes: number;
}

export interface DefinitionPlace {
  readonly organizationId: string;
  readonly kind: DefinitionKind;
  readonly id: string;
}

/** Throws what `refuse` makes of it where a limit is passed; fails with 23505 where the name is taken. */
export function insertDefinition(
  sql: Database,
  place: DefinitionPlace,
  definition: Pick<DefinitionRecord, "name" | "body" | "createdAtMs">,
  limits: DefinitionLimits,
  refuse: () => Error,
): Promise<DefinitionRecord> {
  return sql.begin(async (transaction) => {
    await lockOrganization(transaction, place);
    const createdAt = new Date(definition.createdAtMs).toISOString();
    const [row] = await transaction<DefinitionRow[]>`
      INSERT INTO definitions (id, organization_id, kind, name, body, created_at, updated_at)
      VALUES (${place.id}, ${place.organizationId}, ${place.kind}, ${definition.name},
        ${JSON.stringify(definition.body)}::text::jsonb,
        ${createdAt}::text::timestamptz, ${createdAt}::text::timestamptz)
      RETURNING *`;
    await assertWithin(transaction, place, limits, refuse);
    await recordChange(transaction, "definitions", place.organizationId);
    return recordOf(row!);
  });
}

/** The newest first. */
export async function listDefinitions(
  sql: Database,
  organizationId: string,
  kind: DefinitionKind,
): Promise<DefinitionRecord[]> {
  const rows = await sql<DefinitionRow[]>`
    SELECT * FROM definitions WHERE organization_id = ${organizationId} AND kind = ${kind}
    ORDER BY id DESC`;
  return rows.map(recordOf);
}

export async function findDefinition(
  sql: Database,
  { organizationId, kind, id }: DefinitionPlace,
): Promise<DefinitionRecord | undefined> {
  const [row] = await sql<DefinitionRow[]>`
    SELECT * FROM definitions
    WHERE id = ${id} AND organization_id = ${organizationId} AND kind = ${kind}`;
  return row && recordOf(row);
}

/** Everything that an organization's requests can name. */
export function definitionsOf(organizationId: string): Query<DefinitionRecord[]> {
  return {
    name: "definitions-of-organization",
    tables: ["definitions"],
    async run(sql) {
      const rows = await sql<DefinitionRow[]>`
        SELECT * FROM definitions WHERE organization_id = ${organizationId} ORDER BY id`;
      return rows.map(recordOf);
    },
  };
}

/**
 * Undefined where there is none. `changed` gets the definition as it stands, and its errors end the change; fails
 * with 23505 where the name is taken.
 */
export function changeDefinition(
  sql: Database,
  place: DefinitionPlace,
  changed: (current: DefinitionRecord) => Pick<DefinitionRecord, "name" | "body" | "updatedAtMs">,
  limits: DefinitionLimits,
  refuse: () => Error,
): Promise<DefinitionRecord | undefined> {
  return sql.begin(async (transaction) => {
    await lockOrganization(transaction, place);
    const [current] = await transaction<DefinitionRow[]>`
      SELECT * FROM definitions
      WHERE id = ${place.id} AND organization_id = ${place.organizationId} AND kind = ${place.kind}`;
    if (current === undefined) return undefined;
    const next = changed(recordOf(current));
    const [row] = await transaction<DefinitionRow[]>`
      UPDATE definitions SET name = ${next.name},
        body = ${JSON.stringify(next.body)}::text::jsonb,
        updated_at = ${new Date(next.updatedAtMs).toISOString()}::text::timestamptz
      WHERE id = ${place.id} RETURNING *`;
    await assertWithin(transaction, place, limits, refuse);
    await recordChange(transaction, "definitions", place.organizationId);
    return recordOf(row!);
  });
}

/** False where there is none. */
export function deleteDefinition(
  sql: Database,
  { organizationId, kind, id }: DefinitionPlace,
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
  { organizationId }: DefinitionPlace,
): Promise<void> {
  await sql`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
}

async function assertWithin(
  sql: DatabaseTransaction,
  { organizationId, kind }: DefinitionPlace,
  { maxCount, maxBytes }: DefinitionLimits,
  refuse: () => Error,
): Promise<void> {
  const [used] = await sql<{ count: number; bytes: number }[]>`
    SELECT count(*)::int AS count, coalesce(sum(octet_length(body::text)), 0)::int AS bytes
    FROM definitions WHERE organization_id = ${organizationId} AND kind = ${kind}`;
  if (used!.count > maxCount || used!.bytes > maxBytes) throw refuse();
}
