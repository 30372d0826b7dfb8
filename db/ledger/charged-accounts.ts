import type { Settlement } from "./rows.ts";

export interface ChargedAccount {
  readonly id: string;
  readonly kind: "org" | "day" | "month";
  /** A settlement that touches it. */
  readonly of: Settlement;
  chargeNano: bigint;
  /** Transactions that it gets; 0 for the periods of keys. */
  count: number;
}

/**
 * The accounts that settlements touch, each once, with what is charged to them by those of the settlements
 * that are due.
 */
export function chargedAccounts(
  settlements: readonly Settlement[],
  due: readonly Settlement[],
): ChargedAccount[] {
  const accounts = new Map<string, ChargedAccount>();
  // Most of a batch has its accounts in common with its neighbour.
  let last: Settlement | undefined;
  let touched: readonly ChargedAccount[] = [];
  const accountsOf = (settlement: Settlement): readonly ChargedAccount[] => {
    if (last === undefined || !isSamePayer(last, settlement)) {
      const { orgAccount, dayAccount, monthAccount } = settlement;
      last = settlement;
      touched = [
        account(accounts, orgAccount, "org", settlement),
        account(accounts, dayAccount, "day", settlement),
        account(accounts, monthAccount, "month", settlement),
      ];
    }
    return touched;
  };
  if (due !== settlements) for (const settlement of settlements) accountsOf(settlement);
  for (const settlement of due) {
    for (const one of accountsOf(settlement)) one.chargeNano += settlement.chargeNano;
    touched[0]!.count++;
  }
  return [...accounts.values()];
}

/** Whether two touch the same accounts. */
export function isSamePayer(one: Settlement, other: Settlement): boolean {
  return (
    one.dayAccount === other.dayAccount &&
    one.monthAccount === other.monthAccount &&
    one.orgAccount === other.orgAccount
  );
}

function account(
  accounts: Map<string, ChargedAccount>,
  id: string,
  kind: ChargedAccount["kind"],
  of: Settlement,
): ChargedAccount {
  let found = accounts.get(id);
  if (found === undefined) {
    found = { id, kind, of, chargeNano: 0n, count: 0 };
    accounts.set(id, found);
  }
  return found;
}
