import { sql } from "drizzle-orm";
import { index, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/** Models that fine-tuning jobs have made, each visible to its organization alone. */
export const tunedModels = pgTable(
  "tuned_models",
  {
    /** ft:<base model>:<suffix>:<job> */
    id: text("id").primaryKey(),
    organizationId: text("organization_id").notNull(),
    jobId: text("job_id").notNull().unique(),
    /** Id in the catalogue, which knows the prices and limits. */
    baseModel: text("base_model").notNull(),
    suffix: text("suffix"),
    providerId: text("provider_id").notNull(),
    /** The name the provider knows it by. */
    providerModel: text("provider_model").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    deletedAt: timestamp("deleted_at", { withTimezone: true }),
  },
  (table) => [
    index("tuned_models_organization").on(table.organizationId).where(sql`deleted_at IS NULL`),
  ],
);
