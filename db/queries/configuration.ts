import type { Database, DatabaseTransaction } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { configurationEntries } from "../schema/configuration.ts";
import { recordChange } from "./changes.ts";
import { sealingKeyId } from "./master-key.ts";

/** A provider, model, alias or price that operators have stored. */
export type StoredEntry = RecordOf<typeof configurationEntries, "deletedAt">;

export type EntryKind = StoredEntry["kind"];

const entryOf = recordReader(configurationEntries, "deletedAt");

/** A change of one entry. A body replaces the entry or creates it; null deletes it. */
export interface EntryWrite {
  readonly kind: EntryKind;
  readonly id: string;
  readonly body: StoredEntry["body"] | null;
  /**
   * Returns the sealed secrets under the master key with this id, or null if the entry has none. Undefined keeps
   * those of the current entry.
   */
  readonly secret?: ((keyId: string) => Uint8Array | null) | undefined;
  /** True for a new provider that is not used before `noteReachable`. */
  readonly isUnproven?: boolean;
}

/** Returns all entries in force, in the order of their creation. */
export async function readConfiguration(
  sql: Database | DatabaseTransaction,
): Promise<StoredEntry[]> {
  const rows = await sql<RowOf<typeof configurationEntries>[]>`
    SELECT * FROM configuration_entries WHERE deleted_at IS NULL ORDER BY created_at, kind, id`;
  return rows.map(entryOf);
}

/**
 * Runs `decide` with the entries in force, then makes the changes that it returns, all in one transaction. Changes
 * of all instances run one after another, so `decide` sees every earlier change. Returns the entries afterwards.
 */
export function changeConfiguration(
  sql: Database,
  nowMs: number,
  decide: (
    entries: readonly StoredEntry[],
    transaction: DatabaseTransaction,
  ) => Promise<readonly EntryWrite[]>,
): Promise<StoredEntry[]> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(hashtextextended('configuration_entries', 0))`;
    const before = await readConfiguration(transaction);
    const writes = await decide(before, transaction);
    if (writes.length === 0) return before;
    const keyId = await sealingKeyId(transaction);
    const at = new Date(nowMs).toISOString();
    for (const write of writes) await writeEntry(transaction, write, keyId, at);
    await recordChange(
      transaction,
      "configuration",
      writes.length === 1 ? writes[0]!.id : "several",
    );
    return readConfiguration(transaction);
  });
}

async function writeEntry(
  sql: DatabaseTransaction,
  { kind, id, body, secret, isUnproven = false }: EntryWrite,
  keyId: string,
  at: string,
): Promise<void> {
  if (body === null) {
    await sql`
      UPDATE configuration_entries
      SET deleted_at = ${at}::text::timestamptz, version = version + 1, secret = NULL
      WHERE kind = ${kind} AND id = ${id} AND deleted_at IS NULL`;
    return;
  }
  const sealed = secret === undefined ? null : (secret(keyId) as Buffer | null);
  const updated = await sql`
    UPDATE configuration_entries
    SET body = ${sql.json(body as never)}, version = version + 1, updated_at = ${at}::text::timestamptz,
      secret = CASE WHEN ${secret === undefined} THEN secret ELSE ${sealed}::bytea END
    WHERE kind = ${kind} AND id = ${id} AND deleted_at IS NULL`;
  if (updated.count > 0) return;
  const [deleted] = await sql<{ version: number }[]>`
    DELETE FROM configuration_entries WHERE kind = ${kind} AND id = ${id} RETURNING version`;
  await sql`
    INSERT INTO configuration_entries
      (kind, id, version, body, secret, unreachable_since, created_at, updated_at)
    VALUES (${kind}, ${id}, ${(deleted?.version ?? 0) + 1}, ${sql.json(body as never)}, ${sealed},
      ${isUnproven ? at : null}::text::timestamptz, ${at}::text::timestamptz, ${at}::text::timestamptz)`;
}

/**
 * Records whether a stored provider answers. One that does not is not used.
 */
export function noteReachable(sql: Database, id: string, isReachable: boolean): Promise<void> {
  return sql.begin(async (transaction) => {
    const noted = await transaction`
      UPDATE configuration_entries
      SET unreachable_since = CASE WHEN ${isReachable} THEN NULL ELSE clock_timestamp() END
      WHERE kind = 'provider' AND id = ${id} AND deleted_at IS NULL
        AND (unreachable_since IS NULL) <> ${isReachable}`;
    if (noted.count > 0) await recordChange(transaction, "configuration", id);
  });
}

/** Work that needs a provider or a model. */
export interface ConfigurationUse {
  readonly type: "batch" | "fine_tuning_job" | "tuned_model";
  readonly id: string;
}

const MAX_USES = 20;

/** Returns the distinct models that the lines of open batches name, of all organizations. */
export async function modelsOfOpenBatches(sql: DatabaseTransaction): Promise<string[]> {
  const rows = await sql<{ model: string }[]>`
    SELECT DISTINCT unnest(models) AS model FROM batches WHERE ended_at IS NULL`;
  return rows.map(({ model }) => model);
}

/**
 * Returns work of all organizations that needs one of the providers or models: open batches, fine-tuning jobs that
 * have not ended, and fine-tuned models. At most 20, of each kind the oldest first.
 */
export async function configurationUses(
  sql: DatabaseTransaction,
  {
    providers,
    models,
    names,
  }: {
    readonly providers: readonly string[];
    readonly models: readonly string[];
    /** Names of models, as the lines of batches have them. */
    readonly names: readonly string[];
  },
): Promise<ConfigurationUse[]> {
  const [ofProviders, ofModels] = [sql.array([...providers]), sql.array([...models])];
  const named = sql.array([...names]);
  return sql<ConfigurationUse[]>`
    SELECT type, id FROM (
      SELECT DISTINCT 'batch' AS type, batch_id AS id FROM provider_batches
      WHERE state IN ('filling', 'ordered', 'running')
        AND (provider_id = ANY (${ofProviders}) OR model = ANY (${ofModels}))
      UNION
      SELECT 'batch', id FROM batches WHERE ended_at IS NULL AND models && ${named}::text[]
      UNION ALL
      SELECT 'fine_tuning_job', id FROM fine_tuning_jobs
      WHERE due_at IS NOT NULL
        AND (provider_id = ANY (${ofProviders}) OR base_model = ANY (${ofModels}))
      UNION ALL
      SELECT 'tuned_model', id FROM tuned_models
      WHERE deleted_at IS NULL
        AND (provider_id = ANY (${ofProviders}) OR base_model = ANY (${ofModels}))
    ) AS uses
    ORDER BY type, id LIMIT ${MAX_USES}`;
}
