import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { KeyPeriods } from "../../actors/api-key/state.ts";
import type { OrganizationActors } from "../../actors/organization/actor.ts";
import { type AccountTotals, isSamePayer, type Settlement } from "../../db/ledger/rows.ts";
import type { NanoUsd } from "../lib/money.ts";
import type { Attempted, Payer } from "./engine.ts";
import type { Hold, HoldRequest } from "./interface.ts";
import type { PendingCharge } from "./pending-charge.ts";
import type { Headroom } from "./refusal.ts";

/** What is held, and the limit of output tokens that it covers. */
export type GrantedAmounts = Pick<Hold, "holdNano" | "budgetNano" | "outputTokens">;

/** A hold in memory that has not ended. */
export class SingleNodeHold implements Hold, Attempted {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  holdNano: NanoUsd;
  budgetNano: NanoUsd | undefined;
  readonly feeBasisPoints: bigint;
  readonly outputTokens: number;
  readonly isLowered: boolean;
  readonly admittedAtMs: number;
  attempt: Attempted["attempt"] = "none";
  /** Its charge, on its way. */
  charge: PendingCharge | undefined;

  constructor(
    request: HoldRequest,
    orgAccount: string,
    { day, month }: KeyPeriods,
    { holdNano, budgetNano, outputTokens }: GrantedAmounts,
    admittedAtMs: number,
  ) {
    this.requestId = request.requestId;
    this.organizationId = request.organizationId;
    this.keyId = request.keyId;
    this.orgAccount = orgAccount;
    this.dayAccount = day.accountId;
    this.monthAccount = month.accountId;
    this.holdNano = holdNano;
    this.budgetNano = budgetNano;
    this.feeBasisPoints = request.feeBasisPoints;
    this.outputTokens = outputTokens;
    this.isLowered = outputTokens < request.outputTokens;
    this.admittedAtMs = admittedAtMs;
  }
}

/** The actors of a key and its organization, as one: both in memory and up to date, or waited for. */
export class PayerActors {
  readonly #keys: ApiKeyActors;
  readonly #organizations: OrganizationActors;

  constructor(keys: ApiKeyActors, organizations: OrganizationActors) {
    this.#keys = keys;
    this.#organizations = organizations;
  }

  /** Undefined where both actors are in memory, up to date, and durable. */
  whenSettled(payer: Payer): Promise<void> | undefined {
    const key = this.#keys.get(payer.keyId);
    const organization = this.#organizations.get(payer.organizationId);
    if (isSettled(key) && isSettled(organization)) return undefined;
    return this.#activate(payer);
  }

  async #activate(payer: Payer): Promise<void> {
    const key = this.#keys.get(payer.keyId);
    const organization = this.#organizations.get(payer.organizationId);
    while (!isSettled(key) || !isSettled(organization)) {
      if (!key.isActive) await key.activate();
      if (!organization.isActive) await organization.activate();
      await Promise.allSettled([key.gate, organization.gate]);
    }
  }

  headroom(payer: Payer): Headroom {
    return {
      key: this.#keys.get(payer.keyId).turn("headroom", undefined),
      organization: this.#organizations.get(payer.organizationId).turn("headroom", undefined),
    };
  }

  areLoaded(payer: Payer): boolean {
    return this.#key(payer) !== undefined && this.#organization(payer) !== undefined;
  }

  /**
   * Holds so much of both, in one step. Undefined, with nothing held, where one of them has not so much
   * free, or the key may not be used.
   */
  hold(request: HoldRequest, granted: GrantedAmounts, nowMs: number): SingleNodeHold | undefined {
    const { holdNano, budgetNano = holdNano } = granted;
    const key = this.#key(request);
    const periods = key?.turn("hold", budgetNano);
    if (periods === undefined) return undefined;
    const orgAccount = this.#organization(request)?.turn("hold", holdNano);
    if (orgAccount !== undefined) {
      return new SingleNodeHold(request, orgAccount, periods, granted, nowMs);
    }
    const { day, month } = periods;
    const back = { dayAccount: day.accountId, monthAccount: month.accountId, byNano: -budgetNano };
    key!.turn("changeHeld", back);
    return undefined;
  }

  /** Holds so much more of both for a hold that runs. False, with nothing changed, where it is not free. */
  extend(hold: Hold, byNano: bigint): boolean {
    const { dayAccount, monthAccount } = hold;
    const key = this.#key(hold);
    if (key?.turn("extendHold", { dayAccount, monthAccount, byNano }) !== true) return false;
    if (this.#organization(hold)?.turn("hold", byNano) !== undefined) return true;
    key.turn("changeHeld", { dayAccount, monthAccount, byNano: -byNano });
    return false;
  }

  /** Frees what a hold has held, where an actor that knows of the hold is in memory. */
  release(hold: Hold): void {
    this.#free(hold, hold.holdNano, ofBudget(hold));
  }

  releaseAll(holds: readonly Hold[]): void {
    // Most of a batch has its accounts in common with its neighbour.
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
    }
    if (last !== undefined) this.#free(last, sumNano, budgetNano);
  }

  #free(hold: Hold, nano: bigint, budgetNano: bigint): void {
    const { dayAccount, monthAccount } = hold;
    this.#organization(hold)?.turn("changeHeld", { byNano: -nano });
    this.#key(hold)?.turn("changeHeld", { dayAccount, monthAccount, byNano: -budgetNano });
  }

  /** Notes what a durable batch has spent. */
  notePosted(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void {
    // A key's day stands for its month and its organization: most of a batch has them in common.
    let last: Settlement | undefined;
    for (const settlement of settlements) {
      if (last?.dayAccount === settlement.dayAccount) continue;
      last = settlement;
      const organizationTotals = totals.get(settlement.orgAccount);
      if (organizationTotals) {
        this.#organization(settlement)?.turn("noteTotals", organizationTotals);
      }
      this.#key(settlement)?.turn("notePosted", totals);
    }
  }

  /** What is known of them is out of date. */
  forget({ keyId, organizationId }: Payer): void {
    this.#keys.forget(keyId);
    this.#organizations.forget(organizationId);
  }

  /** Undefined where the actor is not in memory: one that knows of a hold always is. */
  #key({ keyId }: Payer) {
    const key = this.#keys.peek(keyId);
    return key?.isLoaded === true ? key : undefined;
  }

  #organization({ organizationId }: Payer) {
    const organization = this.#organizations.peek(organizationId);
    return organization?.isLoaded === true ? organization : undefined;
  }
}

function ofBudget({ holdNano, budgetNano = holdNano }: Hold): bigint {
  return budgetNano;
}

/** In memory, and nothing of it waiting to become durable. */
function isSettled(cell: { readonly isActive: boolean; readonly gate: unknown }): boolean {
  return cell.isActive && cell.gate === undefined;
}
