import { isServerUnable } from "../../db/client.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { Checkpoint, Settlement } from "../../db/ledger/rows.ts";
import { type Abandonment, NONE, type Unit } from "../../db/ledger/units.ts";
import type { Expiring } from "../lib/deadlines.ts";
import type { SettleDeadline } from "./settle-deadline.ts";

/** Receives how a charge has ended. */
export interface ChargeOwner {
  /** It is durable. */
  charged(settlement: Settlement): void;
  /** Nothing was posted. */
  notCharged(settlement: Settlement): void;
  /** Nothing was posted yet, because the database cannot write at the moment: it is to be posted again. */
  postLater(charge: PendingCharge): void;
}

/**
 * A charge on its way into the ledger, and its waiter: without a deadline if something was delivered,
 * because that has to be charged, however long it takes; the rest can still be given up.
 */
export class PendingCharge implements Unit, Abandonment, Expiring {
  readonly settlement: Settlement;
  readonly settlements: readonly Settlement[];
  readonly statements: readonly StatementEffect[];
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  isAbandoned = false;
  readonly #owner: ChargeOwner;
  readonly #settleDeadline: SettleDeadline | undefined;
  readonly #settled = Promise.withResolvers<void>();

  constructor(
    owner: ChargeOwner,
    patience: SettleDeadline,
    settlement: Settlement,
    also: StatementEffect | undefined,
  ) {
    this.#owner = owner;
    this.settlement = settlement;
    this.settlements = [settlement];
    this.statements = also === undefined ? NONE : [also];
    this.#settleDeadline = settlement.hasAttempt ? undefined : patience;
    this.#settleDeadline?.watch(this);
  }

  /** Resolves when it is durable. Rejects where nothing was posted, and where it was given up. */
  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  /** Where the answer is not kept for a later call. */
  get isOwedBack(): boolean {
    return this.statements[0]?.keepsAnswer === undefined;
  }

  get abandonment(): Abandonment {
    return this;
  }

  get checkpoints(): readonly Checkpoint[] {
    return NONE;
  }

  get releases(): readonly never[] {
    return NONE;
  }

  resolve(): void {
    this.#settled.resolve();
    this.#settleDeadline?.end(this);
    this.#owner.charged(this.settlement);
  }

  /** What was delivered is charged as soon as that can be done; the rest has failed. */
  reject(error: unknown): void {
    if (this.settlement.hasAttempt && isServerUnable(error)) this.#owner.postLater(this);
    else this.fail(error);
  }

  /** Nothing was posted, and nothing will be. */
  fail(error: unknown): void {
    this.#settled.reject(error);
    this.#owner.notCharged(this.settlement);
    this.#settleDeadline?.endUnposted(this);
  }

  expire(): void {
    this.isAbandoned = true;
    this.#settled.reject(this.#settleDeadline!.giveUp(this));
  }
}
