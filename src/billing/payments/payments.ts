import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import { DatabaseDeadlineError } from "../../../db/bounded-database.ts";
import type { Database } from "../../../db/client.ts";
import type { PostedCredit } from "../../../db/ledger/credits.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { findCreditEntry } from "../../../db/queries/credit-list.ts";
import {
  claimOpenPayments,
  claimPaymentIntent,
  creditPayment,
  findPaymentByKey,
  findPaymentIntent,
  insertPaymentIntent,
  keepReceipt,
  type NewPaymentIntent,
  type PaymentIntent,
  type PaymentPurpose,
} from "../../../db/queries/payment-intents.ts";
import { untilReachable } from "../../../db/unavailable.ts";
import type { Author } from "../../lib/author.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { NanoUsd } from "../../lib/money.ts";
import type { ChargeOutcome, EarlierCharge, PaymentProcessor } from "./interface.ts";
import type { PaymentMethods } from "./payment-methods.ts";
import { isTokenOf } from "./test-processor.ts";
import { fail, notSent, recordUnpaid, resultOf, unpaidBecause } from "./unpaid.ts";

export interface PaymentsDependencies {
  /** The database pool for writes that must complete even if they take long. */
  readonly background: Database;
  readonly sql: Database;
  readonly processor: PaymentProcessor;
  readonly methods: PaymentMethods;
  readonly organizations: Pick<OrganizationActors, "forget">;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  onError(error: unknown): void;
}

export interface PaymentOrder {
  /**
   * An id chosen by the caller, if it can order the same payment more than once. The payment is made once.
   */
  readonly intentId?: string;
  readonly organizationId: string;
  /** Null if the gateway itself orders the payment. */
  readonly keyId: string | null;
  /** Undefined if the gateway itself orders the payment. */
  readonly author?: Author;
  /**
   * An API key pays once for each idempotency key. `bodyHash` distinguishes a different order under the same
   * idempotency key.
   */
  readonly idempotency?: { readonly key: string; readonly bodyHash: string } | undefined;
  readonly purpose: PaymentPurpose;
  /** Amount in nano-USD. A multiple of one cent. */
  readonly amountNano: NanoUsd;
  /**
   * The id of a saved method of the organization, or the name of a test method. Undefined for the default
   * method.
   */
  readonly methodId: string | undefined;
  /** The URL to which the bank's page returns the payer. Undefined if no payer is present. */
  readonly returnUrl: string | undefined;
}

export type PaymentResult =
  | {
      readonly kind: "paid";
      readonly intentId: string;
      readonly credit: PostedCredit;
      /** True if the payment was made before, under the same idempotency key. */
      readonly isReplay: boolean;
    }
  | {
      readonly kind: "declined";
      readonly intentId: string;
      /** The decline code, such as `insufficient_funds`. */
      readonly reason: string;
      readonly message: string;
    }
  /** The payer must authenticate. The payment is credited afterwards. */
  | {
      readonly kind: "action";
      readonly intentId: string;
      readonly url: string | undefined;
      readonly clientSecret: string | undefined;
    }
  /** Nothing was charged, for a reason other than the card. */
  | { readonly kind: "refused"; readonly intentId: string; readonly cause: unknown }
  /**
   * It is not known whether the card was charged. The payment is looked up until its outcome is known, and is
   * credited if it succeeded.
   */
  | { readonly kind: "unknown"; readonly intentId: string };

const LOOK_MS = 5_000;
/** Look-ups of open payments for each look-up of pending payment methods. */
const LOOKS_A_SETUP = 12;
const OPEN_AT_A_TIME = 20;
const JOIN_RETRY_MS = 250;
const WITHDRAW_TRIES = 20;
const WITHDRAW_RETRY_MS = 2_000;
/**
 * The longest wait for a payment that another instance is making. The processor answers within this time.
 */
const MAX_JOIN_MS = 25_000;
/** After this time without authentication, a payment is cancelled. */
const MAX_ACTION_MS = 86_400_000;

/**
 * Card payments, each of which is credited once. The payment intent is durable before the processor is
 * called; its id is the idempotency key at the processor. The transaction that moves the intent to
 * `succeeded` also posts the credit. The processor's answer, an event of the processor or a later look-up
 * starts this transaction, whichever comes first. Payments that stay open after a crash or without an answer
 * are looked up at the start and every few seconds, by the instance that claims them.
 */
