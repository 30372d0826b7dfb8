import { type Database, type DatabaseTransaction, sqlState } from "../client.ts";
import { UNIQUE_VIOLATION } from "../error-states.ts";
import { insertKey, type KeyRow, type NewKey } from "./api-keys.ts";
import { recordAct } from "./audit-log.ts";
import { recordChange } from "./changes.ts";

/** A secret for the playground of a session. */
export interface PlaygroundSecret {
  readonly sessionHash: string;
  readonly secretHash: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** The key of a holder's playground. All its secrets share its limits and its budget. */
export interface PlaygroundKey {
  readonly id: string;
  readonly name: string;
  readonly isActive: boolean;
  readonly dailyBudgetNano: bigint | null;
}

type HolderKey = NewKey & Required<Pick<NewKey, "playgroundHolder">>;

/**
 * Inserts the secret of a session, and removes the previous one. Creates the key of the holder if it has none, and
 * otherwise sets its team and scopes. Its budget is lowered to that of `key`, and never raised, so that an admin can
 * lower it. Fails with 23503 if the session has ended, and throws NoSuchTeamError if the team does not exist.
 */
export async function insertPlaygroundSecret(
  sql: Database,
  key: HolderKey,
  secret: PlaygroundSecret,
): Promise<PlaygroundKey> {
  try {
    return await insertWithName(sql, key, secret);
  } catch (error) {
    if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
    // Another key has the name.
    const name = `${key.name} (${key.playgroundHolder.slice(-8)})`;
    return insertWithName(sql, { ...key, name }, secret);
  }
}

function insertWithName(
  sql: Database,
  key: HolderKey,
  { sessionHash, secretHash, createdAtMs, expiresAtMs }: PlaygroundSecret,
): Promise<PlaygroundKey> {
  return sql.begin(async (transaction) => {
    const current = (await lockedKey(transaction, key)) ?? (await created(transaction, key));
    // Locks the session before its secret, as a sign-out does, so that the two cannot deadlock.
    await transaction`SELECT 1 FROM dashboard_sessions WHERE token_hash = ${sessionHash} FOR KEY SHARE`;
    await transaction`
      DELETE FROM playground_secrets
      WHERE key_id = ${current.id} AND expires_at <= ${new Date(createdAtMs)}`;
    await transaction`
      INSERT INTO playground_secrets (session_hash, secret_hash, key_id, expires_at)
      VALUES (${sessionHash}, ${secretHash}, ${current.id}, ${new Date(expiresAtMs)})
      ON CONFLICT (session_hash) DO UPDATE SET secret_hash = EXCLUDED.secret_hash,
        key_id = EXCLUDED.key_id, expires_at = EXCLUDED.expires_at`;
    await recordAct(transaction, {
      organizationId: key.organizationId,
      action: "playground_key.created",
      object: { type: "key", id: current.id },
    });
    return current;
  });
}

/** Returns the key of the holder with the settings of the session. Undefined if the holder has none. */
async function lockedKey(
  sql: DatabaseTransaction,
  key: HolderKey,
): Promise<PlaygroundKey | undefined> {
  const [row] = await sql<(KeyRow & { deleted_at: Date | null })[]>`
    SELECT * FROM api_keys WHERE organization_id = ${key.organizationId}
      AND playground_holder = ${key.playgroundHolder} FOR UPDATE`;
  if (row === undefined) return undefined;
  const budget = lower(row.daily_budget_nano, key.dailyBudgetNano);
  const isSame =
    row.team_id === key.teamId &&
    row.daily_budget_nano === budget &&
    row.deleted_at === null &&
    row.scopes.join() === key.scopes.join();
  // The operator's command line can delete it. Its spending of the day counts on.
  const isActive = row.deleted_at !== null || row.is_active;
  if (!isSame) {
    await sql`UPDATE api_keys SET team_id = ${key.teamId}, daily_budget_nano = ${budget},
        scopes = ${sql.array([...key.scopes])}::text[], deleted_at = NULL, is_active = ${isActive},
        version = version + 1
      WHERE id = ${row.id}`;
    await recordChange(sql, "api-key", row.id);
  }
  return { id: row.id, name: row.name, isActive, dailyBudgetNano: budget };
}

function lower(a: bigint | null, b: bigint | null): bigint | null {
  if (a === null || b === null) return a ?? b;
  return a < b ? a : b;
}

async function created(sql: DatabaseTransaction, key: HolderKey): Promise<PlaygroundKey> {
  // Two sessions of a holder can begin at the same time. The second finds the key of the first.
  await sql`SELECT 1 FROM organizations WHERE id = ${key.organizationId} FOR NO KEY UPDATE`;
  const other = await lockedKey(sql, key);
  if (other !== undefined) return other;
  await insertKey(sql, key);
  const { id, name, isActive, dailyBudgetNano } = key;
  return { id, name, isActive, dailyBudgetNano };
}
