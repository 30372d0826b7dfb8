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
} from "drizzle-orm/pg-core";
import type { BatchEnd, BatchFault, BatchStatus } from "../../src/lib/batch.ts";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/**
 * Batches of requests. Their ids sort by creation time. States: see `src/jobs/batches/batch-owner.ts`.
 */
export const batches = pgTable(
  "batches",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The key that created it, which pays for its lines. */
    keyId: text("key_id").notNull(),
    endpoint: text("endpoint").notNull(),
    inputFile: text("input_file").notNull(),
    status: text("status").$type<BatchStatus>().notNull(),
    /** The final status, set when every line has its result. */
    endsAs: text("ends_as").$type<BatchEnd>(),
    metadata: jsonb("metadata").$type<Readonly<Record<string, string>>>(),
    /** Errors of a failed batch. */
    faults: jsonb("faults").$type<readonly BatchFault[]>(),
    /** The distinct models that its lines name. Null before the input was read. */
    models: text("models").array(),
    total: integer("total").notNull().default(0),
    completed: integer("completed").notNull().default(0),
    failed: integer("failed").notNull().default(0),
    /** Charges of the first `costedLines` lines with a result, in nano-USD. */
    costNano: bigint("cost_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Fewer than the lines with a result if an instance of an earlier version counted some of them. */
    costedLines: integer("costed_lines").notNull().default(0),
    outputFile: text("output_file"),
    errorFile: text("error_file"),
    createdAt: time("created_at").notNull(),
    inProgressAt: time("in_progress_at"),
    finalizingAt: time("finalizing_at"),
    endedAt: time("ended_at"),
    cancellingAt: time("cancelling_at"),
    expiresAt: time("expires_at").notNull(),
    /** Time at which its owner has work. Null: never. */
    dueAt: time("due_at"),
    /** Number of failed attempts since the last one that made progress. */
    attempts: integer("attempts").notNull().default(0),
  },
  (table) => [
    index("batches_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("batches_of_key").on(table.keyId, sql`${table.id} COLLATE "C"`),
    index("batches_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
  ],
);

/** Lines of batches that have their result. */
export const batchLines = pgTable(
  "batch_lines",
  {
    batchId: text("batch_id").notNull(),
    /** Line of the input file, from 1, counting blank lines. */
    line: integer("line").notNull(),
    isFailed: boolean("is_failed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.line] })],
);

/**
 * Results of lines, sealed, in pieces. A result without a row of `batch_lines` may not be charged yet.
 */
export const batchContents = pgTable(
  "batch_contents",
  {
    batchId: text("batch_id").notNull(),
    /** Line and piece, in digits that sort as numbers do. */
    part: text("part").notNull(),
    sealed: bytea("sealed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.part] })],
);

/**
 * Batches at providers, each with lines of one batch of the gateway. States: see `src/jobs/batches/provider-batch-submitter.ts`.
 */
export const providerBatches = pgTable(
  "provider_batches",
  {
    /** The mark that identifies the batch at the provider. */
    id: text("id").primaryKey(),
    batchId: text("batch_id").notNull(),
    providerId: text("provider_id").notNull(),
    /** Name of the key that created it, for a provider with several keys. */
    providerKey: text("provider_key"),
    model: text("model").notNull(),
    /** Name of the model at the provider. */
    providerModel: text("provider_model").notNull(),
    kind: text("kind").notNull(),
    /** Prices of its lines when they were submitted. */
    terms: text("terms").notNull(),
    state: text("state").$type<"filling" | "ordered" | "running" | "read" | "lost">().notNull(),
    /** Number of requests in the batch when it was ordered. */
    requests: integer("requests").notNull(),
    /** Id of the batch at the provider. */
    providerBatch: text("provider_batch"),
    /** Time at which the batch was created at the provider, or of the attempt. */
    orderedAt: time("ordered_at"),
    isCancelled: boolean("is_cancelled").notNull().default(false),
  },
  (table) => [
    index("provider_batches_batch").on(table.batchId),
    index("provider_batches_provider").on(table.providerId),
  ],
);

/**
 * Lines that are at providers. Each has a hold with the id of its request, and each hold of a line has its row. A row
 * without a request was returned, and its line is called like others.
 */
export const providerBatchLines = pgTable(
  "provider_batch_lines",
  {
    batchId: text("batch_id").notNull(),
    line: integer("line").notNull(),
    providerBatch: text("provider_batch"),
    requestId: text("request_id"),
    feeBasisPoints: integer("fee_basis_points"),
  },
  (table) => [
    primaryKey({ columns: [table.batchId, table.line] }),
    index("provider_batch_lines_provider_batch").on(table.providerBatch),
  ],
);
