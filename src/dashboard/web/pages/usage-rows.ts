/** A sum as GET /v1/usage lists it. */
export interface UsageRow {
  readonly date: string;
  readonly model?: string | null;
  readonly key_id?: string | null;
  readonly provider?: string | null;
  readonly user?: string | null;
  readonly tag?: string | null;
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cached_tokens: number;
  readonly cost_usd: number;
}

export const GROUPS = [
  ["", "Total"],
  ["model", "Model"],
  ["key", "Key"],
  ["provider", "Provider"],
  ["user", "User"],
  ["tag", "Tag"],
] as const;
export type Group = (typeof GROUPS)[number][0];
const NAMES = {
  model: "model",
  key: "key_id",
  provider: "provider",
  user: "user",
  tag: "tag",
} as const;

/** What one answer of the API holds at most. */
export const MAX_ROWS = 1_000;

/** What GET /v1/usage answers. */
export interface UsagePart {
  readonly data: UsageRow[];
  readonly has_more: boolean;
  readonly is_complete: boolean;
}

export function nameOf(
  row: UsageRow,
  group: Group,
  keyName: (id: string | null | undefined) => string,
): string {
  if (group === "key") return keyName(row.key_id);
  return group === "" ? "Total" : (row[NAMES[group]] ?? "None");
}

/** What tells the rows of a time apart. */
export function groupValue(row: UsageRow, group: Group): string {
  return group === "" ? "" : (row[NAMES[group]] ?? "");
}
