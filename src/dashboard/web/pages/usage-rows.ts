/** A row in the answer of GET /v1/usage. */
export interface UsageRow {
  readonly date: string;
  readonly model?: string | null;
  readonly key_id?: string | null;
  readonly provider?: string | null;
  readonly team_id?: string | null;
  readonly member_id?: string | null;
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
  ["team", "Team"],
  ["member", "Member"],
  ["user", "User"],
  ["tag", "Tag"],
] as const;
export type Group = (typeof GROUPS)[number][0];
const NAMES = {
  model: "model",
  key: "key_id",
  provider: "provider",
  team: "team_id",
  member: "member_id",
  user: "user",
  tag: "tag",
} as const;

/** Maximum number of rows in one answer of the API. */
export const MAX_ROWS = 1_000;

/** The answer of GET /v1/usage. */
export interface UsagePart {
  readonly data: UsageRow[];
  readonly has_more: boolean;
  readonly is_complete: boolean;
}

type NameOfId = (id: string | null | undefined) => string;

/** The names of keys, and those of teams and members. */
interface Names {
  readonly keyName: NameOfId;
  readonly ownerName: NameOfId;
}

export function nameOf(row: UsageRow, group: Group, { keyName, ownerName }: Names): string {
  if (group === "key") return keyName(row.key_id);
  if (group === "team" || group === "member") return ownerName(row[NAMES[group]]);
  return group === "" ? "Total" : (row[NAMES[group]] ?? "None");
}

/** Returns the value that distinguishes the rows of one interval. */
export function groupValue(row: UsageRow, group: Group): string {
  return group === "" ? "" : (row[NAMES[group]] ?? "");
}