export class Payments {
  readonly #dependencies: PaymentsDependencies;
  readonly #running = new Map<string, Promise<PaymentResult>>();
  #looks = 0;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: PaymentsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Makes a payment, or returns the result of the same payment if it was ordered before. Throws 402 if the
   * organization has no default method, 404 if it has no method with the stated id, and 409 for a different order
   * under the same idempotency key.
   */
  async pay(order: PaymentOrder): Promise<PaymentResult> {
    const { methods, processor } = this.#dependencies;
    for (;;) {
      const earlier = await this.#findEarlier(order);
      if (earlier !== undefined) {
        const joined = await this.#join(earlier);
        // The payment never reached the processor, and its idempotency key is unused: it is ordered again.
        if (joined.kind === "refused" && order.intentId === undefined) continue;
        return joined;
      }
      const method = await methods.chosen(order.organizationId, order.methodId);
      const intent: NewPaymentIntent = {
        id: order.intentId ?? newId("pay"),
        organizationId: order.organizationId,
        keyId: order.keyId,
        idempotencyKey: order.idempotency?.key ?? null,
        bodyHash: order.idempotency?.bodyHash ?? null,
        purpose: order.purpose,
        amountNano: order.amountNano,
        description: `${TITLES[order.purpose]} by ${method.label}`,
        processor: processor.name,
        customer: method.customer ?? null,
        methodId: method.id ?? null,
        method: method.reference,
        returnUrl: order.returnUrl ?? null,
      };
      if (!(await this.#insert(intent, order.author))) continue;
      return this.#carryOut(intent.id, () => processor.charge(chargeOf(intent)), intent);
    }
  }

  /**
   * Credits a payment that the processor reports as succeeded. Does nothing if the gateway has no such
   * payment.
   */
  async noteSucceeded(
    intentId: string,
    { reference, receivedNano }: { readonly reference: string; readonly receivedNano: NanoUsd },
  ): Promise<void> {
    const { background, processor, onError } = this.#dependencies;
    const intent = await findPaymentIntent(background, intentId);
    if (intent === undefined || intent.processor !== processor.name) return;
    if (receivedNano !== intent.amountNano) {
      onError(new Error(`payment ${intentId} received ${receivedNano} nano-USD`));
      return;
    }
    await this.#credit(intent, { kind: "succeeded", reference });
    if (intent.receiptUrl === null) this.#addReceipt({ ...intent, reference });
  }

  /**
   * Looks up a payment that the processor has possibly decided. Does nothing if an instance is already
   * looking it up.
   */
  async recheck(intentId: string): Promise<void> {
    const { background, instance, processor } = this.#dependencies;
    const intent = await findPaymentIntent(background, intentId);
    if (intent?.processor !== processor.name) return;
    const claimed = await claimPaymentIntent(background, instance.id, intentId);
    if (claimed !== undefined) await this.#lookUp(claimed);
  }

  /** Returns true if a payment of the test processor waits for its payer on the page with this token. */
  async awaitsTestPayer(intentId: string, token: string): Promise<boolean> {
    return (await this.#testIntent(intentId, token)) !== undefined;
  }

  /**
   * Credits a payment after the holder of a test card has authenticated. Returns false if no such payment
   * waits for its payer.
   */
  async authenticateTest(intentId: string, token: string): Promise<boolean> {
    const intent = await this.#testIntent(intentId, token);
    if (intent === undefined) return false;
    await this.#credit(intent, { kind: "succeeded", reference: `test_${intentId}` });
    return true;
  }

  async #testIntent(intentId: string, token: string): Promise<PaymentIntent | undefined> {
    const { background, processor } = this.#dependencies;
    if (processor.awaitsTestPayers !== true) return undefined;
    const intent = await findPaymentIntent(background, intentId);
    if (intent?.state !== "requires_action" || intent.processor !== "test") return undefined;
    return isTokenOf(intent.reference, intentId, token) ? intent : undefined;
  }

  /** Returns the result of a payment, or undefined if no payment has this id. */
  async result(intentId: string): Promise<PaymentResult | undefined> {
    const intent = await findPaymentIntent(this.#dependencies.sql, intentId);
    return intent && (await this.#settledResult(intent));
  }

  /** Looks up open payments, now and every few seconds. */
  start(): void {
    void this.#lookUpOpen();
  }

  /** Waits for running payments. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLook?.();
    await Promise.allSettled(this.#running.values());
  }

  /**
   * Returns the payment that was ordered before under the same id or idempotency key. Throws 409 if the body
   * differs.
   */
  async #findEarlier({
    intentId,
    keyId,
    idempotency,
  }: PaymentOrder): Promise<PaymentIntent | undefined> {
    const { sql } = this.#dependencies;
    if (intentId !== undefined) return findPaymentIntent(sql, intentId);
    if (keyId === null || idempotency === undefined) return undefined;
    const earlier = await findPaymentByKey(sql, keyId, idempotency.key);
    if (earlier === undefined || earlier.bodyHash === idempotency.bodyHash) return earlier;
    throw new GatewayError(
      "idempotency_conflict",
      "This idempotency key was used with a different request.",
      { param: "Idempotency-Key" },
    );
  }

  /**
   * Stores the intent. If that fails, nothing is paid: the caller receives an error and can order the payment
   * again.
   */
  async #insert(intent: NewPaymentIntent, author: Author | undefined): Promise<boolean> {
    const { sql, instance } = this.#dependencies;
    const database = author === undefined ? sql : authored(sql, author);
    try {
      return await insertPaymentIntent(database, instance.id, intent);
    } catch (error) {
      const ended = error instanceof DatabaseDeadlineError ? error.ended : Promise.resolve();
      void ended.then(() => this.#withdraw(intent.id));
      throw error;
    }
  }

  /**
   * Fails an intent whose insert did not answer, because the row may still exist. No instance looks up the intent
   * before these tries end. If this instance was declared dead, another instance has claimed the intent, and it is
   * not changed.
   */
  async #withdraw(id: string): Promise<void> {
    const { background, clock, instance, onError } = this.#dependencies;
    for (let tries = 0; tries < WITHDRAW_TRIES; tries++) {
      try {
        await fail(background, instance, notSent(id));
        return;
      } catch (error) {
        onError(error);
        await sleep(clock, WITHDRAW_RETRY_MS);
      }
    }
  }

  /** Waits for a payment that was ordered before. Looks it up if no instance does. */
  async #join(earlier: PaymentIntent): Promise<PaymentResult> {
    const { sql, clock, instance, processor } = this.#dependencies;
    if (earlier.processor !== processor.name) return this.#joinFromOtherProcessor(earlier);
    const untilMs = clock.nowMs() + MAX_JOIN_MS;
    for (let intent: PaymentIntent | undefined = earlier; intent !== undefined; ) {
      const settled = await this.#settledResult(intent);
      if (settled.kind !== "unknown") return settled;
      const running = this.#running.get(intent.id);
      if (running !== undefined) return replayed(await running);
      const claimed = await claimPaymentIntent(sql, instance.id, intent.id);
      if (claimed !== undefined) return this.#lookUp(claimed);
      if (clock.nowMs() >= untilMs) break;
      await sleep(clock, JOIN_RETRY_MS);
      intent = await findPaymentIntent(sql, intent.id);
    }
    return { kind: "unknown", intentId: earlier.id };
  }

