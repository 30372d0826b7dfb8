import { isServerUnable } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { Checkpoint, LedgerRequest, Settlement } from "../../../db/ledger/rows.ts";
import { type CancellationToken, NONE, type Unit } from "../../../db/ledger/units.ts";
import type { Clock } from "../../lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../../lib/deadlines.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { NanoUsd } from "../../lib/money.ts";
import type { ChargeFigures, Hold, SettlementFigures } from "./interface.ts";
import type { UndeliveredChargeJournal } from "./undelivered-charge-journal.ts";

/**
 * Longest wait of an answer for its charge, and of a request for its hold, in milliseconds. After it they fail.
 */
const MAX_SETTLE_WAIT_MS = 1_800;

/** Receives the outcome of a charge. */
export interface ChargeOwner {
  /** Called when the charge is durable. */
  charged(settlement: Settlement): void;
  /** Called when nothing was posted. */
  notCharged(settlement: Settlement): void;
  /** Called when the database cannot write now, so that the charge must be posted again. */
  postAfterDelay(charge: PendingCharge): void;
}

/**
 * A charge that is being posted, and its caller. If output was delivered, the charge has no deadline, because it
 * must be posted however long it takes. Other charges can be given up.
 */
export class PendingCharge implements Unit, CancellationToken, Expiring {
  readonly settlement: Settlement;
  readonly settlements: readonly Settlement[];
  readonly statements: readonly StatementEffect[];
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  isCancelled = false;
  readonly #owner: ChargeOwner;
  readonly #settleDeadline: SettleDeadline | undefined;
  readonly #settled = Promise.withResolvers<void>();

  constructor(
    owner: ChargeOwner,
    deadline: SettleDeadline,
    settlement: Settlement,
    also: StatementEffect | undefined,
  ) {
    this.#owner = owner;
    this.settlement = settlement;
    this.settlements = [settlement];
    this.statements = also === undefined ? NONE : [also];
    this.#settleDeadline = settlement.hasAttempt ? undefined : deadline;
    this.#settleDeadline?.watch(this);
  }

  /** Resolves when the charge is durable. Rejects if nothing was posted, or if the charge was given up. */
  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  /** True if the answer is not stored for a later call. */
  get isOwedBack(): boolean {
    return this.statements[0]?.storesAnswer === undefined;
  }

  get abandonment(): CancellationToken {
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

  /** Retries the charge of delivered output until it is posted. Fails other charges. */
  reject(error: unknown): void {
    if (this.settlement.hasAttempt && isServerUnable(error)) this.#owner.postAfterDelay(this);
    else this.fail(error);
  }

  /** Ends a charge that was not posted and never will be. */
  fail(error: unknown): void {
    this.#settled.reject(error);
    this.#owner.notCharged(this.settlement);
    this.#settleDeadline?.endUnposted(this);
  }

  expire(): void {
    this.isCancelled = true;
    this.#settled.reject(this.#settleDeadline!.giveUp(this));
  }
}

/** The deadline of charges and holds that wait for the database. */
export class SettleDeadline {
  readonly #deadlines: DeadlineQueue;
  readonly #notes: UndeliveredChargeJournal;

  constructor(clock: Clock, notes: UndeliveredChargeJournal) {
    this.#notes = notes;
    this.#deadlines = new DeadlineQueue(clock, MAX_SETTLE_WAIT_MS);
  }

  /** Calls `late` with a 503 error at the deadline. The returned function cancels it. */
  begin(late: (error: GatewayError) => void): () => void {
    const deadline = this.#deadlines.add(() => late(silent()));
    return () => deadline.cancel();
  }

  /**
   * Gives the charge up at the deadline. If it is posted later, it must be refunded, unless the answer is stored
   * with it.
   */
  watch(charge: PendingCharge): void {
    this.#deadlines.set(charge);
  }

  /** Ends the deadline of a posted charge. */
  end(charge: PendingCharge): void {
    this.#deadlines.cancel(charge);
  }

