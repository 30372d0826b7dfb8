import { type CreditCommand, pendingCreditCommands } from "../../../db/queries/credit-commands.ts";
import type { Query } from "../../../db/query.ts";
import type { Clock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { OrganizationActors } from "./alone.ts";

export interface CreditOrdersDependencies {
  readonly organizations: OrganizationActors;
  /** True where holds stand in the database, which then knows what may be taken. */
  readonly holdsAreShared: boolean;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
  onError(error: unknown): void;
}

/** Whoever gave an order waits for it, so a failure is tried again although no news comes. */
const RETRY_MS = 500;

/** Carries out orders on balances that an operator gave in another process. */
export class CreditOrders {
  readonly #dependencies: CreditOrdersDependencies;
  #running: Promise<void> | undefined;
  #isAskedAgain = false;
  #cancelRetry: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: CreditOrdersDependencies) {
    this.#dependencies = dependencies;
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
          await this.#tryAdjust({ ...order, transactionId: newId("txn") });
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
  async #tryAdjust(command: CreditCommand): Promise<void> {
    try {
      await this.#adjust(command);
      // As many may wait behind those that one look reads.
      this.#isAskedAgain = true;
    } catch (error) {
      this.#tryAgain(error);
    }
  }

  async #adjust(command: CreditCommand): Promise<void> {
    const organization = this.#dependencies.organizations.get(command.organizationId);
    if (this.#dependencies.holdsAreShared) {
      await organization.ask("adjustCredit", command);
      organization.forget();
      return;
    }
    if (!organization.isActive) await organization.activate();
    const takenNano = command.amountNano < 0n ? -command.amountNano : 0n;
    const headroom = organization.turn("headroom", undefined);
    if (headroom.plan === undefined || takenNano > headroom.freeNano) {
      await organization.ask("refuseAdjustment", command);
      return;
    }
    organization.turn("changeHeld", { byNano: takenNano });
    try {
      await organization.ask("adjustCredit", command);
    } finally {
      // Nothing is decided any more before the new total was loaded, so what was set aside is given free.
      organization.forget();
      if (takenNano > 0n) organization.turn("changeHeld", { byNano: -takenNano });
    }
  }
}
