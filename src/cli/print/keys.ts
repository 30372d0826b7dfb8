import type { ListedKey } from "../../../db/queries/key-read.ts";
import type { OperatorKey } from "../../../db/queries/operator-keys.ts";
import { type ApiKeyRecord, scopeNames } from "../../lib/api-key-record.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { usdText } from "../../lib/money.ts";
import { renderFields, renderTable } from "./table.ts";

export function createdKeyText(record: ApiKeyRecord, secret: string): string {
  const fields = renderFields([
    ["Name", record.name],
    ["Id", record.id],
    ["Kind", record.kind],
    ["Scopes", scopeNames(record).join(", ")],
    ["Key", secret],
  ]);
  return `${fields}The key is shown this once.\n`;
}

export function createdOperatorKeyText(key: OperatorKey, secret: string): string {
  const fields = renderFields([
    ["Name", key.name],
    ["Id", key.id],
    ["Kind", "operator"],
    ["Key", secret],
  ]);
  return `${fields}The key is shown this once.\n`;
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
