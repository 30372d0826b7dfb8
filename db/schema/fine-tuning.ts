import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/** Fine-tuning jobs. The states and who may move between them: actors/fine-tuning-job/state.ts. */
export const fineTuningJobs = pgTable(
  "fine_tuning_jobs",
  {
    id: text("id").primaryKey(),
    /** Of the request that ordered it: names the money that is held for it, and its charge. */
    requestId: text("request_id").notNull(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    keyId: text("key_id").notNull(),
    /** Id in the catalogue. */
    baseModel: text("base_model").notNull(),
    providerId: text("provider_id").notNull(),
    /** The name the provider knows the base model by. */
    providerBaseModel: text("provider_base_model").notNull(),
    trainingFile: text("training_file").notNull(),
    validationFile: text("validation_file"),
    suffix: text("suffix"),
    seed: integer("seed").notNull(),
    hyperparameters: jsonb("hyperparameters").notNull(),
    metadata: jsonb("metadata"),
    /** Price of a trained token, taken when the job was admitted. */
    tokenFemto: bigint("token_femto", { mode: "bigint" }).notNull(),
    feeBasisPoints: integer("fee_basis_points").notNull(),
    holdNano: bigint("hold_nano", { mode: "bigint" }).notNull(),
    status: text("status").notNull().default("queued"),
    /** {code, message, param} of a failed job. */
    error: jsonb("error"),
    fineTunedModel: text("fine_tuned_model"),
    /** Tokens of the training file, counted here; null before it was checked. */
    fileTokens: bigint("file_tokens", { mode: "number" }),
    /** What was billed, over all epochs. */
    trainedTokens: bigint("trained_tokens", { mode: "number" }),
    providerFile: text("provider_file"),
    providerValidationFile: text("provider_validation_file"),
    providerJob: text("provider_job"),
    /** Written before each try to create the job at the provider: it may exist from then on. */
    createTries: integer("create_tries").notNull().default(0),
    /** Calls of the provider in a row that failed: the pauses between them grow. */
    troubles: integer("troubles").notNull().default(0),
    /** Those of them whose answers made no sense, or knew of no such job. */
    uselessAnswers: integer("useless_answers").notNull().default(0),
    /** Of a job that has ended: nothing of it is left at the provider that should not be. */
    isCleanedUp: boolean("is_cleaned_up").notNull().default(false),
    /** File of what was measured in training. */
    resultFile: text("result_file"),
    eventCount: integer("event_count").notNull().default(0),
    /** Counts writes; each names the version that it was decided on. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /** When its owner has something to do next; null: nothing is left to do. */
    dueAt: timestamp("due_at", { withTimezone: true }).default(sql`clock_timestamp()`),
    runningSince: timestamp("running_since", { withTimezone: true }),
    estimatedFinish: timestamp("estimated_finish", { withTimezone: true }),
    finishedAt: timestamp("finished_at", { withTimezone: true }),
  },
  (table) => [
    index("fine_tuning_jobs_listing").on(table.organizationId, table.createdAt, table.id),
    index("fine_tuning_jobs_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
  ],
);

/** What a job has told, numbered without a gap from 1. */
export const fineTuningEvents = pgTable(
  "fine_tuning_events",
  {
    jobId: text("job_id").notNull(),
    sequence: integer("sequence").notNull(),
    id: text("id").notNull(),
    level: text("level").notNull(),
    message: text("message").notNull(),
    type: text("type").notNull(),
    data: jsonb("data").notNull(),
    /** Of an event that the provider reported: it is emitted once. */
    providerEvent: text("provider_event"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.sequence] }),
    uniqueIndex("fine_tuning_events_id").on(table.jobId, table.id),
    uniqueIndex("fine_tuning_events_provider").on(table.jobId, table.providerEvent),
  ],
);

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

/**
 * What the sandbox keeps of trainings, in the place of a provider: a file and what it teaches, then the
 * job and the model that were made of it. No row of the gateway's own refers to it.
 */
export const sandboxTunings = pgTable(
  "sandbox_tunings",
  {
    /** Of the file; the job's and the model's are made of it. */
    id: text("id").primaryKey(),
    fileName: text("file_name").notNull(),
    /** JSON of LearnedAnswer[], as text: it may hold characters that jsonb refuses. Null once deleted. */
    learned: text("learned"),
    tokens: bigint("tokens", { mode: "number" }).notNull(),
    uploadedAt: timestamp("uploaded_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    fileDeletedAt: timestamp("file_deleted_at", { withTimezone: true }),
    /** What the job was created with; all of it is null before. */
    tag: text("tag"),
    model: text("model"),
    epochs: integer("epochs"),
    /** By the clock of the process that created it. */
    startedAtMs: bigint("started_at_ms", { mode: "number" }),
    cancelledAtMs: bigint("cancelled_at_ms", { mode: "number" }),
  },
  (table) => [
    uniqueIndex("sandbox_tunings_tag").on(table.tag),
    index("sandbox_tunings_file").on(table.fileName),
  ],
);
