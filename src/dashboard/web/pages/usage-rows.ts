import { integer, short, usd, usdExact } from "../format.ts";

/** UsageSums of a row, and sums of them. */
export interface UsageSums {
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cached_tokens: number;
  readonly cost_usd: number;
}

/** A row in the answer of GET /v1/usage. */
export interface UsageRow extends UsageSums {
  readonly date: string;
  readonly model?: string | null;
  readonly key_id?: string | null;
  readonly provider?: string | null;
  readonly team_id?: string | null;
  readonly member_id?: string | null;
  readonly user?: string | null;
  readonly tag?: string | null;
  /** True for the sum of all names that have no rows. */
  readonly is_rest?: boolean;
}

/** The answer of GET /v1/usage. */
export interface UsagePart {
  readonly data: UsageRow[];
  readonly has_more: boolean;
  readonly is_complete: boolean;
}

/** Maximum number of rows in one answer of the API. */
export const MAX_ROWS = 1_000;

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
/** Groups by which the list of requests has no filter. */
const UNFILTERED: readonly Group[] = ["provider", "tag"];
/** The name of the sum of users or tags of a day that are too many to list. */
const OTHERS = "other";

/** Returns the name of the row in its group. Null if its requests have none, undefined for the sum of others. */
export function idOf(row: UsageRow, group: Group): string | null | undefined {
  if (group === "") return null;
  const id = row[NAMES[group]] ?? null;
  const isRest = row.is_rest === true || ((group === "user" || group === "tag") && id === OTHERS);
  return isRest ? undefined : id;
}

type NameOfId = (id: string | null | undefined) => string;

/** The names of keys, and those of teams and members. */
interface Names {
  readonly keyName: NameOfId;
  readonly ownerName: NameOfId;
}

export function labelOf(id: string | null, group: Group, { keyName, ownerName }: Names): string {
  if (group === "key") return keyName(id);
  if (group === "team" || group === "member") return ownerName(id);
  if (group === "model") return id ?? "Unknown model";
  return group === "" ? "Total" : (id ?? "None");
}

/** Returns the query of the page Requests for a name. Returns undefined if the page cannot filter by it. */
export function requestsOf(group: Group, id: string | null): Record<string, string> | undefined {
  if (group === "") return {};
  return id === null || UNFILTERED.includes(group) ? undefined : { [NAMES[group]]: id };
}

/** Filter of the page Requests for requests that count as errors. */
export const ERROR_FILTER = { min_status: "400" };

export interface Metric {
  readonly title: string;
  /** Unit of the values, for the axis. */
  readonly unit: string;
  /** The figure by which the API ranks names. */
  readonly rankedBy: string;
  valueOf(sums: UsageSums): number;
  format(value: number): string;
  formatTick(value: number): string;
}

const count = { format: integer, formatTick: short };

/** The figures that the page Usage can show, the first by default. */
export const METRICS = {
  spend: {
    ...{ title: "Spend", unit: "USD", rankedBy: "cost_usd", format: usd, formatTick: usdExact },
    valueOf: ({ cost_usd: cost }) => cost,
  },
  requests: {
    ...{ title: "Requests", unit: "requests", rankedBy: "requests", ...count },
    valueOf: ({ requests }) => requests,
  },
  tokens: {
    ...{ title: "Tokens", unit: "tokens", rankedBy: "tokens", ...count, format: short },
    valueOf: (row) => row.prompt_tokens + row.completion_tokens,
  },
  errors: {
    ...{ title: "Errors", unit: "errors", rankedBy: "errors", ...count },
    valueOf: ({ errors }) => errors,
  },
} as const satisfies Record<string, Metric>;
export type MetricName = keyof typeof METRICS;

const NOTHING: UsageSums = {
  ...{ requests: 0, errors: 0, prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 },
  cost_usd: 0,
};

export function sumOf(rows: readonly UsageSums[]): UsageSums {
  const sum = (all: UsageSums, row: UsageSums): UsageSums => ({
    requests: all.requests + row.requests,
    errors: all.errors + row.errors,
    prompt_tokens: all.prompt_tokens + row.prompt_tokens,
    completion_tokens: all.completion_tokens + row.completion_tokens,
    cached_tokens: all.cached_tokens + row.cached_tokens,
    cost_usd: all.cost_usd + row.cost_usd,
  });
  return rows.reduce(sum, NOTHING);
}

/** A name with its sums. The name is undefined for the sum of all others. */
export interface NameSum extends UsageSums {
  readonly id: string | null | undefined;
}

/** Returns the sums by name, over all intervals. */
export function sumsByName(rows: readonly UsageRow[], group: Group): NameSum[] {
  const byName = new Map<string | null | undefined, UsageRow[]>();
  for (const row of rows) {
    const ofName = byName.get(idOf(row, group));
    if (ofName === undefined) byName.set(idOf(row, group), [row]);
    else ofName.push(row);
  }
  return [...byName].map(([id, ofName]) => ({ id, ...sumOf(ofName) }));
}

/** Formats a sum of charges. A dash says that nothing was charged, for example for your own provider keys. */
export function spendText({ cost_usd: cost }: UsageSums): string {
  return cost === 0 ? "—" : usd(cost);
}
