import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { Periods } from "../../../actors/budget-periods/state.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../../../actors/subject-budget/actor.ts";
import {
  type AccountTotals,
  budgetOfAccount,
  isSamePayer,
  type Settlement,
} from "../../../db/ledger/rows.ts";
import type { NanoUsd } from "../../lib/money.ts";
import type { Attempted, Payer } from "./engine.ts";
import type { Headroom } from "./headroom.ts";
import type { BudgetSubject, Hold, HoldRequest } from "./interface.ts";
import type { PendingCharge } from "./pending-charge.ts";

/** The granted amounts, and the output token limit that they cover. */
export type GrantedAmounts = Pick<Hold, "holdNano" | "budgetNano" | "outputTokens">;

/** An open hold in memory. */
export class SingleNodeHold implements Hold, Attempted {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly subjectAccounts: readonly string[] | undefined;
  holdNano: NanoUsd;
  budgetNano: NanoUsd | undefined;
  readonly feeBasisPoints: bigint;
  readonly outputTokens: number;
  readonly isLowered: boolean;
  readonly admittedAtMs: number;
  attempt: Attempted["attempt"] = "none";
  /** Charge of the hold, while the charge is being posted. */
  charge: PendingCharge | undefined;

  constructor(
    request: HoldRequest,
    orgAccount: string,
    { day, month }: Periods,
    subjectAccounts: readonly string[] | undefined,
    { holdNano, budgetNano, outputTokens }: GrantedAmounts,
    admittedAtMs: number,
  ) {
    this.requestId = request.requestId;
    this.organizationId = request.organizationId;
    this.keyId = request.keyId;
    this.orgAccount = orgAccount;
    this.dayAccount = day.accountId;
    this.monthAccount = month.accountId;
    this.subjectAccounts = subjectAccounts;
    this.holdNano = holdNano;
    this.budgetNano = budgetNano;
    this.feeBasisPoints = request.feeBasisPoints;
    this.outputTokens = outputTokens;
    this.isLowered = outputTokens < request.outputTokens;
    this.admittedAtMs = admittedAtMs;
  }
}

/** The spenders of a request, by the ids of their actors. */
type Spending = Pick<HoldRequest, "keyId" | "organizationId" | "subjects">;

/**
 * The actors of a key, its organization and its subjects, as one. The caller waits until all are in memory and up
 * to date.
 */
export class PayerActors {
  readonly #keys: ApiKeyActors;
  readonly #organizations: OrganizationActors;
  readonly #subjectBudgets: SubjectBudgetActors;

  constructor(
    keys: ApiKeyActors,
    organizations: OrganizationActors,
    subjectBudgets: SubjectBudgetActors,
  ) {
    this.#keys = keys;
    this.#organizations = organizations;
    this.#subjectBudgets = subjectBudgets;
  }

  /**
   * Returns undefined if all of these actors are in memory, up to date and durable, otherwise a promise of that.
   */
  whenSettled(payer: Payer & Spending): Promise<void> | undefined {
    const key = this.#keys.get(payer.keyId);
    const organization = this.#organizations.get(payer.organizationId);
    const isOthersSettled = payer.subjects === undefined && payer.subjectAccounts === undefined;
    if (isSettled(key) && isSettled(organization) && isOthersSettled) return undefined;
    const subjects = budgetsOf(payer).map((id) => this.#subjectBudgets.get(id));
    const all = [key, organization, ...subjects];
    return all.every(isSettled) ? undefined : activate(all);
  }

  headroom(request: Spending): Headroom {
    return {
      key: this.#keys.get(request.keyId).turn("headroom", undefined),
      organization: this.#organizations.get(request.organizationId).turn("headroom", undefined),
      subjects: (request.subjects ?? []).map((subject) => ({
        subject,
        limits: this.#subjectBudgets.get(subject.budgetId).turn("headroom", undefined).limits,
      })),
    };
  }

  /**
   * Holds the amounts for all of them in one step. Returns undefined, and holds nothing, if one of them has too
   * little available or the key is not valid.
   */
  hold(request: HoldRequest, granted: GrantedAmounts, nowMs: number): SingleNodeHold | undefined {
    const { holdNano, budgetNano = holdNano } = granted;
    const key = this.#key(request);
    const periods = key?.turn("hold", budgetNano);
    if (periods === undefined) return undefined;
    const { day, month } = periods;
    const back = { dayAccount: day.accountId, monthAccount: month.accountId, byNano: -budgetNano };
    let subjectAccounts: readonly string[] | undefined;
    if (request.subjects !== undefined) {
      subjectAccounts = this.#holdSubjects(request.subjects, budgetNano);
      if (subjectAccounts === undefined) {
        key!.turn("changeHeld", back);
        return undefined;
      }
    }
    const orgAccount = this.#organization(request)?.turn("hold", holdNano);
    if (orgAccount !== undefined) {
      return new SingleNodeHold(request, orgAccount, periods, subjectAccounts, granted, nowMs);
    }
    key!.turn("changeHeld", back);
    if (subjectAccounts !== undefined) this.#changeSubjects(subjectAccounts, -budgetNano);
    return undefined;
  }

  /**
   * Holds for all subjects and returns their accounts. Returns undefined, and holds nothing, if one has too
   * little available.
   */
  #holdSubjects(subjects: readonly BudgetSubject[], nano: bigint): readonly string[] | undefined {
    const accounts: string[] = [];
    for (const { budgetId } of subjects) {
      const periods = this.#subjectBudget(budgetId)?.turn("hold", nano);
      if (periods === undefined) {
        this.#changeSubjects(accounts, -nano);
        return undefined;
      }
      accounts.push(periods.day.accountId, periods.month.accountId);
    }
    return accounts;
  }

