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
  failPayment,
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
import { noteUnpaid, notSent, resultOf, unpaidBecause } from "./unpaid.ts";

export interface PaymentsDependencies {
  /** For what has to be written although it takes its time. */
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
  /** Chosen by who orders the same payment perhaps more than once: it is made once. */
  readonly intentId?: string;
  readonly organizationId: string;
  /** Null: the gateway itself orders it. */
  readonly keyId: string | null;
  /** Undefined: the gateway itself. */
  readonly author?: Author;
  /** The same key of the same API key pays once; `bodyHash` tells another order under it. */
  readonly idempotency?: { readonly key: string; readonly bodyHash: string } | undefined;
  readonly purpose: PaymentPurpose;
  /** Whole cents. */
  readonly amountNano: NanoUsd;
  /** A saved one of the organization, or a name that the test processor knows; undefined: the default. */
  readonly methodId: string | undefined;
  /** Where the payer comes back to from a page of the bank; undefined: the payer is not there. */
  readonly returnUrl: string | undefined;
}

export type PaymentResult =
  | {
      readonly kind: "paid";
      readonly intentId: string;
      readonly credit: PostedCredit;
      /** True where it was paid before, under the same idempotency key. */
      readonly isReplay: boolean;
    }
  | {
      readonly kind: "declined";
      readonly intentId: string;
      /** Such as `insufficient_funds`. */
      readonly reason: string;
      readonly message: string;
    }
  /** The payer is to authenticate; then it is credited. */
  | {
      readonly kind: "action";
      readonly intentId: string;
      readonly url: string | undefined;
      readonly clientSecret: string | undefined;
    }
  /** Nothing was charged, and that is not the card's fault. */
  | { readonly kind: "refused"; readonly intentId: string; readonly cause: unknown }
  /** Charged or not: it is looked up until that is known, and credited then. */
  | { readonly kind: "unknown"; readonly intentId: string };

const LOOK_MS = 5_000;
/** Looks of payments for one of methods that are being added. */
const LOOKS_A_SETUP = 12;
const OPEN_AT_A_TIME = 20;
const JOIN_RETRY_MS = 250;
const WITHDRAW_TRIES = 20;
const WITHDRAW_RETRY_MS = 2_000;
/** A payment that someone else makes is waited for so long; the processor answers within. */
const MAX_JOIN_MS = 25_000;
/** A payer who has not authenticated by then does not come any more. */
const MAX_ACTION_MS = 86_400_000;

/**
 * Payments by card, each of which is credited once. Its intent is durable before the processor is asked,
 * under the intent's id as its idempotency key; the credit is posted in the transaction that moves the intent
 * to `succeeded`, whichever finds out first: the answer, an event of the processor, or a later look. What a
 * crash or a silent processor leaves open is looked up at the start and every few seconds, by the instance
 * that claims it.
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

  /** Throws 400, 402 and 404 for the method, 409 for another order under the same idempotency key. */
  async pay(order: PaymentOrder): Promise<PaymentResult> {
    const { methods, processor } = this.#dependencies;
    for (;;) {
      const known = await this.#known(order);
      if (known !== undefined) {
        const joined = await this.#join(known);
        // It never reached the processor, and its idempotency key is free: it is ordered again.
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

  /** The processor reports that a payment has succeeded. Nothing happens where that is none of ours. */
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

  /** Looks a payment up that the processor may have decided, unless an instance already does. */
  async recheck(intentId: string): Promise<void> {
    const { background, instance, processor } = this.#dependencies;
    const intent = await findPaymentIntent(background, intentId);
    if (intent?.processor !== processor.name) return;
    const claimed = await claimPaymentIntent(background, instance.id, intentId);
    if (claimed !== undefined) await this.#lookUp(claimed);
  }

  /** Whether a payment of the test processor waits for its payer on the page with this token. */
  async awaitsTestPayer(intentId: string, token: string): Promise<boolean> {
    return (await this.#testIntent(intentId, token)) !== undefined;
  }

  /** The holder of a test card has authenticated. False where no such payment waits for that. */
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

  /** What became of a payment; undefined where there is none of the id. */
  async result(intentId: string): Promise<PaymentResult | undefined> {
    const intent = await findPaymentIntent(this.#dependencies.sql, intentId);
    return intent && (await this.#settledResult(intent));
  }

  /** Looks open payments up, now and every few seconds. */
  start(): void {
    void this.#lookUpOpen();
  }

  /** Waits for payments under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelLook?.();
    await Promise.allSettled(this.#running.values());
  }

  /** Throws 409. */
  async #known({ intentId, keyId, idempotency }: PaymentOrder): Promise<PaymentIntent | undefined> {
    const { sql } = this.#dependencies;
    if (intentId !== undefined) return findPaymentIntent(sql, intentId);
    if (keyId === null || idempotency === undefined) return undefined;
    const known = await findPaymentByKey(sql, keyId, idempotency.key);
    if (known === undefined || known.bodyHash === idempotency.bodyHash) return known;
    throw new GatewayError(
      "idempotency_conflict",
      "This idempotency key was used with a different request.",
      { param: "Idempotency-Key" },
    );
  }

  /** Of an order whose writing fails, nothing is paid: its caller has an error, and may order it again. */
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
   * It may stand there although the answer was lost. No instance looks at it before the tries are over; if this one was
   * declared dead, another has it, and nothing is withdrawn.
   */
  async #withdraw(id: string): Promise<void> {
    const { background, clock, instance, onError } = this.#dependencies;
    for (let tries = 0; tries < WITHDRAW_TRIES; tries++) {
      try {
        await failPayment(background, instance, notSent(id));
        return;
      } catch (error) {
        onError(error);
        await sleep(clock, WITHDRAW_RETRY_MS);
      }
    }
  }

  /** Waits for a payment that was ordered before, and looks it up where no instance does. */
  async #join(known: PaymentIntent): Promise<PaymentResult> {
    const { sql, clock, instance, processor } = this.#dependencies;
    if (known.processor !== processor.name) return this.#joinForeign(known);
    const untilMs = clock.nowMs() + MAX_JOIN_MS;
    for (let intent: PaymentIntent | undefined = known; intent !== undefined; ) {
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
    return { kind: "unknown", intentId: known.id };
  }

  /**
   * One of a processor that this gateway is not set up for any more: it stays open until it is, because another one
   * knows nothing of it. The test processor has moved no money.
   */
  async #joinForeign(known: PaymentIntent): Promise<PaymentResult> {
    const { background, instance } = this.#dependencies;
    const { id, processor } = known;
    if (processor === "test" && (await claimPaymentIntent(background, instance.id, id))) {
      await failPayment(background, instance, notSent(id, "processor_replaced"));
    }
    return this.#settledResult((await findPaymentIntent(background, id)) ?? known);
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

  /** Asks the processor, and writes down what it says; goes on although its caller has left. */
  #carryOut(
    id: string,
    ask: () => Promise<ChargeOutcome>,
    intent: NewPaymentIntent,
  ): Promise<PaymentResult> {
    const running = this.#record(intent, ask)
      .catch((error: unknown): PaymentResult => {
        // It stays open, and is looked up.
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
      const isNoted = await noteUnpaid(background, instance, id, outcome);
      // An event of the processor, or another instance, may have been faster.
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

  /** For show only. */
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

function replayed(result: PaymentResult, isOwn = false): PaymentResult {
  return result.kind === "paid" ? { ...result, isReplay: !isOwn } : result;
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
