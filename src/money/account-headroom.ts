import type { KeyHeadroom, PeriodHeadroom } from "../../actors/api-key/state.ts";
import { UNLIMITED_NANO } from "../../actors/organization/state.ts";
import type { AccountHeadroom, HoldDemand, HoldVerdict } from "../../db/ledger/rows.ts";
import type { Headroom } from "./refusal.ts";

const UNLIMITED = { unspentNano: UNLIMITED_NANO, freeNano: UNLIMITED_NANO };

/** What the database saw when it refused a hold, as the refusal is worked out from it. */
export function headroomOf(
  demand: HoldDemand,
  verdict: Extract<HoldVerdict, { kind: "short" }>,
): Headroom {
  const { organization, day, month } = verdict;
  const limits: PeriodHeadroom[] = [];
  if (day) limits.push(periodHeadroom("day", demand.dayAccount, day));
  if (month) limits.push(periodHeadroom("month", demand.monthAccount, month));
  return {
    key: keyHeadroom(demand, true, limits),
    organization: organization ?? UNLIMITED,
  };
}

/** The same where the key does not count any more. */
export function revokedHeadroom(demand: HoldDemand, isActive: false | undefined): Headroom {
  return {
    key: keyHeadroom(demand, isActive, []),
    organization: { unspentNano: 0n, freeNano: 0n },
  };
}

function keyHeadroom(
  { dayAccount, monthAccount }: HoldDemand,
  isActive: boolean | undefined,
  limits: readonly PeriodHeadroom[],
): KeyHeadroom {
  return { isActive, dayAccount, monthAccount, limits };
}

function periodHeadroom(
  kind: "day" | "month",
  accountId: string,
  room: AccountHeadroom,
): PeriodHeadroom {
  return {
    accountId,
    kind,
    periodStart: accountId.slice(accountId.lastIndexOf(":") + 1),
    budgetNano: room.limitNano,
    unspentNano: room.unspentNano,
    freeNano: room.freeNano,
  };
}
