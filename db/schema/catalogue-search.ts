import { sql } from "drizzle-orm";
import { customType, index, pgTable, text } from "drizzle-orm/pg-core";

const tsvector = customType<{ data: string }>({ dataType: () => "tsvector" });

/**
 * Searchable words of each model, in lower case and without punctuation. A search only finds ids; prices and endpoints
 * are in memory. Descriptions are stored twice: as written, so that prefixes match, and as stems, so that inflected
 * words match.
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
