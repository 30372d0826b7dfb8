import type { NanoUsd } from "../../lib/money.ts";

/** Limits of a single payment, in USD. */
export const MIN_PAYMENT_USD = 5;
export const MAX_PAYMENT_USD = 10_000;
export const MAX_PAYMENT_DECIMALS = 2;

/** A payment as the processor receives it. A repeated call for the same intent charges nothing more. */
export interface Charge {
  /**
   * The id of the payment intent in our database. It is the idempotency key at the processor, which stores it
   * with the payment.
   */
  readonly intentId: string;
  readonly organizationId: string;
  /** Amount in nano-USD. A multiple of one cent. */
  readonly amountNano: NanoUsd;
  /** The id that `createCustomer` returned. */
  readonly customer: string | undefined;
  /** The processor's id of a saved method. */
  readonly method: string;
  readonly description: string;
  /**
   * The URL to which the bank's page returns the payer. Undefined if no payer is present to authenticate.
   */
  readonly returnUrl: string | undefined;
}

/** A charge that was requested before. */
export interface EarlierCharge extends Charge {
  /** The processor's id of the charge, if it is known. */
  readonly reference: string | undefined;
  readonly createdAtMs: number;
}

export type ChargeOutcome =
  | { readonly kind: "succeeded"; readonly reference: string; readonly receiptUrl?: string }
  | {
      readonly kind: "declined";
      readonly reference?: string;
      /** The decline code, such as `insufficient_funds`. */
      readonly reason: string;
      /** A text for the payer, without secrets. */
      readonly message: string;
    }
  /** The payer's bank requires authentication (3-D Secure). */
  | {
      readonly kind: "action";
      readonly reference: string;
      /** The page on which the payer authenticates. */
      readonly url?: string;
      /**
       * A secret with which the processor's browser library can authenticate the payer in place of the page.
       */
      readonly clientSecret?: string;
    }
  /** Nothing was charged, for a reason other than the card. */
  | { readonly kind: "refused"; readonly cause: PaymentProcessorError }
  /** It is not known whether the charge succeeded: the processor did not answer, or has not decided. */
  | { readonly kind: "unknown"; readonly reference?: string; readonly cause?: unknown };

export interface CardRefund {
  /** The id of the refund in our database. It is the idempotency key at the processor. */
  readonly refundId: string;
  readonly organizationId: string;
  /** The processor's id of the refunded payment. */
  readonly chargeReference: string;
  /** Amount in nano-USD. A multiple of one cent. */
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
  /** Our id of the refund. Undefined if the refund was made at the processor. */
  readonly refundId: string | undefined;
  readonly chargeReference: string;
  readonly amountNano: NanoUsd;
  readonly hasFailed: boolean;
}

/** A payment method that the processor stores. The gateway never sees a card number. */
export interface SavedMethod {
  /** The processor's id of the method. */
  readonly reference: string;
  /** The type of the method, such as `card`. */
  readonly type: string;
  readonly brand: string | null;
  readonly last4: string | null;
}

export interface MethodSetup {
  /** The processor's id of the setup. */
  readonly reference: string;
  /** The processor's page on which the payer enters a card. */
  readonly url: string;
}

export type SetupOutcome =
  | { readonly kind: "complete"; readonly method: SavedMethod }
  | { readonly kind: "open" }
  | { readonly kind: "ended" };

/**
 * A payment processor, which charges cards. Outcomes are returned as values. Only calls that move no money
 * reject, with a `PaymentProcessorError`.
 */
export interface PaymentProcessor {
  readonly name: "test" | "stripe";
  /** True if payers authenticate on pages of the gateway in place of a bank's pages. */
  readonly awaitsTestPayers?: boolean;
  /** Creates a customer. Returns undefined if the processor stores no customers. */
  createCustomer(organization: {
    readonly id: string;
    readonly name: string;
  }): Promise<string | undefined>;
  charge(charge: Charge): Promise<ChargeOutcome>;
  /**
   * Returns the outcome of a charge. If the charge never reached the processor, the look-up can carry it out.
   */
  lookUp(charge: EarlierCharge): Promise<ChargeOutcome>;
  /**
   * Cancels a charge that waits for its payer. Returns the outcome, because the charge may have succeeded before.
   */
  cancel(charge: EarlierCharge): Promise<ChargeOutcome>;
  refund(refund: CardRefund): Promise<RefundOutcome>;
  lookUpRefund(refund: EarlierRefund): Promise<RefundOutcome>;
  /** Returns the refunds of a payment, including refunds that were made at the processor. */
  refundsOf(chargeReference: string): Promise<ReportedRefund[]>;
  /** Starts to save a method on the processor's page. Returns undefined if the processor has no page. */
  beginSetup(setup: {
    readonly methodId: string;
    readonly organizationId: string;
    readonly customer: string | undefined;
    readonly returnUrl: string;
  }): Promise<MethodSetup | undefined>;
  readSetup(reference: string): Promise<SetupOutcome>;
  readMethod(reference: string): Promise<SavedMethod>;
  /**
   * Returns the method with this name, which needs no page. Returns undefined if the processor has no such
   * method.
   */
  namedMethod(name: string): SavedMethod | undefined;
  detach(method: string): Promise<void>;
}

/** The processor rejected a call, or did not answer. Nothing was paid. */
export class PaymentProcessorError extends Error {
  /** True if the call can succeed later. */
  readonly isRetryable: boolean;

  constructor(message: string, isRetryable: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = "PaymentProcessorError";
    this.isRetryable = isRetryable;
  }
}
