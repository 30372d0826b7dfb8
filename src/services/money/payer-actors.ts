import type { AccountTotals, Settlement } from "../../../db/ledger/rows.ts";
import type { ApiKeyActors, OrganizationActors } from "./alone.ts";
import type { Hold } from "./interface.ts";
import type { Headroom } from "./refusal.ts";

/** Who pays for a request. */
interface Payer {
  readonly keyId: string;
  readonly organizationId: string;
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

  /** Adds to (or, negative, takes from) what is held, where an actor that knows of the hold is in memory. */
  changeHeld(hold: Hold, byNano: bigint): void {
    const { dayAccount, monthAccount } = hold;
    this.#organization(hold)?.turn("changeHeld", { byNano });
    this.#key(hold)?.turn("changeHeld", { dayAccount, monthAccount, byNano });
  }

  /** Notes what a durable batch has spent. */
  notePosted(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void {
    const noted = new Set<string>();
    for (const settlement of settlements) {
      // A key's day stands for its month and its organization: most of a batch has them in common.
      if (noted.has(settlement.dayAccount)) continue;
      noted.add(settlement.dayAccount);
      const organizationTotals = totals.get(settlement.orgAccount);
      if (organizationTotals) {
        this.#organization(settlement)?.turn("noteTotals", organizationTotals);
      }
      const key = this.#key(settlement);
      for (const accountId of [settlement.dayAccount, settlement.monthAccount]) {
        const account = totals.get(accountId);
        if (account === undefined) continue;
        const { postedNano, sequence: refunds } = account;
        key?.turn("notePosted", { accountId, postedNano, refunds });
      }
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

/** In memory, and nothing of it waiting to become durable. */
function isSettled(cell: { readonly isActive: boolean; readonly gate: unknown }): boolean {
  return cell.isActive && cell.gate === undefined;
}