  /** Ends the deadline of a charge that was not posted, and removes its note. */
  endUnposted(charge: PendingCharge): void {
    this.#notes.remove(charge.settlement.requestId);
    this.end(charge);
  }

  /** Notes a charge that must be refunded if it is posted. Returns the error for its client. */
  giveUp(charge: PendingCharge): GatewayError {
    if (charge.isOwedBack) this.#notes.add(charge.settlement);
    return silent();
  }

  /** Notes all waiting charges, because this process ends immediately and will not send their answers. */
  noteWaiting(): void {
    for (const entry of this.#deadlines.entries) {
      if (entry instanceof PendingCharge && entry.isOwedBack) this.#notes.add(entry.settlement);
    }
  }
}

function silent(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway's database does not answer.", {
    retryAfterSeconds: 1,
  });
}

/** The members of a hold from which its charge is built. */
interface Chargeable extends LedgerRequest {
  readonly holdNano: NanoUsd;
  readonly budgetNano?: NanoUsd | undefined;
}

/** Returns the charge, limited to its hold whatever the caller has calculated. */
function within(holdNano: NanoUsd, chargeNano: NanoUsd): NanoUsd {
  return chargeNano > holdNano ? holdNano : chargeNano;
}

/** Returns the highest charge of a hold if the budgets of its key count the charge itself. */
export function chargeableNano({
  holdNano,
  budgetNano = holdNano,
}: Pick<Chargeable, "holdNano" | "budgetNano">): NanoUsd {
  return within(holdNano, budgetNano);
}

/** Returns the part of a charge that exceeds the provider cost. A charge that was limited pays the cost first. */
export function feeOfCharge(chargeNano: NanoUsd, costNano: NanoUsd): NanoUsd {
  return chargeNano > costNano ? chargeNano - costNano : 0n;
}

/** Returns the charge of a hold, for checkpoints and settlements. */
function chargeOf(hold: Chargeable, figures: ChargeFigures) {
  const chargeNano = within(
    figures.budgetNano === undefined ? chargeableNano(hold) : hold.holdNano,
    figures.chargeNano,
  );
  return {
    requestId: hold.requestId,
    organizationId: hold.organizationId,
    keyId: hold.keyId,
    orgAccount: hold.orgAccount,
    dayAccount: hold.dayAccount,
    monthAccount: hold.monthAccount,
    subjectAccounts: hold.subjectAccounts,
    chargeNano,
    feeNano: feeOfCharge(chargeNano, figures.chargeNano - figures.feeNano),
    budgetNano:
      figures.budgetNano === undefined
        ? undefined
        : within(hold.budgetNano ?? hold.holdNano, figures.budgetNano),
    model: figures.model,
    provider: figures.provider,
    promptTokens: figures.promptTokens,
    cachedPromptTokens: figures.cachedPromptTokens,
    completionTokens: figures.completionTokens,
    reasoningTokens: figures.reasoningTokens,
    quantities: figures.quantities,
    estimated: figures.estimated,
    latencyMs: figures.latencyMs,
    details: figures.details,
    description: figures.description,
  };
}

/** Returns the checkpoint of an open hold, for an instance that must end the hold later. */
export function checkpointOf(hold: Hold, figures: ChargeFigures): Checkpoint {
  const charge = chargeOf(hold, figures);
  const { holdNano, budgetNano: budgetHoldNano } = hold;
  return { ...charge, holdNano, budgetHoldNano, startedAtMs: hold.admittedAtMs };
}

/** Returns the settlement of a hold that ends with a charge. */
export function settlementOf(
  hold: Chargeable,
  figures: SettlementFigures,
  hasAttempt: boolean,
): Settlement {
  return { ...chargeOf(hold, figures), status: figures.status, hasAttempt };
}

/** Returns the error for a charge without a hold, which would spend money that was granted to others. */
export function notHeld({ requestId }: { readonly requestId: string }): Error {
  return new Error(`no hold for ${requestId}: it was never placed, or has ended`);
}
