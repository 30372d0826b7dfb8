import type { Author } from "../../src/lib/author.ts";
import { authored } from "../authored.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { RowOf } from "../rows.ts";
import type { auditLog } from "../schema/audit-log.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface AuditEntry {
  readonly id: string;
  /** Null for acts on the gateway itself. */
  readonly organizationId: string | null;
  readonly action: string;
  readonly object: { readonly type: string; readonly id: string | null };
  readonly actor: Author | { readonly kind: "system"; readonly id: null; readonly name: null };
  readonly before: Fields | null;
  readonly after: Fields | null;
  readonly createdAtMs: number;
}

/** Undefined members do not filter. */
export interface AuditFilter {
  readonly organizationId: string | undefined;
  readonly actorId: string | undefined;
  readonly action: string | undefined;
  readonly objectType: string | undefined;
  readonly objectId: string | undefined;
  /** Inclusive. */
  readonly fromMs: number | undefined;
  /** Exclusive. */
  readonly beforeMs: number | undefined;
}

export interface AuditPage extends AuditFilter {
  readonly after: string | undefined;
  readonly limit: number;
}

/** Lists entries, newest first. Returns one more than `limit` if there are more. */
export async function listAuditLog(sql: Database, page: AuditPage): Promise<AuditEntry[]> {
  const { fromMs, beforeMs, after } = page;
  const rows = await sql<RowOf<typeof auditLog>[]>`SELECT * FROM audit_log WHERE true
    ${page.organizationId === undefined ? sql`` : sql`AND organization_id = ${page.organizationId}`}
    ${page.actorId === undefined ? sql`` : sql`AND actor_id = ${page.actorId}`}
    ${page.action === undefined ? sql`` : sql`AND action = ${page.action}`}
    ${page.objectType === undefined ? sql`` : sql`AND object_type = ${page.objectType}`}
    ${page.objectId === undefined ? sql`` : sql`AND object_id = ${page.objectId}`}
    ${fromMs === undefined ? sql`` : sql`AND id COLLATE "C" >= ${firstIdAt(fromMs)}`}
    ${beforeMs === undefined ? sql`` : sql`AND id COLLATE "C" < ${firstIdAt(beforeMs)}`}
    ${after === undefined ? sql`` : sql`AND id COLLATE "C" < ${after}`}
    ORDER BY id COLLATE "C" DESC LIMIT ${page.limit + 1}`;
  return rows.map((row) => ({
    id: row.id,
    organizationId: row.organization_id,
    action: row.action,
    object: { type: row.object_type, id: row.object_id },
    actor: row.actor,
    before: row.before,
    after: row.after,
    createdAtMs: row.created_at.getTime(),
  }));
}

const MILLISECOND_DIGITS = 12;

/** Returns an id that is not above the id of any entry from this time on. */
function firstIdAt(ms: number): string {
  return `act_${Math.max(0, ms).toString(16).padStart(MILLISECOND_DIGITS, "0")}`;
}

/**
 * Returns true if such an entry exists.
 *
 * @param organizationId undefined: any organization, and the gateway itself
 */
export async function hasAuditEntry(
  sql: Database,
  id: string,
  organizationId: string | undefined,
): Promise<boolean> {
  const [row] = await sql`SELECT 1 FROM audit_log WHERE id = ${id}
    ${organizationId === undefined ? sql`` : sql`AND organization_id = ${organizationId}`}`;
  return row !== undefined;
}

export interface Act {
  readonly organizationId: string | null;
  /** `<type of object>.<act>`, such as `key.created`. */
  readonly action: string;
  readonly object: { readonly type: string; readonly id: string | null };
  readonly after?: Fields;
}

/**
 * Writes an entry for an act that changes no row with an audit trigger. The entry has the author of the transaction.
 */
export async function recordAct(sql: DatabaseTransaction, act: Act): Promise<void> {
  const { organizationId, action, object, after } = act;
  await sql`SELECT record_act(${organizationId}::text, ${action}::text, ${object.type}::text,
    ${object.id}::text, NULL, ${after === undefined ? null : JSON.stringify(after)}::text::jsonb)`;
}

/**
 * Returns a database whose transactions record an act of an author. A transaction whose work returns false records
 * nothing.
 */
export function audited(sql: Database, author: Author, act: Act): Database {
  const ofAuthor = authored(sql, author);
  const begin = (work: (transaction: DatabaseTransaction) => unknown) =>
    ofAuthor.begin(async (transaction) => {
      const result = await work(transaction);
      if (result !== false) await recordAct(transaction, act);
      return result;
    });
  return new Proxy(sql, {
    get: (_, name) => (name === "begin" ? begin : Reflect.get(sql, name)),
  });
}

const REMOVAL_BATCH = 10_000;

/**
 * Removes a bounded number of entries that are older than `days`. Returns true if there may be more.
 */
export async function removeOldActs(sql: Database, days: number): Promise<boolean> {
  const removed = await sql.begin(async (transaction) => {
    await transaction`SELECT set_config('gateway.audit_log_days', ${String(days)}, true)`;
    return transaction`DELETE FROM audit_log WHERE id IN (
      SELECT id FROM audit_log WHERE created_at < clock_timestamp() - make_interval(days => ${days}::integer)
      LIMIT ${REMOVAL_BATCH})`;
  });
  return removed.count === REMOVAL_BATCH;
}
