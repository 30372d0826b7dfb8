import { customType } from "drizzle-orm/pg-core";

/** A column of bytes, such as a sealed value. */
export const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });
