import { type ExactInteger, exact, plus } from "../../src/lib/exact-integer.ts";
import type { RequestAccounts, Settlement } from "./rows.ts";

export interface ChargedAccount {
  readonly id: string;
  readonly kind: "org" | "day" | "month";
  /** Its place in the batch, from 1. */
  readonly place: number;
  /** A settlement that touches it. */
  readonly of: Settlement;
  chargeNano: ExactInteger;
  /** Transactions that it gets; 0 for the periods of keys. */
  count: number;
}

/**
 * The accounts that settlements touch, each once, with what is charged to them by those of the settlements
 * that are due.
 */
export class ChargedAccounts {
  readonly list: ChargedAccount[] = [];
  readonly #byId = new Map<string, ChargedAccount>();

  constructor(settlements: readonly Settlement[], due: readonly Settlement[]) {
    if (due !== settlements) for (const settlement of settlements) this.#touch(settlement);
    // Most of a batch has its accounts in common with its neighbour.
    let last: Settlement | undefined;
    let chargeNano: ExactInteger = 0;
    let count = 0;
    for (const settlement of due) {
      if (last !== undefined && !isSamePayer(last, settlement)) {
        this.#charge(last, chargeNano, count);
        chargeNano = 0;
        count = 0;
      }
      last = settlement;
      chargeNano = plus(chargeNano, exact(settlement.chargeNano));
      count++;
    }
    if (last !== undefined) this.#charge(last, chargeNano, count);
  }

  placeOf(id: string): number {
    return this.#byId.get(id)!.place;
  }

  #touch(settlement: Settlement): void {
    this.#account(settlement.orgAccount, "org", settlement);
    this.#account(settlement.dayAccount, "day", settlement);
    this.#account(settlement.monthAccount, "month", settlement);
  }

  #charge(settlement: Settlement, chargeNano: ExactInteger, count: number): void {
    const organization = this.#account(settlement.orgAccount, "org", settlement);
    const day = this.#account(settlement.dayAccount, "day", settlement);
    const month = this.#account(settlement.monthAccount, "month", settlement);
    organization.chargeNano = plus(organization.chargeNano, chargeNano);
    organization.count += count;
    day.chargeNano = plus(day.chargeNano, chargeNano);
    month.chargeNano = plus(month.chargeNano, chargeNano);
  }

  #account(id: string, kind: ChargedAccount["kind"], of: Settlement): ChargedAccount {
    let account = this.#byId.get(id);
    if (account === undefined) {
      account = { id, kind, place: this.list.length + 1, of, chargeNano: 0, count: 0 };
      this.list.push(account);
      this.#byId.set(id, account);
    }
    return account;
  }
}

/** Whether two touch the same accounts. */
export function isSamePayer(one: RequestAccounts, other: RequestAccounts): boolean {
  return (
    one.dayAccount === other.dayAccount &&
    one.monthAccount === other.monthAccount &&
    one.orgAccount === other.orgAccount
  );
}
