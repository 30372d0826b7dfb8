import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import {
  type Charge,
  type ChargeOutcome,
  type EarlierCharge,
  type PaymentProcessor,
  PaymentProcessorError,
  type RefundOutcome,
  type SavedMethod,
  type SetupOutcome,
} from "./interface.ts";

interface TestCard {
  readonly brand: string;
  readonly last4: string;
  readonly declines?: { readonly reason: string; readonly message: string };
  readonly asksPayer?: true;
}

const declined = (last4: string, reason: string, message: string): TestCard => ({
  brand: "visa",
  last4,
  declines: { reason, message },
});

const DECLINED = declined("0002", "generic_decline", "Your card was declined.");
const NO_FUNDS = declined("9995", "insufficient_funds", "Your card has insufficient funds.");
const EXPIRED = declined("0069", "expired_card", "Your card has expired.");
const WRONG_CVC = declined("0127", "incorrect_cvc", "Your card's security code is incorrect.");
const PROCESSING = declined(
  "0119",
  "processing_error",
  "An error occurred while processing your card. Try again in a little bit.",
);
const ASKS_PAYER: TestCard = { brand: "visa", last4: "3184", asksPayer: true };

/** The path of the pages on which payers of test cards authenticate. */
export const TEST_PAGES = "/v1/billing/test_payments";

/** Stripe's names of test methods, and how each behaves (https://docs.stripe.com/testing). */
const CARDS: Readonly<Record<string, TestCard>> = {
  pm_card_visa: { brand: "visa", last4: "4242" },
  pm_card_visa_debit: { brand: "visa", last4: "5556" },
  pm_card_us: { brand: "visa", last4: "4242" },
  pm_card_mastercard: { brand: "mastercard", last4: "4444" },
  pm_card_mastercard_debit: { brand: "mastercard", last4: "8210" },
  pm_card_mastercard_prepaid: { brand: "mastercard", last4: "5100" },
  pm_card_amex: { brand: "amex", last4: "8431" },
  pm_card_discover: { brand: "discover", last4: "9424" },
  pm_card_diners: { brand: "diners", last4: "3220" },
  pm_card_jcb: { brand: "jcb", last4: "0505" },
  pm_card_unionpay: { brand: "unionpay", last4: "0005" },
  pm_card_chargeDeclined: DECLINED,
  pm_card_visa_chargeDeclined: DECLINED,
  pm_card_chargeCustomerFail: declined("0341", "generic_decline", "Your card was declined."),
  pm_card_chargeDeclinedInsufficientFunds: NO_FUNDS,
  pm_card_visa_chargeDeclinedInsufficientFunds: NO_FUNDS,
  pm_card_visa_chargeDeclinedLostCard: declined("9987", "lost_card", "Your card was declined."),
  pm_card_visa_chargeDeclinedStolenCard: declined("9979", "stolen_card", "Your card was declined."),
  pm_card_visa_chargeDeclinedVelocityLimitExceeded: declined(
    "6975",
    "card_velocity_exceeded",
    "Your card was declined for making repeated attempts too frequently.",
  ),
  pm_card_chargeDeclinedExpiredCard: EXPIRED,
  pm_card_chargeDeclinedIncorrectCvc: WRONG_CVC,
  pm_card_chargeDeclinedProcessingError: PROCESSING,
  pm_card_radarBlock: declined("0019", "fraudulent", "Your card was declined."),
  pm_card_authenticationRequired: ASKS_PAYER,
  pm_card_threeDSecure2Required: { ...ASKS_PAYER, last4: "3220" },
  pm_card_threeDSecureRequired: { ...ASKS_PAYER, last4: "3063" },
  pm_card_authenticationRequiredOnSetup: { ...ASKS_PAYER, last4: "3155" },
};

/**
 * The payment processor of a gateway without a configured one. No money moves. The name of a test method
 * alone decides its outcome, so that repeated charges and all instances agree. The reference of a payment
 * contains the token of the page on which its payer authenticates.
 */
export class TestProcessor implements PaymentProcessor {
  readonly name = "test";
  readonly #isOn: boolean;

  /** @param isOn false if the processor has no methods and declines methods that were saved before */
  constructor(isOn: boolean) {
    this.#isOn = isOn;
  }

  /** False if the processor is off. It then credits no payment that waited for its payer. */
  get awaitsTestPayers(): boolean {
    return this.#isOn;
  }

  async createCustomer(): Promise<undefined> {}

  async charge(charge: Charge): Promise<ChargeOutcome> {
    const reference = `test_${charge.intentId}`;
    const card = this.#isOn ? cardOf(charge.method) : undefined;
    if (card === undefined) {
      const message = this.#isOn
        ? "The test processor has no such payment method."
        : "This gateway accepts no payments.";
      return { kind: "declined", reference, reason: "invalid_payment_method", message };
    }
    if (card.declines !== undefined) return { kind: "declined", reference, ...card.declines };
    if (card.asksPayer) {
      return askPayer(charge, `${reference}_${randomBytes(TOKEN_BYTES).toString("hex")}`);
    }
    return { kind: "succeeded", reference };
  }

  async lookUp(charge: EarlierCharge): Promise<ChargeOutcome> {
    const { reference } = charge;
    const outcome = await this.charge(charge);
    return outcome.kind === "action" && reference !== undefined
      ? askPayer(charge, reference)
      : outcome;
  }

  async cancel({ intentId }: EarlierCharge): Promise<ChargeOutcome> {
    const message = "The payment was not authenticated in time.";
    return { kind: "declined", reference: `test_${intentId}`, reason: "canceled", message };
  }

  async refund({ refundId }: { readonly refundId: string }): Promise<RefundOutcome> {
    return { kind: "succeeded", reference: `test_${refundId}` };
  }

  lookUpRefund(refund: { readonly refundId: string }): Promise<RefundOutcome> {
    return this.refund(refund);
  }

  async refundsOf(): Promise<[]> {
    return [];
  }

  async beginSetup(): Promise<undefined> {}

  async readSetup(): Promise<SetupOutcome> {
    return { kind: "ended" };
  }

  async readMethod(reference: string): Promise<SavedMethod> {
    const method = this.namedMethod(reference);
    if (method === undefined) throw new PaymentProcessorError("no such test method", false);
    return method;
  }

  namedMethod(name: string): SavedMethod | undefined {
    const card = this.#isOn ? cardOf(name) : undefined;
    return card && { reference: name, type: "card", brand: card.brand, last4: card.last4 };
  }

  async detach(): Promise<void> {}
}

const TOKEN_BYTES = 16;

/** Returns true if the token belongs to the page on which this payment is authenticated. */
export function isTokenOf(reference: string | null, intentId: string, token: string): boolean {
  const digest = createHash("sha256").update(`test_${intentId}_${token}`).digest();
  return (
    reference !== null && timingSafeEqual(digest, createHash("sha256").update(reference).digest())
  );
}

/**
 * Returns the gateway's own page in place of a bank's page. The URL ends with a secret token, which
 * identifies the payer.
 */
function askPayer({ intentId, returnUrl }: Charge, reference: string): ChargeOutcome {
  if (returnUrl === undefined) {
    const message = "The card requires authentication by its holder.";
    return { kind: "declined", reference, reason: "authentication_required", message };
  }
  const token = reference.slice(reference.lastIndexOf("_") + 1);
  const url = new URL(`${TEST_PAGES}/${intentId}/${token}`, returnUrl).href;
  return { kind: "action", reference, url };
}

function cardOf(method: string): TestCard | undefined {
  return Object.hasOwn(CARDS, method) ? CARDS[method] : undefined;
}
