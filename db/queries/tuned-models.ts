import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { tunedModels } from "../schema/fine-tuning.ts";
import { recordChange } from "./changes.ts";

export type TunedModelRecord = RecordOf<typeof tunedModels, "deletedAt">;

const tunedModelOf = recordReader(tunedModels, "deletedAt");

export type NewTunedModel = Omit<TunedModelRecord, "createdAtMs">;

export async function insertTunedModel(
  sql: DatabaseTransaction,
  model: NewTunedModel,
): Promise<void> {
  await sql`INSERT INTO tuned_models
      (id, organization_id, job_id, base_model, suffix, provider_id, provider_model)
    VALUES (${model.id}, ${model.organizationId}, ${model.jobId}, ${model.baseModel},
      ${model.suffix}, ${model.providerId}, ${model.providerModel})`;
}

/** Returns the models of an organization, oldest first. */
export function listTunedModels(organizationId: string): Query<TunedModelRecord[]> {
  return {
    name: "tuned-models-list",
    tables: ["tuned_models"],
    async run(sql) {
      const rows = await sql<RowOf<typeof tunedModels>[]>`
        SELECT * FROM tuned_models WHERE organization_id = ${organizationId} AND deleted_at IS NULL
        ORDER BY created_at, id`;
      return rows.map(tunedModelOf);
    },
  };
}

/** Returns the provider's name of a job's model if it was deleted here. */
export async function findDeletedTunedModel(
  sql: Database,
  jobId: string,
): Promise<string | undefined> {
  const [row] = await sql<{ provider_model: string }[]>`
    SELECT provider_model FROM tuned_models WHERE job_id = ${jobId} AND deleted_at IS NOT NULL`;
  return row?.provider_model;
}

/**
 * Deletes a model, and makes its job delete it at the provider. Returns the job, or undefined if the organization has
 * no such model.
 */
export async function deleteTunedModel(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<string | undefined> {
  return sql.begin(async (transaction) => {
    const [row] = await transaction<{ job_id: string }[]>`
      UPDATE tuned_models SET deleted_at = clock_timestamp()
      WHERE id = ${id} AND organization_id = ${organizationId} AND deleted_at IS NULL
      RETURNING job_id`;
    if (row === undefined) return undefined;
    await transaction`UPDATE fine_tuning_jobs SET is_cleaned_up = false, troubles = 0,
        useless_answers = 0, due_at = clock_timestamp(), version = version + 1
      WHERE id = ${row.job_id}`;
    await recordChange(transaction, "tuned-model", organizationId);
    await recordChange(transaction, "fine-tuning-work", row.job_id);
    return row.job_id;
  });
}
