const GAP = "  ";
/** Names come from callers of the API, and a terminal obeys what such characters say. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Text without what could move a cursor or hide something. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, "�");
}

/** Lines in which each column begins at one place. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map((row) => row.map(printable));
  const widths: number[] = [];
  for (const row of cells) {
    for (const [column, cell] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, Bun.stringWidth(cell));
    }
  }
  return cells.map((row) =>
    row
      .map((cell, column) => cell + " ".repeat(widths[column]! - Bun.stringWidth(cell)))
      .join(GAP)
      .trimEnd(),
  );
}

/** A table with its headings, or the one line that says that there is nothing. */
export function renderTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  whenEmpty: string,
): string {
  if (rows.length === 0) return `${whenEmpty}\n`;
  return `${alignColumns([headings, ...rows]).join("\n")}\n`;
}

/** One line for each field, its name first. */
export function renderFields(fields: readonly (readonly string[])[]): string {
  return `${alignColumns(fields).join("\n")}\n`;
}

/** Says where a list goes on; empty where it is complete. */
export function moreLine(shown: number, offset: number, total: number): string {
  const end = offset + shown;
  return end < total ? `${end} of ${total}; the rest: --offset ${end}\n` : "";
}
