import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import {
  changeReplenishment,
  claimReplenishment,
  findReplenishment,
  MAX_REPLENISH_DECLINES,
  noteReplenished,
  type Replenishment,
  type ReplenishOrder,
  type ReplenishOutcome,
  type ReplenishSettings,
} from "../../../db/queries/auto-replenish.ts";
import type { OutboxEvent } from "../../../db/queries/outbox.ts";
import { untilReachable } from "../../../db/unavailable.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { creditsReplenishFailed } from "../../lib/events/credits-replenish-failed.ts";
import { newId } from "../../lib/ids.ts";
import { usdNumber } from "../../lib/money.ts";
import type { PaymentMethods } from "./payment-methods.ts";
import type { PaymentResult, Payments } from "./payments.ts";

export interface AutoReplenishDependencies {
  readonly sql: Database;
  /** The database pool for writes that must complete even if they take long. */
  readonly background: Database;
  readonly payments: Pick<Payments, "pay">;
  readonly methods: Pick<PaymentMethods, "chosen">;
  readonly clock: Clock;
  onError(error: unknown): void;
}

export type ReplenishChange = Partial<ReplenishSettings>;

/** `retrying` after a declined payment, `stopped` after three declined payments in a row. */
export type ReplenishStatus = "off" | "active" | "retrying" | "stopped";

const LOOK_MS = 5_000;
const PAYMENTS_AT_A_TIME = 8;
const OFF: Replenishment = {
  isEnabled: false,
  thresholdNano: 0n,
  amountNano: 0n,
  methodId: null,
  declines: 0,
};

/**
 * Automatic top-ups. When a transaction lowers a balance below its threshold, it makes a payment due. One
 * instance claims the due payment, stores the payment id, and then orders the payment under that id. So each
 * crossing is paid once. If the instance fails in between, the next instance finds the stored id. It then
 * either finds a completed payment or makes it. While the outcome of a payment is open, no second payment is
 * ordered.
 */
export class AutoReplenish {
  readonly #dependencies: AutoReplenishDependencies;
  readonly #running = new Set<Promise<void>>();
  #isLookRequested = false;
  #looking: Promise<void> | undefined;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: AutoReplenishDependencies) {
    this.#dependencies = dependencies;
  }

  async find(organizationId: string): Promise<Replenishment> {
    return (await findReplenishment(this.#dependencies.sql, organizationId)) ?? OFF;
  }

  /**
   * Changes the settings and resets the count of declined payments. Pays immediately if the balance is below
   * the threshold. Throws 400 for incomplete settings, and 402 or 404 if no payment method is available.
   */
  async change(
    organizationId: string,
    change: ReplenishChange,
    author: Author,
  ): Promise<Replenishment> {
    const { sql, methods } = this.#dependencies;
    const requested = { ...(await this.find(organizationId)), ...change };
    if (requested.isEnabled || change.methodId != null) {
      await methods.chosen(organizationId, requested.methodId ?? undefined);
    }
    await changeReplenishment(authored(sql, author), organizationId, (before) =>
      checked({ ...before, ...change }),
    );
    this.wake();
    return this.find(organizationId);
  }

  start(): void {
    this.wake();
  }

  /** Checks for due payments now, because a payment can be due. */
  wake(): void {
    if (this.#isClosed) return;
    this.#isLookRequested = true;
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
  }

  /**
   * Waits for running payments. Another instance, or this one after its next start, completes payments that
   * stay open.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLook?.();
    await this.#looking;
    await Promise.all(this.#running);
  }

  async #look(): Promise<void> {
    this.#cancelLook?.();
    try {
      while (this.#isLookRequested && !this.#isClosed) {
        this.#isLookRequested = false;
        await this.#claimDue();
      }
    } catch (error) {
      this.#dependencies.onError(error);
    }
    if (this.#isClosed) return;
    this.#cancelLook = this.#dependencies.clock.after(LOOK_MS, () => this.wake());
  }

  async #claimDue(): Promise<void> {
    while (!this.#isClosed) {
      if (this.#running.size >= PAYMENTS_AT_A_TIME) await Promise.race(this.#running);
      const order = await claimReplenishment(this.#dependencies.background, newId("pay"));
      if (order === undefined) return;
      if (order === "nothing") continue;
      const paying: Promise<void> = this.#pay(order)
        // The order remains in the database and is claimed again.
        .catch(this.#dependencies.onError)
        .finally(() => {
          this.#running.delete(paying);
          this.wake();
        });
      this.#running.add(paying);
    }
  }

  async #pay(order: ReplenishOrder): Promise<void> {
    const { background, clock } = this.#dependencies;
    const outcome = await this.#outcomeOf(order);
    await untilReachable(clock, () =>
      noteReplenished(background, order, outcome, (failure): OutboxEvent => {
        const { balanceNano, thresholdNano, amountNano, declines, reason } = failure;
        return creditsReplenishFailed.build(newId("evt"), failure.organizationId, {
          balance_usd: usdNumber(balanceNano),
          threshold_usd: usdNumber(thresholdNano),
          amount_usd: usdNumber(amountNano),
          declines,
          reason,
        });
      }),
    );
  }

  async #outcomeOf({
    intentId,
    organizationId,
    amountNano,
    methodId,
  }: ReplenishOrder): Promise<ReplenishOutcome> {
    const { payments } = this.#dependencies;
    try {
      const result = await payments.pay({
        intentId,
        organizationId,
        keyId: null,
        purpose: "auto_replenish",
        amountNano,
        methodId: methodId ?? undefined,
        returnUrl: undefined,
      });
      return outcomeOfResult(result);
    } catch (error) {
      // Without a method no payment is ordered. After any other error the payment stays open.
      if (!(error instanceof GatewayError) || !NO_METHOD.has(error.code)) throw error;
      return { kind: "declined", reason: "no_payment_method" };
    }
  }
}

const NO_METHOD: ReadonlySet<string> = new Set(["payment_declined", "payment_method_not_found"]);

function outcomeOfResult(result: PaymentResult): ReplenishOutcome {
  if (result.kind === "declined") return { kind: "declined", reason: result.reason };
  return { kind: result.kind === "action" ? "unknown" : result.kind };
}

export function replenishStatus({ isEnabled, declines }: Replenishment): ReplenishStatus {
  if (!isEnabled) return "off";
  if (declines === 0) return "active";
  return declines < MAX_REPLENISH_DECLINES ? "retrying" : "stopped";
}

/** Throws 400 if automatic top-ups are enabled without an amount or a threshold. */
function checked(settings: ReplenishSettings): ReplenishSettings {
  const { isEnabled, amountNano, thresholdNano } = settings;
  if (isEnabled && amountNano === 0n) throw needed("replenish_amount_usd");
  if (isEnabled && thresholdNano === 0n) throw needed("replenish_threshold_usd");
  return settings;
}

function needed(param: string): GatewayError {
  const message = `auto_replenish requires ${param} above 0.`;
  return new GatewayError("invalid_body", message, { param });
}