  /**
   * Returns the result of a payment of a processor that is no longer configured. Such a payment stays open
   * until that processor is configured again, because no other processor knows it. A payment of the test
   * processor is failed, because it moved no money.
   */
  async #joinFromOtherProcessor(earlier: PaymentIntent): Promise<PaymentResult> {
    const { background, instance } = this.#dependencies;
    const { id, processor } = earlier;
    if (processor === "test" && (await claimPaymentIntent(background, instance.id, id))) {
      await fail(background, instance, notSent(id, "processor_replaced"));
    }
    return this.#settledResult((await findPaymentIntent(background, id)) ?? earlier);
  }

  async #settledResult(intent: PaymentIntent): Promise<PaymentResult> {
    if (intent.state === "succeeded") return this.#paid(intent);
    if (intent.state !== "failed") return { kind: "unknown", intentId: intent.id };
    return unpaidBecause(intent.id, intent.errorReason ?? "", intent.errorMessage ?? "");
  }

  async #paid({ id, organizationId, transactionId }: PaymentIntent): Promise<PaymentResult> {
    const { sql } = this.#dependencies;
    const entry = transactionId && (await findCreditEntry(sql, organizationId, transactionId));
    if (!entry) throw new Error(`the transaction of payment ${id} is missing`);
    return {
      kind: "paid",
      intentId: id,
      isReplay: true,
      credit: { ...entry, transactionId: entry.id },
    };
  }

  #lookUp(intent: PaymentIntent): Promise<PaymentResult> {
    const { processor, clock } = this.#dependencies;
    const isOld = clock.nowMs() - intent.createdAtMs > MAX_ACTION_MS;
    const asks = isOld && intent.state === "requires_action" ? "cancel" : "lookUp";
    return this.#carryOut(intent.id, () => processor[asks](earlierChargeOf(intent)), intent);
  }

  /** Calls the processor and stores the outcome. Continues after the caller has disconnected. */
  #carryOut(
    id: string,
    ask: () => Promise<ChargeOutcome>,
    intent: NewPaymentIntent,
  ): Promise<PaymentResult> {
    const running = this.#record(intent, ask)
      .catch((error: unknown): PaymentResult => {
        // The payment stays open and is looked up later.
        this.#dependencies.onError(error);
        return { kind: "unknown", intentId: id };
      })
      .finally(() => this.#running.delete(id));
    this.#running.set(id, running);
    return running;
  }

  async #record(
    intent: NewPaymentIntent,
    ask: () => Promise<ChargeOutcome>,
  ): Promise<PaymentResult> {
    const { background, clock, instance, onError } = this.#dependencies;
    const { id } = intent;
    const outcome = await ask();
    if (outcome.kind === "succeeded") return this.#credit(intent, outcome);
    if (outcome.kind === "unknown" && outcome.cause !== undefined) onError(outcome.cause);
    return untilReachable(clock, async () => {
      const isNoted = await recordUnpaid(background, instance, id, outcome);
      // An event of the processor, or another instance, may have stored an outcome first.
      const now = isNoted ? undefined : await findPaymentIntent(background, id);
      return now === undefined ? resultOf(id, outcome) : this.#settledResult(now);
    });
  }

  async #credit(
    intent: NewPaymentIntent,
    { reference, receiptUrl }: ChargeOutcome & { kind: "succeeded" },
  ): Promise<PaymentResult> {
    const { background, clock, organizations } = this.#dependencies;
    const { id } = intent;
    const success = { id, reference, receiptUrl: receiptUrl ?? null, transactionId: newId("txn") };
    const credit = await untilReachable(clock, () => creditPayment(background, success));
    if (credit !== undefined) {
      organizations.forget(intent.organizationId);
      return { kind: "paid", intentId: id, credit, isReplay: false };
    }
    const now = await findPaymentIntent(background, id);
    if (now === undefined) throw new Error(`payment ${id} is missing`);
    return replayed(await this.#paid(now), now.transactionId === success.transactionId);
  }

  /** Stores the receipt URL of a payment. It is only displayed. */
  #addReceipt(intent: PaymentIntent): void {
    const { background, processor, onError } = this.#dependencies;
    processor
      .lookUp(earlierChargeOf(intent))
      .then(async (outcome) => {
        if (outcome.kind !== "succeeded" || outcome.receiptUrl === undefined) return;
        await keepReceipt(background, intent.id, outcome.receiptUrl);
      })
      .catch(onError);
  }

  async #lookUpOpen(): Promise<void> {
    const { background, instance, processor, methods, clock, onError } = this.#dependencies;
    try {
      const claimed = await claimOpenPayments(
        background,
        instance.id,
        processor.name,
        OPEN_AT_A_TIME,
      );
      await Promise.all(claimed.map((intent) => this.#lookUp(intent)));
      if (this.#looks++ % LOOKS_A_SETUP === 0) await methods.completePending();
    } catch (error) {
      onError(error);
    }
    if (this.#isClosed) return;
    this.#cancelLook = clock.after(LOOK_MS, () => void this.#lookUpOpen());
  }
}

const TITLES: Readonly<Record<PaymentPurpose, string>> = {
  topup: "Top-up",
  auto_replenish: "Automatic top-up",
};

function replayed(result: PaymentResult, isFirstResult = false): PaymentResult {
  return result.kind === "paid" ? { ...result, isReplay: !isFirstResult } : result;
}

function chargeOf(intent: NewPaymentIntent) {
  return {
    intentId: intent.id,
    organizationId: intent.organizationId,
    amountNano: intent.amountNano,
    customer: intent.customer ?? undefined,
    method: intent.method,
    description: intent.description,
    returnUrl: intent.returnUrl ?? undefined,
  };
}

function earlierChargeOf(intent: PaymentIntent): EarlierCharge {
  return {
    ...chargeOf(intent),
    reference: intent.reference ?? undefined,
    createdAtMs: intent.createdAtMs,
  };
}
