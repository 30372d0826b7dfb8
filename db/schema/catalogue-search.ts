import { sql } from "drizzle-orm";
import { customType, index, pgTable, text } from "drizzle-orm/pg-core";

const tsvector = customType<{ data: string }>({ dataType: () => "tsvector" });

/**
 * The searchable words of each model, in lower case and without punctuation; prices and endpoints stay
 * in memory, this only finds ids. Descriptions are held twice: as written, so that prefixes match, and
 * by their stems, so that inflected words do.
 */
export const catalogueSearch = pgTable(
  "catalogue_search",
  {
    modelId: text("model_id").primaryKey(),
    title: text("title").notNull(),
    origin: text("origin").notNull(),
    description: text("description").notNull(),
    document: tsvector("document").generatedAlwaysAs(
      sql`setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', origin), 'B') || setweight(to_tsvector('simple', description) || to_tsvector('english', description), 'C')`,
    ),
  },
  (table) => [index("catalogue_document").using("gin", table.document)],
);
