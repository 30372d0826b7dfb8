import { isServerUnable } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { Checkpoint, LedgerRequest, Settlement } from "../../../db/ledger/rows.ts";
import { type CancellationToken, NONE, type Unit } from "../../../db/ledger/units.ts";
import type { Clock } from "../../lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../../lib/deadlines.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { NanoUsd } from "../../lib/money.ts";
import type { ChargeFigures, Hold, SettlementFigures } from "./interface.ts";
import type { UndeliveredChargeJournal } from "./undelivered.ts";

/** How long an answer waits for its charge, and a request for its hold, before it fails. */
const MAX_SETTLE_WAIT_MS = 1_800;

/** Receives how a charge has ended. */
export interface ChargeOwner {
  /** It is durable. */
  charged(settlement: Settlement): void;
  /** Nothing was posted. */
  notCharged(settlement: Settlement): void;
  /** Nothing was posted yet, because the database cannot write at the moment: it is to be posted again. */
  postAfterDelay(charge: PendingCharge): void;
}

/**
 * A charge on its way into the ledger, and its waiter: without a deadline if something was delivered,
 * because that has to be charged, however long it takes; the rest can still be given up.
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

  /** What was delivered is charged as soon as that can be done; the rest has failed. */
  reject(error: unknown): void {
    if (this.settlement.hasAttempt && isServerUnable(error)) this.#owner.postAfterDelay(this);
    else this.fail(error);
  }

  /** Nothing was posted, and nothing will be. */
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

/** Gives up waiting for the database after a while. */
export class SettleDeadline {
  readonly #deadlines: DeadlineQueue;
  readonly #notes: UndeliveredChargeJournal;

  constructor(clock: Clock, notes: UndeliveredChargeJournal) {
    this.#notes = notes;
    this.#deadlines = new DeadlineQueue(clock, MAX_SETTLE_WAIT_MS);
  }

  /** Calls `late` with 503 when the time is up. The returned function ends the waiting. */
  begin(late: (error: GatewayError) => void): () => void {
    const deadline = this.#deadlines.add(() => late(silent()));
    return () => deadline.cancel();
  }

  /**
   * Gives the charge up where it takes too long to be posted. Behind that it is owed back where it comes to
   * be posted nevertheless, unless the answer is kept with it.
   */
  watch(charge: PendingCharge): void {
    this.#deadlines.set(charge);
  }

  /** It is posted. */
  end(charge: PendingCharge): void {
    this.#deadlines.cancel(charge);
  }

  /** Nothing was posted. */
  endUnposted(charge: PendingCharge): void {
    this.#notes.remove(charge.settlement.requestId);
    this.end(charge);
  }

  /** Its time is up. Returns the error for its client. */
  giveUp(charge: PendingCharge): GatewayError {
    if (charge.isOwedBack) this.#notes.add(charge.settlement);
    return silent();
  }

  /** This process ends at once, and no answer that waits for its charge will ever leave. */
  noteWaiting(): void {
    for (const one of this.#deadlines.entries) {
      if (one instanceof PendingCharge && one.isOwedBack) this.#notes.add(one.settlement);
    }
  }
}

function silent(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway's database does not answer.", {
    retryAfterSeconds: 1,
  });
}

/** Of a hold, what its charge is made from. */
interface Chargeable extends LedgerRequest {
  readonly holdNano: NanoUsd;
  readonly budgetNano?: NanoUsd | undefined;
}

/** A charge is never larger than its hold, whatever its caller has worked out. */
function within(holdNano: NanoUsd, chargeNano: NanoUsd): NanoUsd {
  return chargeNano > holdNano ? holdNano : chargeNano;
}

/** What a hold covers of a charge that the budgets of its key count as it is. */
export function chargeableNano({
  holdNano,
  budgetNano = holdNano,
}: Pick<Chargeable, "holdNano" | "budgetNano">): NanoUsd {
  return within(holdNano, budgetNano);
}

/** What a hold is charged: the same in a checkpoint and in a settlement. */
function chargeOf(hold: Chargeable, figures: ChargeFigures) {
  return {
    requestId: hold.requestId,
    organizationId: hold.organizationId,
    keyId: hold.keyId,
    orgAccount: hold.orgAccount,
    dayAccount: hold.dayAccount,
    monthAccount: hold.monthAccount,
    subjectAccounts: hold.subjectAccounts,
    chargeNano: within(
      figures.budgetNano === undefined ? chargeableNano(hold) : hold.holdNano,
      figures.chargeNano,
    ),
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

/** What the ledger keeps of a hold whose request runs, for the instance that may have to end it. */
export function checkpointOf(hold: Hold, figures: ChargeFigures): Checkpoint {
  const charge = chargeOf(hold, figures);
  const { holdNano, budgetNano: budgetHoldNano } = hold;
  return { ...charge, holdNano, budgetHoldNano, startedAtMs: hold.admittedAtMs };
}

/** What the ledger receives for a hold that ends with a charge. */
export function settlementOf(
  hold: Chargeable,
  figures: SettlementFigures,
  hasAttempt: boolean,
): Settlement {
  return { ...chargeOf(hold, figures), status: figures.status, hasAttempt };
}

/** A charge that nothing is held for would take money that others were given. */
export function notHeld({ requestId }: { readonly requestId: string }): Error {
  return new Error(`${requestId} is not held: it was never, or its hold has ended`);
}
