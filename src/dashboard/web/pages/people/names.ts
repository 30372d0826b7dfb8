import type { Role, TeamRole } from "../../../../lib/roles.ts";
import { session } from "../../api.ts";
import { type Resource, useResource } from "../../resource.ts";
import { isSelfOnly, mayRead } from "../../rights.ts";

/** A member in the answer of GET /v1/members. */
export interface Member {
  readonly id: string;
  readonly email: string;
  readonly name: string;
  readonly role: Role;
  readonly teams: readonly { readonly id: string; readonly role: TeamRole }[];
  readonly daily_budget_usd: number | null;
  readonly monthly_budget_usd: number | null;
  readonly is_active: boolean;
  readonly last_sign_in_at: string | null;
  readonly created_at: string;
}

/** A team in the answer of GET /v1/teams. */
export interface Team {
  readonly id: string;
  readonly name: string;
  readonly daily_budget_usd: number | null;
  readonly monthly_budget_usd: number | null;
  readonly rate_limit_rpm: number | null;
  readonly rate_limit_tpm: number | null;
  readonly allowed_models: readonly string[] | null;
  readonly guardrail: string | null;
  readonly preset: string | null;
  readonly key_policy: {
    readonly max_keys_per_member: number | null;
    readonly max_daily_budget_usd: number | null;
    readonly max_lifetime_days: number | null;
  };
  readonly usage_today_usd: number;
  readonly usage_month_usd: number;
}

export interface List<Item> {
  readonly data: readonly Item[];
  readonly total: number;
}

/** The longest list that the API returns. */
const MAX_LISTED = 1_000;

function mayList(): boolean {
  return !isSelfOnly() && mayRead("keys:manage");
}

/** Returns a function from the id of a team or a member to its name. For others it returns the id. */
export function useOwnerNames(): (id: string | null | undefined) => string {
  const [teams, members] = [useTeams().data?.data ?? [], useMembers().data?.data ?? []];
  return (id) => {
    if (!id) return "None";
    return [...teams, ...members].find((one) => one.id === id)?.name ?? id;
  };
}

/** Returns the organization's members, the first 1,000 by address. Loads nothing for a role that cannot see them. */
export function useMembers(): Resource<List<Member>> {
  return useResource(mayList() ? `v1/members?limit=${MAX_LISTED}` : undefined);
}

/** Returns the organization's newest 1,000 teams. Loads nothing for a role that cannot see them. */
export function useTeams(isLive = false): Resource<List<Team>> {
  return useResource(mayList() ? `v1/teams?limit=${MAX_LISTED}` : undefined, isLive);
}

/** Returns the teams that keys of the session can belong to. Self-only members use their teams. */
export function useKeyTeams(): readonly { readonly id: string; readonly name: string }[] {
  const { data } = useTeams();
  return isSelfOnly() ? (session.value?.person?.teams ?? []) : (data?.data ?? []);
}
