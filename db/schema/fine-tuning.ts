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
import type {
  Hyperparameters,
  JobError,
  JobStatus,
  NewJobEvent,
} from "../../src/lib/fine-tuning-job.ts";
import { organizations } from "./organizations.ts";

/** Fine-tuning jobs. States and permitted changes: actors/fine-tuning-job/state.ts. */
export const fineTuningJobs = pgTable(
  "fine_tuning_jobs",
  {
    id: text("id").primaryKey(),
    /** Id of the request that ordered the job. Its hold and its charge have this id. */
    requestId: text("request_id").notNull(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    keyId: text("key_id").notNull(),
    /** Id in the catalogue. */
    baseModel: text("base_model").notNull(),
    providerId: text("provider_id").notNull(),
    /** Name of the base model at the provider. */
    providerBaseModel: text("provider_base_model").notNull(),
    trainingFile: text("training_file").notNull(),
    validationFile: text("validation_file"),
    suffix: text("suffix"),
    seed: integer("seed").notNull(),
    hyperparameters: jsonb("hyperparameters").$type<Hyperparameters>().notNull(),
    metadata: jsonb("metadata").$type<Readonly<Record<string, string>>>(),
    /** Price of a trained token in femto-USD, fixed when the job was admitted. */
    tokenFemto: bigint("token_femto", { mode: "bigint" }).notNull(),
    feeBasisPoints: integer("fee_basis_points").notNull(),
    holdNano: bigint("hold_nano", { mode: "bigint" }).notNull(),
    status: text("status").$type<JobStatus>().notNull().default("queued"),
    /** Null if the job has not failed. */
    error: jsonb("error").$type<JobError>(),
    fineTunedModel: text("fine_tuned_model"),
    /** Tokens of the training file, counted by the gateway. Null before it was checked. */
    fileTokens: bigint("file_tokens", { mode: "number" }),
    /** Billed tokens of all epochs. */
    trainedTokens: bigint("trained_tokens", { mode: "number" }),
    providerFile: text("provider_file"),
    providerValidationFile: text("provider_validation_file"),
    providerJob: text("provider_job"),
    /**
     * Number of tries to create the job at the provider, written before each try: the job may exist from then on.
     */
    createTries: integer("create_tries").notNull().default(0),
    /**
     * Number of consecutive failed calls of the provider. The delays between calls grow with it.
     */
    failedCalls: integer("troubles").notNull().default(0),
    /** Number of these calls whose answers were invalid, or did not know the job. */
    uselessAnswers: integer("useless_answers").notNull().default(0),
    /** True if the job has ended and its data at the provider is removed. */
    isCleanedUp: boolean("is_cleaned_up").notNull().default(false),
    /** File with the metrics of the training. */
    resultFile: text("result_file"),
    eventCount: integer("event_count").notNull().default(0),
    /** Counts writes. Each write names the version on which it was decided. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /** Time at which its owner has work. Null: no work is left. */
    dueAt: timestamp("due_at", { withTimezone: true }).default(sql`clock_timestamp()`),
    runningSince: timestamp("running_since", { withTimezone: true }),
    estimatedFinish: timestamp("estimated_finish", { withTimezone: true }),
    finishedAt: timestamp("finished_at", { withTimezone: true }),
  },
  (table) => [
    index("fine_tuning_jobs_listing").on(table.organizationId, table.createdAt, table.id),
    index("fine_tuning_jobs_of_key").on(table.keyId, table.createdAt, table.id),
    index("fine_tuning_jobs_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
  ],
);

/** Events of a job, numbered without a gap from 1. */
export const fineTuningEvents = pgTable(
  "fine_tuning_events",
  {
    jobId: text("job_id").notNull(),
    sequence: integer("sequence").notNull(),
    id: text("id").notNull(),
    level: text("level").$type<NewJobEvent["level"]>().notNull(),
    message: text("message").notNull(),
    type: text("type").$type<NewJobEvent["type"]>().notNull(),
    data: jsonb("data").$type<Readonly<Record<string, unknown>>>().notNull(),
    /** Id of an event that the provider reported: it is emitted once. */
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

/** Models that fine-tuning jobs have created. Only their organization sees them. */
export const tunedModels = pgTable(
  "tuned_models",
  {
    /** ft:<base model>:<suffix>:<job> */
    id: text("id").primaryKey(),
    organizationId: text("organization_id").notNull(),
    jobId: text("job_id").notNull().unique(),
    /** Id in the catalogue, which has the prices and limits. */
    baseModel: text("base_model").notNull(),
    suffix: text("suffix"),
    providerId: text("provider_id").notNull(),
    /** Name of the model at the provider. */
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
 * State of the sandbox in its role as a provider: a file and its lessons, then the job and the model that were made of
 * it. No other row of the gateway refers to it.
 */
export const sandboxTunings = pgTable(
  "sandbox_tunings",
  {
    /** Id of the file. The ids of the job and the model are derived from it. */
    id: text("id").primaryKey(),
    fileName: text("file_name").notNull(),
    /**
     * JSON of LearnedAnswer[] as text, because it may have characters that jsonb rejects. Null after its deletion.
     */
    learned: text("learned"),
    tokens: bigint("tokens", { mode: "number" }).notNull(),
    uploadedAt: timestamp("uploaded_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    fileDeletedAt: timestamp("file_deleted_at", { withTimezone: true }),
    /** Parameters of the job. All are null before it is created. */
    tag: text("tag"),
    model: text("model"),
    epochs: integer("epochs"),
    /** Time by the clock of the process that created it, in milliseconds. */
    startedAtMs: bigint("started_at_ms", { mode: "number" }),
    cancelledAtMs: bigint("cancelled_at_ms", { mode: "number" }),
  },
  (table) => [
    uniqueIndex("sandbox_tunings_tag").on(table.tag),
    index("sandbox_tunings_file").on(table.fileName),
  ],
);
