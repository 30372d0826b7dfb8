/**
 * Arrays as the database reads them out of a text (PostgreSQL documentation, 8.15.2). The driver would write
 * an array only where it has loaded the types of its server.
 */

const SPECIAL = /["\\]/g;

export function textArray(values: readonly (string | null)[]): string {
  let text = "{";
  for (const value of values) {
    if (text.length > 1) text += ",";
    text += value === null ? "NULL" : quoted(value);
  }
  return `${text}}`;
}

/** Integers. */
export function integerArray(values: readonly (number | bigint)[]): string {
  return `{${values.join(",")}}`;
}

function quoted(value: string): string {
  return value.includes('"') || value.includes("\\")
    ? `"${value.replace(SPECIAL, "\\$&")}"`
    : `"${value}"`;
}
