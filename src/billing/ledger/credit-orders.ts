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
  /** True where holds stand in the database, which then knows what may be taken. */
  readonly holdsAreShared: boolean;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
  onError(error: unknown): void;
}

/** The caller of an order waits for it, so a failure is retried without a notification. */
const RETRY_MS = 500;

/** Gives and carries out operators' orders on balances and credit limits. */
export class CreditOrders {
  readonly #dependencies: CreditOrdersDependencies;
  #running: Promise<void> | undefined;
  #isAskedAgain = false;
  #cancelRetry: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: CreditOrdersDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Gives an order to the organization and waits for its end. Throws 503 where it could not be carried out
   * now: then it is withdrawn.
   */
  async give(order: CreditOrder): Promise<CreditCommandOutcome> {
    const { organizations, read } = this.#dependencies;
    const organization = organizations.get(order.organizationId);
    await organization.ask("placeOrder", order);
    await this.carryOut();
    let outcome = await read(creditCommandOutcome(order.id));
    if (outcome?.isDone !== true) {
      await organization.ask("withdrawOrder", order);
      // Another instance may have been faster than the withdrawal.
      outcome = await read(creditCommandOutcome(order.id));
    }
    if (outcome?.isDone === true) return outcome;
    throw new GatewayError("database_unavailable", "The gateway's database does not answer.", {
      retryAfterSeconds: 1,
    });
  }

  /** To be called when an order may have come. */
  carryOut(): Promise<void> {
    this.#isAskedAgain = true;
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
      // An order that came while others were carried out was not among those that were read.
      while (this.#isAskedAgain) {
        this.#isAskedAgain = false;
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

  /** An order that fails stays where it is and keeps no other from being carried out. */
  async #tryCarryOut(command: CreditCommand): Promise<void> {
    try {
      await this.#carryOutOne(command);
      // As many may wait behind those that one look reads.
      this.#isAskedAgain = true;
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
    const takenNano = takenBy(command);
    organization.turn("changeHeld", { byNano: takenNano });
    try {
      await organization.ask("carryOutOrder", command);
    } finally {
      // Nothing is decided any more before the new total was loaded, so what was set aside is given free.
      organization.forget();
      if (takenNano > 0n) organization.turn("changeHeld", { byNano: -takenNano });
    }
  }
}

function takenBy(order: CreditOrder): bigint {
  return order.kind === "adjustment" && order.amountNano < 0n ? -order.amountNano : 0n;
}

/** Whether what is used and held allows it. */
function isCovered(
  order: CreditOrder,
  { availableNano, unheldNano }: OrganizationHeadroom,
): boolean {
  if (order.kind === "adjustment") return takenBy(order) <= availableNano;
  return order.creditLimitNano === null || unheldNano + order.creditLimitNano >= 0n;
}
