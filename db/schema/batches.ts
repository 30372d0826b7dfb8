import { sql } from "drizzle-orm";
import {
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });
const time = (name: string) => timestamp(name, { withTimezone: true });

/** Batches of requests; the order of their ids is that of their creation. States: see `src/jobs/batches/batch-owner.ts`. */
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
    status: text("status").notNull(),
    /** The final status, once every line has its result. */
    endsAs: text("ends_as"),
    metadata: jsonb("metadata"),
    /** Why it failed. */
    faults: jsonb("faults"),
    total: integer("total").notNull().default(0),
    completed: integer("completed").notNull().default(0),
    failed: integer("failed").notNull().default(0),
    outputFile: text("output_file"),
    errorFile: text("error_file"),
    createdAt: time("created_at").notNull(),
    inProgressAt: time("in_progress_at"),
    finalizingAt: time("finalizing_at"),
    endedAt: time("ended_at"),
    cancellingAt: time("cancelling_at"),
    expiresAt: time("expires_at").notNull(),
    /** When its owner has something to do; null: never. */
    dueAt: time("due_at"),
    /** Attempts that failed since the last one that brought it on. */
    attempts: integer("attempts").notNull().default(0),
  },
  (table) => [
    index("batches_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("batches_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
  ],
);

/** Lines of batches that have their result. */
export const batchLines = pgTable(
  "batch_lines",
  {
    batchId: text("batch_id").notNull(),
    /** Of the input file, from 1, blank lines counted. */
    line: integer("line").notNull(),
    isFailed: boolean("is_failed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.line] })],
);

/** Results of lines, sealed, in pieces; one without a row of `batch_lines` is not known to be charged. */
export const batchContents = pgTable(
  "batch_contents",
  {
    batchId: text("batch_id").notNull(),
    /** The line and the piece, in digits that sort as numbers do. */
    part: text("part").notNull(),
    sealed: bytea("sealed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.part] })],
);

/** Batches at providers, each with lines of one batch here. States: see `src/jobs/batches/provider-batch-submitter.ts`. */
export const providerBatches = pgTable(
  "provider_batches",
  {
    /** The mark by which it is found at the provider. */
    id: text("id").primaryKey(),
    batchId: text("batch_id").notNull(),
    providerId: text("provider_id").notNull(),
    /** Of a provider with several keys, the name of the one that it was made with. */
    providerKey: text("provider_key"),
    model: text("model").notNull(),
    /** The name that the provider knows the model by. */
    providerModel: text("provider_model").notNull(),
    kind: text("kind").notNull(),
    /** What its lines are billed by, as it stood when they were handed over. */
    terms: text("terms").notNull(),
    state: text("state").notNull(),
    requests: integer("requests").notNull(),
    /** Its id at the provider. */
    providerBatch: text("provider_batch"),
    /** When it was created there, or was about to be. */
    orderedAt: time("ordered_at"),
    isCancelled: boolean("is_cancelled").notNull().default(false),
  },
  (table) => [
    index("provider_batches_batch").on(table.batchId),
    index("provider_batches_provider").on(table.providerId),
  ],
);

/**
 * Lines that are at providers: each has a hold of the name of its request, and no hold of a line is without its row. One
 * without a request has come back, and is to be called as others are.
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
