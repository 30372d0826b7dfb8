import { sqlState } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { keepHoldsEffect } from "../../../db/ledger/long-holds.ts";
import type { DemandedAmounts, Settlement } from "../../../db/ledger/rows.ts";
import { FENCED } from "../../../db/ledger/settle-batch.ts";
import { GcFriendlyMap } from "../../lib/gc-friendly-map.ts";
import { costsNothing } from "./decide-hold.ts";
import {
  type Attempted,
  grantedAmong,
  type MoneyDependencies,
  MoneyEngine,
  type Payer,
} from "./engine.ts";
import { emitExhausted } from "./headroom.ts";
import { HoldQueue, type IsHeldBySilent } from "./hold-queue.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
  SettlementFigures,
} from "./interface.ts";
import { notHeld } from "./pending-charge.ts";
import { holdOf, PendingHold, type RunnableHold } from "./pending-hold.ts";

/** Time between two attempts to release a hold. */
const RETRY_MS = 1_000;

/** An open hold of this instance. */
interface RunningHold extends Attempted {
  readonly hold: RunnableHold;
  checkpointing: Promise<void> | undefined;
  settling: Promise<void> | undefined;
  /** The extension that is being decided. */
  extending: Promise<boolean> | undefined;
}

/**
 * The ledger engine for several instances that share a database. A hold is a row that is inserted under the locks
 * of its accounts, so two instances cannot grant the same money. No provider is called before that row is
 * durable.
 */
export class ClusteredMoney extends MoneyEngine implements MoneyPort {
  readonly holdQueue: HoldQueue;
  readonly #running = new GcFriendlyMap<RunningHold>();

  /** @param isHeldBySilent if absent, no request waits for holds of silent instances */
  constructor(dependencies: MoneyDependencies, isHeldBySilent?: IsHeldBySilent) {
    super(dependencies);
    const wakeLedger = () => this.ledger.wake();
    this.holdQueue = new HoldQueue(
      dependencies.clock,
      this.holdDeadlines,
      wakeLedger,
      isHeldBySilent,
    );
    this.ledger.subscribe(this);
  }

  get outstandingHolds(): number {
    return this.#running.size;
  }

  hold(request: HoldRequest): Hold | Promise<Hold> {
    return costsNothing(request) ? this.#holdNothing(request) : this.#ask(request);
  }

  async extend({ requestId }: Hold, moreNano: bigint): Promise<boolean> {
    const running = this.#running.get(requestId);
    // Extensions of one hold run one at a time, because each sends the new total and not the difference.
    while (running?.extending !== undefined) await running.extending.catch(() => {});
    if (running === undefined || running.settling !== undefined) return false;
    if (this.#running.get(requestId) !== running) return false;
    const extending = this.#extend(running.hold, moreNano);
    running.extending = extending;
    try {
      return await extending;
    } finally {
      running.extending = undefined;
    }
  }

  /** Extends a hold. A hold that has cost nothing so far has no row yet, so it is placed like a new one. */
  async #extend(hold: RunnableHold, moreNano: bigint): Promise<boolean> {
    const { requestId, organizationId, keyId } = hold;
    const { orgAccount, dayAccount, monthAccount, subjectAccounts } = hold;
    const toNano = hold.holdNano + moreNano;
    const toBudgetNano = hold.budgetNano === undefined ? undefined : hold.budgetNano + moreNano;
    const verdict = await this.holdQueue.decideExtension({
      requestId,
      organizationId,
      keyId,
      orgAccount,
      dayAccount,
      monthAccount,
      subjectAccounts,
      ...amountsOf(toNano),
      ...(toBudgetNano !== undefined && { budget: amountsOf(toBudgetNano) }),
      manner: "last",
      ...(holdsAnything(hold) && { extends: true as const }),
    });
    if (verdict.kind !== "granted") return false;
    hold.holdNano = toNano;
    hold.budgetNano = toBudgetNano;
    return true;
  }

  async checkpoint(hold: Hold, figures: ChargeFigures): Promise<void> {
    const running = this.#running.get(hold.requestId);
    // A checkpoint after settlement would recreate the attempt row that the settlement deleted.
    if (running === undefined || running.settling !== undefined) return;
    const writing = this.writeCheckpoint(
      running.hold,
      running,
      figures,
      () => running.settling === undefined && this.#running.has(hold.requestId),
    );
    running.checkpointing = writing;
    await writing;
  }

  settle(hold: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    const running = this.#running.get(hold.requestId);
    if (running === undefined) return Promise.reject(notHeld(hold));
    if (running.settling !== undefined) return running.settling;
    const charge = this.chargeFor(hold, running, figures, also);
    running.settling = charge.settled;
    afterExtension(running.extending, () => this.ledger.post(charge));
    return charge.settled;
  }

  charged({ requestId }: Settlement): void {
    this.#running.delete(requestId);
  }

