/** SQLSTATE of a row whose key exists already. */
export const UNIQUE_VIOLATION = "23505";

/** SQLSTATE of a row that names another row, which does not exist. */
export const FOREIGN_KEY_VIOLATION = "23503";

/** SQLSTATEs of statements that can succeed if they are run again: serialization, deadlock and lock timeout. */
export const TRANSIENT_STATES: ReadonlySet<string> = new Set(["40001", "40P01", "55P03"]);
