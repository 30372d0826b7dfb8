import type { ListedKey } from "../../../db/queries/api-keys.ts";
import type { OperatorKey } from "../../../db/queries/operator-keys.ts";
import { type ApiKeyRecord, scopeNames } from "../../lib/api-key-record.ts";
import { usdText } from "../../lib/money.ts";
import { printable } from "../../lib/printable.ts";
import { isoTime } from "../../lib/utc-time.ts";

const GAP = "  ";
/** Returns lines with aligned columns. */
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

/** Returns a table with headings, or the line for an empty list. */
export function renderTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  whenEmpty: string,
): string {
  if (rows.length === 0) return `${whenEmpty}\n`;
  return `${alignColumns([headings, ...rows]).join("\n")}\n`;
}

/** Returns one line for each field, its name first. */
export function renderFields(fields: readonly (readonly string[])[]): string {
  return `${alignColumns(fields).join("\n")}\n`;
}

/** Returns a line with the offset of the next page. Empty if the list is complete. */
export function moreLine(shown: number, offset: number, total: number): string {
  const end = offset + shown;
  return end < total ? `${end} of ${total}; next page: --offset ${end}\n` : "";
}

export function createdKeyText(record: ApiKeyRecord, secret: string): string {
  const fields = renderFields([
    ["Name", record.name],
    ["Id", record.id],
    ["Kind", record.kind],
    ["Scopes", scopeNames(record).join(", ")],
    ["Key", secret],
  ]);
  return `${fields}The key is shown only once.\n`;
}

export function createdOperatorKeyText(key: OperatorKey, secret: string): string {
  const fields = renderFields([
    ["Name", key.name],
    ["Id", key.id],
    ["Kind", "operator"],
    ["Key", secret],
  ]);
  return `${fields}The key is shown only once.\n`;
}

export function operatorKeyTable(keys: readonly OperatorKey[]): string {
  const rows = keys.map(({ id, name, keyPrefix, createdAtMs }) => [
    id,
    name,
    keyPrefix,
    isoTime(createdAtMs),
  ]);
  return renderTable(["ID", "NAME", "KEY", "CREATED"], rows, "No operator keys.");
}

export function keyTable(keys: readonly ListedKey[], nowMs: number): string {
  const headings = ["ID", "NAME", "KIND", "KEY", "STATE", "TODAY USD", "MONTH USD", "LAST USED"];
  const rows = keys.map(({ record, spentTodayNano, spentThisMonthNano, lastUsedAtMs }) => [
    record.id,
    record.name,
    record.kind,
    record.keyPrefix,
    stateOf(record, nowMs),
    usdText(spentTodayNano),
    usdText(spentThisMonthNano),
    lastUsedAtMs === null ? "never" : isoTime(lastUsedAtMs),
  ]);
  return renderTable(headings, rows, "No keys.");
}

function stateOf({ isActive, expiresAtMs }: ApiKeyRecord, nowMs: number): string {
  if (!isActive) return "inactive";
  return expiresAtMs !== null && expiresAtMs <= nowMs ? "expired" : "active";
}