  #changeSubjects(accounts: readonly string[], byNano: bigint): void {
    for (const [dayAccount, monthAccount] of inPairs(accounts)) {
      const change = { dayAccount, monthAccount, byNano };
      this.#subjectBudget(budgetOfAccount(dayAccount))?.turn("changeHeld", change);
    }
  }

  /** Extends an open hold for all of them. Returns false, and changes nothing, if too little is available. */
  extend(hold: Hold, byNano: bigint): boolean {
    const { dayAccount, monthAccount, subjectAccounts = [] } = hold;
    const key = this.#key(hold);
    if (key?.turn("extendHold", { dayAccount, monthAccount, byNano }) !== true) return false;
    const extended = this.#extendSubjects(subjectAccounts, byNano);
    if (extended === subjectAccounts.length) {
      if (this.#organization(hold)?.turn("hold", byNano) !== undefined) return true;
    }
    key.turn("changeHeld", { dayAccount, monthAccount, byNano: -byNano });
    this.#changeSubjects(subjectAccounts.slice(0, extended), -byNano);
    return false;
  }

  /** Returns the number of accounts that were extended. */
  #extendSubjects(accounts: readonly string[], byNano: bigint): number {
    let extended = 0;
    for (const [dayAccount, monthAccount] of inPairs(accounts)) {
      const budget = this.#subjectBudget(budgetOfAccount(dayAccount));
      if (budget?.turn("extendHold", { dayAccount, monthAccount, byNano }) !== true) break;
      extended += 2;
    }
    return extended;
  }

  /** Releases a hold, if an actor that has it is in memory. */
  release(hold: Hold): void {
    this.releaseAll([hold]);
  }

  releaseAll(holds: readonly Hold[]): void {
    // Holds next to each other in a batch mostly share their accounts.
    let last: Hold | undefined;
    let sumNano = 0n;
    let budgetNano = 0n;
    for (const hold of holds) {
      if (last !== undefined && !isSamePayer(last, hold)) {
        this.#free(last, sumNano, budgetNano);
        sumNano = 0n;
        budgetNano = 0n;
      }
      last = hold;
      sumNano += hold.holdNano;
      budgetNano += ofBudget(hold);
      if (hold.subjectAccounts !== undefined) {
        this.#changeSubjects(hold.subjectAccounts, -ofBudget(hold));
      }
    }
    if (last !== undefined) this.#free(last, sumNano, budgetNano);
  }

  #free(hold: Hold, nano: bigint, budgetNano: bigint): void {
    const { dayAccount, monthAccount } = hold;
    this.#organization(hold)?.turn("changeHeld", { byNano: -nano });
    this.#key(hold)?.turn("changeHeld", { dayAccount, monthAccount, byNano: -budgetNano });
  }

  /** Records the spend of a durable batch. */
  notePosted(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void {
    // If the day of a key is equal, its month and organization are too. Settlements next to each other mostly
    // share them.
    let last: Settlement | undefined;
    for (const settlement of settlements) {
      if (settlement.subjectAccounts !== undefined) {
        for (const id of budgetsOf(settlement)) {
          this.#subjectBudget(id)?.turn("notePosted", totals);
        }
      }
      if (last?.dayAccount === settlement.dayAccount) continue;
      last = settlement;
      const organizationTotals = totals.get(settlement.orgAccount);
      if (organizationTotals) {
        this.#organization(settlement)?.turn("noteTotals", organizationTotals);
      }
      this.#key(settlement)?.turn("notePosted", totals);
    }
  }

  /** Marks the actors of a payer as outdated. */
  forget(payer: Payer): void {
    this.#keys.forget(payer.keyId);
    this.#organizations.forget(payer.organizationId);
    for (const id of budgetsOf(payer)) this.#subjectBudgets.forget(id);
  }

  /** Returns undefined if the actor is not in memory. An actor with a hold always is. */
  #key({ keyId }: Pick<Payer, "keyId">) {
    const key = this.#keys.peek(keyId);
    return key?.isLoaded === true ? key : undefined;
  }

  #organization({ organizationId }: Pick<Payer, "organizationId">) {
    const organization = this.#organizations.peek(organizationId);
    return organization?.isLoaded === true ? organization : undefined;
  }

  #subjectBudget(id: string) {
    const budget = this.#subjectBudgets.peek(id);
    return budget?.isLoaded === true ? budget : undefined;
  }
}

/** Returns the budget ids of a request or of its hold. */
function budgetsOf({
  subjects,
  subjectAccounts = [],
}: Pick<Payer & Spending, "subjects" | "subjectAccounts">): string[] {
  if (subjects !== undefined) return subjects.map(({ budgetId }) => budgetId);
  return inPairs(subjectAccounts).map(([dayAccount]) => budgetOfAccount(dayAccount));
}

/** Returns the accounts as pairs of day and month for each budget. */
function inPairs(accounts: readonly string[]): [day: string, month: string][] {
  return Array.from({ length: accounts.length / 2 }, (_, at) => [
    accounts[2 * at]!,
    accounts[2 * at + 1]!,
  ]);
}

function ofBudget({ holdNano, budgetNano = holdNano }: Hold): bigint {
  return budgetNano;
}

interface Settling {
  readonly isActive: boolean;
  readonly gate: Promise<void> | undefined;
  activate(): Promise<void>;
}

async function activate(cells: readonly Settling[]): Promise<void> {
  while (!cells.every(isSettled)) {
    for (const cell of cells) if (!cell.isActive) await cell.activate();
    await Promise.allSettled(cells.map(({ gate }) => gate));
  }
}

/** Returns true if the actor is in memory and has no unfinished commit. */
function isSettled(cell: Pick<Settling, "isActive" | "gate">): boolean {
  return cell.isActive && cell.gate === undefined;
}
