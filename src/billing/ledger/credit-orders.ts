import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { OrganizationHeadroom } from "../../../actors/organization/state.ts";
import type { Query } from "../../../db/client.ts";
import {
  type CreditCommand,
  type CreditCommandOutcome,
  type CreditOrder,
  creditCommandOutcome,
  pendingCreditCommands,
} from "../../../db/queries/credit-commands.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";

export interface CreditOrdersDependencies {
  readonly organizations: OrganizationActors;
  /** True if holds are rows in the database, which then decides how much can be deducted. */
  readonly holdsAreShared: boolean;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
  onError(error: unknown): void;
}

/** Time before a retry. The caller of an order waits for it, so a failure is retried without a notification. */
const RETRY_MS = 500;

/** Stores and carries out operators' orders on balances and credit limits. */
export class CreditOrders {
  readonly #dependencies: CreditOrdersDependencies;
  #running: Promise<void> | undefined;
  #isDue = false;
  #cancelRetry: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: CreditOrdersDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Stores an order and waits until it is done. Throws 503 if it could not be carried out now and was withdrawn.
   */
  async give(order: CreditOrder): Promise<CreditCommandOutcome> {
    const { organizations, read } = this.#dependencies;
    const organization = organizations.get(order.organizationId);
    await organization.ask("storeOrder", order);
    await this.carryOut();
    let outcome = await read(creditCommandOutcome(order.id));
    if (outcome?.isDone !== true) {
      await organization.ask("withdrawOrder", order);
      // Another instance may have carried out the order before the withdrawal.
      outcome = await read(creditCommandOutcome(order.id));
    }
    if (outcome?.isDone === true) return outcome;
    throw new GatewayError("database_unavailable", "The gateway's database does not answer.", {
      retryAfterSeconds: 1,
    });
  }

  /** Carries out stored orders. Call it when an order may have arrived. */
  carryOut(): Promise<void> {
    this.#isDue = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelRetry?.();
  }

  async #run(): Promise<void> {
    try {
      // An order that arrived during the loop was not among those that were read.
      while (this.#isDue) {
        this.#isDue = false;
        for (const order of await this.#dependencies.read(pendingCreditCommands())) {
          await this.#tryCarryOut({ ...order, transactionId: newId("txn") });
        }
      }
    } catch (error) {
      this.#tryAgain(error);
    }
  }

  #tryAgain(error: unknown): void {
    this.#dependencies.onError(error);
    if (this.#isClosed) return;
    this.#cancelRetry ??= this.#dependencies.clock.after(RETRY_MS, () => {
      this.#cancelRetry = undefined;
      void this.carryOut();
    });
  }

  /** Carries out an order. If it fails, it stays stored and does not block others. */
  async #tryCarryOut(command: CreditCommand): Promise<void> {
    try {
      await this.#carryOutOne(command);
      // There can be further orders after those that one query returns.
      this.#isDue = true;
    } catch (error) {
      this.#tryAgain(error);
    }
  }

  async #carryOutOne(command: CreditCommand): Promise<void> {
    const organization = this.#dependencies.organizations.get(command.organizationId);
    if (this.#dependencies.holdsAreShared) {
      await organization.ask("carryOutOrder", command);
      organization.forget();
      return;
    }
    if (!organization.isActive) await organization.activate();
    const headroom = organization.turn("headroom", undefined);
    if (headroom.plan === undefined || !isCovered(command, headroom)) {
      await organization.ask("refuseOrder", command);
      return;
    }
    const deductedNano = deductionOf(command);
    organization.turn("changeHeld", { byNano: deductedNano });
    try {
      await organization.ask("carryOutOrder", command);
    } finally {
      // The actor loads the new total before its next decision, so the amount that was set aside is released.
      organization.forget();
      if (deductedNano > 0n) organization.turn("changeHeld", { byNano: -deductedNano });
    }
  }
}

function deductionOf(order: CreditOrder): bigint {
  return order.kind === "adjustment" && order.amountNano < 0n ? -order.amountNano : 0n;
}

/** Returns true if spend and holds allow the order. */
function isCovered(
  order: CreditOrder,
  { availableNano, unheldNano }: OrganizationHeadroom,
): boolean {
  if (order.kind === "adjustment") return deductionOf(order) <= availableNano;
  return order.creditLimitNano === null || unheldNano + order.creditLimitNano >= 0n;
}
