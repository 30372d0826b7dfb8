import type { NanoUsd } from "../../lib/money.ts";

/** What one payment may be. */
export const MIN_PAYMENT_USD = 5;
export const MAX_PAYMENT_USD = 10_000;
export const MAX_PAYMENT_DECIMALS = 2;

/** A payment as the processor is asked for it. Asking again for the same intent charges nothing more. */
export interface Charge {
  /** Our intent: the idempotency key at the processor, which keeps it with the payment. */
  readonly intentId: string;
  readonly organizationId: string;
  /** Whole cents. */
  readonly amountNano: NanoUsd;
  /** Of `createCustomer`. */
  readonly customer: string | undefined;
  /** A saved method, as the processor names it. */
  readonly method: string;
  readonly description: string;
  /** Where the payer comes back to from a page of the bank; undefined: the payer is not there to see one. */
  readonly returnUrl: string | undefined;
}

/** A charge that was asked for before. */
export interface EarlierCharge extends Charge {
  /** The processor's name for it, where that is known. */
  readonly reference: string | undefined;
  readonly createdAtMs: number;
}

export type ChargeOutcome =
  | { readonly kind: "succeeded"; readonly reference: string; readonly receiptUrl?: string }
  | {
      readonly kind: "declined";
      readonly reference?: string;
      /** Such as `insufficient_funds`. */
      readonly reason: string;
      /** For the payer, without secrets. */
      readonly message: string;
    }
  /** The payer's bank asks for authentication (3-D Secure). */
  | {
      readonly kind: "action";
      readonly reference: string;
      /** A page where the payer authenticates. */
      readonly url?: string;
      /** Lets the processor's own library in a browser do the same. */
      readonly clientSecret?: string;
    }
  /** Nothing was charged, and that is not the card's fault. */
  | { readonly kind: "refused"; readonly cause: PaymentProcessorError }
  /** Charged or not: the processor did not say, or has not decided. */
  | { readonly kind: "unknown"; readonly reference?: string; readonly cause?: unknown };

export interface CardRefund {
  /** Our refund: the idempotency key at the processor. */
  readonly refundId: string;
  readonly organizationId: string;
  /** The payment that it gives back, as the processor names it. */
  readonly chargeReference: string;
  /** Whole cents. */
  readonly amountNano: NanoUsd;
}

export interface EarlierRefund extends CardRefund {
  readonly reference: string | undefined;
  readonly createdAtMs: number;
}

export type RefundOutcome =
  | { readonly kind: "succeeded"; readonly reference: string }
  | { readonly kind: "failed"; readonly reference?: string; readonly message: string }
  | { readonly kind: "unknown"; readonly reference?: string; readonly cause?: unknown };

export interface ReportedRefund {
  readonly reference: string;
  /** Undefined: it was made at the processor. */
  readonly refundId: string | undefined;
  readonly chargeReference: string;
  readonly amountNano: NanoUsd;
  readonly hasFailed: boolean;
}

/** A way to pay that the processor keeps; the gateway never sees the number of a card. */
export interface SavedMethod {
  /** As the processor names it. */
  readonly reference: string;
  /** Such as `card`. */
  readonly type: string;
  readonly brand: string | null;
  readonly last4: string | null;
}

export interface MethodSetup {
  /** As the processor names it. */
  readonly reference: string;
  /** The processor's own page, where the payer enters a card. */
  readonly url: string;
}

export type SetupOutcome =
  | { readonly kind: "complete"; readonly method: SavedMethod }
  | { readonly kind: "open" }
  | { readonly kind: "ended" };

/**
 * What takes money from cards. Outcomes are values; what rejects is a `PaymentProcessorError`, from calls
 * that move no money.
 */
export interface PaymentProcessor {
  readonly name: "test" | "stripe";
  /** True if pages of the gateway, on which payers authenticate, stand in for those of a bank. */
  readonly awaitsTestPayers?: boolean;
  /** Undefined where the processor keeps no customers. */
  createCustomer(organization: {
    readonly id: string;
    readonly name: string;
  }): Promise<string | undefined>;
  charge(charge: Charge): Promise<ChargeOutcome>;
  /** What became of a charge; one that never arrived there may be carried out by it. */
  lookUp(charge: EarlierCharge): Promise<ChargeOutcome>;
  /** Ends a charge that waits for its payer. It may have succeeded meanwhile. */
  cancel(charge: EarlierCharge): Promise<ChargeOutcome>;
  refund(refund: CardRefund): Promise<RefundOutcome>;
  lookUpRefund(refund: EarlierRefund): Promise<RefundOutcome>;
  /** Those of a payment, also such as were made at the processor. */
  refundsOf(chargeReference: string): Promise<ReportedRefund[]>;
  /** Begins to save a method on the processor's page; undefined where there is none. */
  beginSetup(setup: {
    readonly methodId: string;
    readonly organizationId: string;
    readonly customer: string | undefined;
    readonly returnUrl: string;
  }): Promise<MethodSetup | undefined>;
  readSetup(reference: string): Promise<SetupOutcome>;
  readMethod(reference: string): Promise<SavedMethod>;
  /** A method that needs no page, by its name; undefined where the processor has no such. */
  namedMethod(name: string): SavedMethod | undefined;
  detach(method: string): Promise<void>;
}

/** The processor refused, or did not answer; nothing was paid. */
export class PaymentProcessorError extends Error {
  /** True where the same may succeed later. */
  readonly isPassing: boolean;

  constructor(message: string, isPassing: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = "PaymentProcessorError";
    this.isPassing = isPassing;
  }
}