  notCharged({ requestId }: Settlement): void {
    const running = this.#running.get(requestId);
    if (running === undefined) return;
    running.settling = undefined;
    this.release(running.hold);
  }

  release(hold: Hold): void {
    const running = this.#running.get(hold.requestId);
    // The amount of a running charge is not available, even after its caller's deadline. A reaper would charge a
    // written attempt, so its hold stays too.
    if (running === undefined || running.settling !== undefined) return;
    if (running.attempt === "written") return;
    this.#running.delete(hold.requestId);
    if (running.attempt === "none") {
      afterExtension(running.extending, () => this.#releaseRow(running.hold, false));
    } else {
      // No output was delivered: the checkpoint is removed too, when its outcome is known.
      const releaseRow = () =>
        afterExtension(running.extending, () => this.#releaseRow(running.hold, true));
      running.checkpointing!.then(releaseRow, releaseRow);
    }
  }

  async holdLongs(
    requests: readonly LongHoldRequest[],
    alsoOf: (held: ReadonlySet<string>) => StatementEffect | undefined,
  ): Promise<ReadonlyMap<string, unknown>> {
    const { granted, refused } = await grantedAmong(requests, (request) => this.hold(request));
    if (granted.length === 0) return refused;
    const ids = new Set(granted.map(({ requestId }) => requestId));
    try {
      const effect = keepHoldsEffect(this.dependencies.instance, granted, alsoOf(ids));
      await this.ledger.submit([effect]);
    } catch (error) {
      for (const hold of granted) this.release(hold);
      throw error;
    }
    for (const id of ids) this.#running.delete(id);
    return refused;
  }

  /** Wakes waiting requests after a durable batch has charged these settlements. */
  committed(settlements: readonly Settlement[]): void {
    const organizations = new Set(settlements.map(({ organizationId }) => organizationId));
    for (const organizationId of organizations) this.holdQueue.wake(organizationId);
  }

  protected changedInLedger({ organizationId }: Payer): void {
    this.holdQueue.wake(organizationId);
  }

  /** Returns a hold of 0, which needs no row. */
  #holdNothing(request: HoldRequest): Hold {
    const budgetNano = request.budget && 0n;
    const size = { holdNano: 0n, budgetNano, outputTokens: request.outputTokens };
    const accounts = this.holdQueue.accounts.of(request);
    const hold = holdOf(request, accounts, size, this.dependencies.clock.nowMs());
    this.#begin(hold);
    return hold;
  }

  #begin(hold: RunnableHold): void {
    this.#running.set(hold.requestId, {
      hold,
      attempt: "none",
      checkpointing: undefined,
      settling: undefined,
      extending: undefined,
    });
  }

  /**
   * Ends a hold without a charge. Retries until the release is written. If this instance dies first, a reaper
   * ends it.
   */
  #releaseRow(hold: Hold, hasAttempt: boolean): void {
    if (!holdsAnything(hold) && !hasAttempt) return;
    const { requestId, orgAccount, dayAccount, monthAccount, subjectAccounts, organizationId } =
      hold;
    const accounts = { orgAccount, dayAccount, monthAccount, subjectAccounts };
    const release = { requestId, ...accounts, hasAttempt };
    this.ledger.submit([{ kind: "release", release }]).then(
      () => this.holdQueue.wake(organizationId),
      (error) => {
        if (this.ledger.isClosed || sqlState(error) === FENCED) return;
        const { clock, onBackgroundError } = this.dependencies;
        onBackgroundError(error);
        clock.after(RETRY_MS, () => this.#releaseRow(hold, hasAttempt));
      },
    );
  }

  #ask(request: HoldRequest): Promise<Hold> {
    return new Promise((resolve, reject) => {
      let endDeadline = (): void => {};
      const pending = new PendingHold(request, {
        granted: (hold) => {
          endDeadline();
          if (pending.isGivenUp) return this.#releaseRow(hold, false);
          this.#begin(hold);
          resolve(hold);
        },
        refused: (error, headroom) => {
          endDeadline();
          if (headroom === undefined) reject(error);
          else void emitExhausted(this.dependencies, request, headroom).then(() => reject(error));
        },
      });
      this.holdQueue.submit(pending);
      endDeadline = this.settleDeadline.begin((error) => {
        // A request that waits for other holds has a separate deadline.
        if (pending.isInQueue || pending.state === "ended") return;
        this.holdQueue.giveUp(pending, error);
        reject(error);
      });
    });
  }
}

/** Returns false for a hold of 0, which has no row. */
function holdsAnything({ holdNano, budgetNano = 0n }: Hold): boolean {
  return holdNano > 0n || budgetNano > 0n;
}

function amountsOf(nano: bigint): DemandedAmounts {
  return { fullNano: nano, leastNano: nano, mostNano: nano };
}

/** Ends a hold after its current extension, when the final amount is known. */
function afterExtension(extending: Promise<boolean> | undefined, end: () => void): void {
  if (extending === undefined) end();
  else extending.then(end, end);
}
