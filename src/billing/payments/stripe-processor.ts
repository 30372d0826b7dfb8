import Stripe from "stripe";
import type { NanoUsd } from "../../lib/money.ts";
import {
  type CardRefund,
  type Charge,
  type ChargeOutcome,
  type EarlierCharge,
  type EarlierRefund,
  type MethodSetup,
  type PaymentProcessor,
  PaymentProcessorError,
  type RefundOutcome,
  type ReportedRefund,
  type SavedMethod,
  type SetupOutcome,
} from "./interface.ts";

/** Metadata fields in which Stripe's objects store our ids. */
export const INTENT_FIELD = "gateway_payment";
export const METHOD_FIELD = "gateway_payment_method";
const REFUND_FIELD = "gateway_refund";
export const ORGANIZATION_FIELD = "gateway_organization";

/** The version whose response shapes this file reads. It overrides the account's default version. */
const API_VERSION = "2026-10-28.endive";
/** A charge is requested once. If Stripe does not answer within this time, the charge is looked up. */
const TIMEOUT_MS = 20_000;
const READ_RETRIES = 1;
/**
 * Stripe stores idempotency keys for at least a day. Within this time a charge can be requested again under
 * its key.
 */
export const KEY_LIFE_MS = 23 * 3_600_000;
const LIST_LIMIT = 100;
const NANO_PER_CENT = 10_000_000n;

interface StripeAccess {
  readonly secretKey: string;
  readonly apiBase: string;
}

/** Returns a client of the Stripe API at `apiBase`, which can be a test server. */
export function createStripe({ secretKey, apiBase }: StripeAccess, timeoutMs = TIMEOUT_MS): Stripe {
  const base = new URL(apiBase);
  const isPlain = base.protocol === "http:";
  return new Stripe(secretKey, {
    apiVersion: API_VERSION,
    host: base.hostname,
    protocol: isPlain ? "http" : "https",
    port: base.port === "" ? (isPlain ? 80 : 443) : base.port,
    httpClient: Stripe.createFetchHttpClient(),
    timeout: timeoutMs,
    maxNetworkRetries: 0,
    telemetry: false,
  });
}

/**
 * Card payments with Stripe PaymentIntents. Our intent's id is the idempotency key and is stored in the
 * metadata.
 */
export class StripeProcessor implements PaymentProcessor {
  readonly name = "stripe";
  readonly #stripe: Stripe;
  readonly #nowMs: () => number;

  constructor(stripe: Stripe, nowMs: () => number) {
    this.#stripe = stripe;
    this.#nowMs = nowMs;
  }

  async createCustomer(organization: {
    readonly id: string;
    readonly name: string;
  }): Promise<string> {
    const { id } = await asked(() =>
      this.#stripe.customers.create(
        { name: organization.name, metadata: { [ORGANIZATION_FIELD]: organization.id } },
        { idempotencyKey: `customer-${organization.id}`, maxNetworkRetries: READ_RETRIES },
      ),
    );
    return id;
  }

  async charge(charge: Charge): Promise<ChargeOutcome> {
    return this.#outcome(charge, () => this.#create(charge), true);
  }

  async lookUp(charge: EarlierCharge): Promise<ChargeOutcome> {
    const { reference } = charge;
    if (reference !== undefined) {
      return this.#outcome(charge, () => this.#retrieve(reference), false);
    }
    if (this.#nowMs() - charge.createdAtMs < KEY_LIFE_MS) {
      return this.#outcome(charge, () => this.#create(charge), false);
    }
    try {
      const intent = await this.#find(charge);
      if (intent !== undefined) return await this.#outcome(charge, async () => intent, false);
    } catch (error) {
      return { kind: "unknown", cause: asProcessorError(error) };
    }
    const message = "The payment never reached the payment processor.";
    return { kind: "declined", reason: "not_sent", message };
  }

  async cancel(charge: EarlierCharge): Promise<ChargeOutcome> {
    const { reference } = charge;
    if (reference !== undefined) {
      try {
        await this.#stripe.paymentIntents.cancel(reference);
      } catch {
        // The payment has ended in the meantime, or Stripe does not answer. The look-up tells which.
      }
    }
    return this.lookUp(charge);
  }

  async refund(refund: CardRefund): Promise<RefundOutcome> {
    return this.#refundOutcome(() => this.#createRefund(refund), true);
  }

  async lookUpRefund(refund: EarlierRefund): Promise<RefundOutcome> {
    const { reference, refundId } = refund;
    if (reference !== undefined) {
      return this.#refundOutcome(() => this.#stripe.refunds.retrieve(reference), false);
    }
    if (this.#nowMs() - refund.createdAtMs < KEY_LIFE_MS) {
      return this.#refundOutcome(() => this.#createRefund(refund), false);
    }
    try {
      const listed = await this.#stripe.refunds.list({
        payment_intent: refund.chargeReference,
        limit: LIST_LIMIT,
      });
      const match = listed.data.find((refund) => refund.metadata?.[REFUND_FIELD] === refundId);
      if (match !== undefined) return await this.#refundOutcome(async () => match, false);
    } catch (error) {
      return { kind: "unknown", cause: asProcessorError(error) };
    }
    return { kind: "failed", message: "The refund never reached the payment processor." };
  }

  async refundsOf(chargeReference: string): Promise<ReportedRefund[]> {
    const listed = await asked(() =>
      this.#stripe.refunds.list(
        { payment_intent: chargeReference, limit: LIST_LIMIT },
        { maxNetworkRetries: READ_RETRIES },
      ),
    );
    return listed.data.flatMap((refund) => reportedRefund(refund) ?? []);
  }

  async beginSetup(setup: {
    readonly methodId: string;
    readonly organizationId: string;
    readonly customer: string | undefined;
    readonly returnUrl: string;
  }): Promise<MethodSetup> {
    const metadata = {
      [METHOD_FIELD]: setup.methodId,
      [ORGANIZATION_FIELD]: setup.organizationId,
    };
    const session = await asked(() =>
      this.#stripe.checkout.sessions.create(
        {
          mode: "setup",
          currency: "usd",
          allowed_payment_method_types: ["card"],
          customer: setup.customer,
          success_url: setup.returnUrl,
          cancel_url: setup.returnUrl,
          client_reference_id: setup.methodId,
          metadata,
          setup_intent_data: { metadata },
        },
        { idempotencyKey: `setup-${setup.methodId}`, maxNetworkRetries: READ_RETRIES },
      ),
    );
    if (!session.url) throw new PaymentProcessorError("Stripe returned no page URL", false);
    return { reference: session.id, url: session.url };
  }

  async readSetup(reference: string): Promise<SetupOutcome> {
    const session = await asked(() =>
      this.#stripe.checkout.sessions.retrieve(
        reference,
        { expand: ["setup_intent"] },
        { maxNetworkRetries: READ_RETRIES },
      ),
    );
    if (session.status === "expired") return { kind: "ended" };
    const { setup_intent: setupIntent } = session;
    if (session.status !== "complete" || setupIntent === null) return { kind: "open" };
    const intent =
      typeof setupIntent === "string"
        ? await asked(() => this.#stripe.setupIntents.retrieve(setupIntent))
        : setupIntent;
    const method = intent.payment_method;
    if (intent.status !== "succeeded" || !method) return { kind: "open" };
    return { kind: "complete", method: await this.readMethod(idOf(method)) };
  }

  namedMethod(): undefined {}

  async detach(method: string): Promise<void> {
    try {
      await asked(() => this.#stripe.paymentMethods.detach(method));
    } catch (error) {
      // The method is no longer attached.
      const { cause } = error as PaymentProcessorError;
      if (!(cause instanceof Stripe.errors.StripeInvalidRequestError)) throw error;
    }
  }

  async readMethod(reference: string): Promise<SavedMethod> {
    const method = await asked(() =>
      this.#stripe.paymentMethods.retrieve(reference, {}, { maxNetworkRetries: READ_RETRIES }),
    );
    const { card } = method;
    const brand = card?.brand ?? null;
    return { reference: method.id, type: method.type, brand, last4: card?.last4 ?? null };
  }

  /** Sends the same parameters each time, because Stripe rejects different parameters under the same key. */
  #create(charge: Charge): Promise<Stripe.PaymentIntent> {
    return this.#stripe.paymentIntents.create(
      {
        amount: centsOf(charge.amountNano),
        currency: "usd",
        customer: charge.customer,
        payment_method: charge.method,
        allowed_payment_method_types: ["card"],
        confirm: true,
        off_session: true,
        description: charge.description,
        metadata: {
          [INTENT_FIELD]: charge.intentId,
          [ORGANIZATION_FIELD]: charge.organizationId,
        },
        expand: ["latest_charge"],
      },
      { idempotencyKey: charge.intentId },
    );
  }

  #retrieve(reference: string): Promise<Stripe.PaymentIntent> {
    return this.#stripe.paymentIntents.retrieve(
      reference,
      { expand: ["latest_charge"] },
      { maxNetworkRetries: READ_RETRIES },
    );
  }

  #createRefund(refund: CardRefund): Promise<Stripe.Refund> {
    return this.#stripe.refunds.create(
      {
        payment_intent: refund.chargeReference,
        amount: centsOf(refund.amountNano),
        metadata: {
          [REFUND_FIELD]: refund.refundId,
          [ORGANIZATION_FIELD]: refund.organizationId,
        },
      },
      { idempotencyKey: refund.refundId },
    );
  }

  /**
   * Finds a payment by its metadata. Uses the list, because it shows new payments immediately and the search
   * does not.
   */
  async #find(charge: EarlierCharge): Promise<Stripe.PaymentIntent | undefined> {
    const created = { gte: Math.floor(charge.createdAtMs / 1_000) - 60 };
    const pages = this.#stripe.paymentIntents.list({
      created,
      ...(charge.customer !== undefined && { customer: charge.customer }),
      limit: LIST_LIMIT,
      expand: ["data.latest_charge"],
    });
    for await (const intent of pages) {
      if (intent.metadata?.[INTENT_FIELD] === charge.intentId) return intent;
    }
    return undefined;
  }

  /**
   * Calls Stripe and returns the outcome.
   *
   * @param isFirst true if the charge was never sent before; a rejection then means that nothing was paid
   */
  async #outcome(
    charge: Charge,
    ask: () => Promise<Stripe.PaymentIntent>,
    isFirst: boolean,
  ): Promise<ChargeOutcome> {
    try {
      return await this.#read(charge, await ask());
    } catch (error) {
      if (error instanceof Stripe.errors.StripeCardError) return this.#declined(charge, error);
      const isRefused = isFirst && isRefusal(error);
      return isRefused
        ? { kind: "refused", cause: asProcessorError(error) }
        : { kind: "unknown", cause: asProcessorError(error) };
    }
  }

  async #read(charge: Charge, intent: Stripe.PaymentIntent): Promise<ChargeOutcome> {
    const { id: reference, status } = intent;
    if (status === "succeeded") return successOf(charge.amountNano, intent);
    if (status === "requires_action") {
      return charge.returnUrl === undefined
        ? declineForAbsentPayer(reference)
        : actionOf(reference, intent);
    }
    if (status === "canceled") {
      const message = "The payment was cancelled.";
      return { kind: "declined", reference, reason: "canceled", message };
    }
    if (status !== "requires_payment_method") return { kind: "unknown", reference };
    const last = intent.last_payment_error;
    if (requiresAuthentication(last)) return this.#askPayer(charge, reference);
    const reason = last?.decline_code ?? last?.code ?? "card_declined";
    return { kind: "declined", reference, reason, message: last?.message ?? DECLINED };
  }

  async #declined(charge: Charge, error: Stripe.errors.StripeCardError): Promise<ChargeOutcome> {
    const intent = error.payment_intent as Stripe.PaymentIntent | undefined;
    const reference = intent?.id;
    if (reference !== undefined && requiresAuthentication(error)) {
      return this.#askPayer(charge, reference);
    }
    const reason = error.decline_code ?? error.code ?? "card_declined";
    return {
      kind: "declined",
      ...(reference !== undefined && { reference }),
      reason,
      message: error.message === "" ? DECLINED : error.message,
    };
  }

  /**
   * Confirms the payment with the payer present, which starts the authentication. It is the same payment, so
   * it is paid at most once.
   */
  async #askPayer(charge: Charge, reference: string): Promise<ChargeOutcome> {
    const { returnUrl } = charge;
    if (returnUrl === undefined) return declineForAbsentPayer(reference);
    try {
      const confirmed = await this.#stripe.paymentIntents.confirm(
        reference,
        { payment_method: charge.method, return_url: returnUrl, expand: ["latest_charge"] },
        { idempotencyKey: `${charge.intentId}-confirm` },
      );
      const { status } = confirmed;
      if (status === "succeeded") return successOf(charge.amountNano, confirmed);
      if (status === "requires_action") return actionOf(reference, confirmed);
      if (status !== "requires_payment_method") return { kind: "unknown", reference };
      const message = confirmed.last_payment_error?.message ?? DECLINED;
      return { kind: "declined", reference, reason: "authentication_required", message };
    } catch (error) {
      if (!(error instanceof Stripe.errors.StripeCardError)) {
        return { kind: "unknown", reference, cause: asProcessorError(error) };
      }
      const reason = error.decline_code ?? error.code ?? "card_declined";
      return { kind: "declined", reference, reason, message: error.message };
    }
  }

  async #refundOutcome(
    ask: () => Promise<Stripe.Refund>,
    isFirst: boolean,
  ): Promise<RefundOutcome> {
    try {
      return refundOutcomeOf(await ask());
    } catch (error) {
      return isFirst && isRefusal(error)
        ? { kind: "failed", message: "The payment processor refused the refund." }
        : { kind: "unknown", cause: asProcessorError(error) };
    }
  }
}

/**
 * Returns undefined if the refund belongs to no payment intent or has another currency. Such a refund is not
 * the gateway's.
 */
export function reportedRefund(refund: Stripe.Refund): ReportedRefund | undefined {
  const { payment_intent: intent, amount, currency, status } = refund;
  if (!intent || currency !== "usd" || !Number.isSafeInteger(amount)) return undefined;
  return {
    reference: refund.id,
    refundId: refund.metadata?.[REFUND_FIELD],
    chargeReference: idOf(intent),
    amountNano: nanoOfCents(amount),
    hasFailed: status === "failed" || status === "canceled",
  };
}

function refundOutcomeOf(refund: Stripe.Refund): RefundOutcome {
  const { id: reference, status } = refund;
  if (status === "succeeded") return { kind: "succeeded", reference };
  if (status === "failed" || status === "canceled") {
    const reason = refund.failure_reason ?? status;
    return { kind: "failed", reference, message: `The refund failed: ${reason}.` };
  }
  return { kind: "unknown", reference };
}

/**
 * Returns the outcome of a paid intent. Throws if the amount differs, because the credited amount must be the
 * paid amount.
 */
function successOf(
  amountNano: NanoUsd | undefined,
  intent: Stripe.PaymentIntent,
): ChargeOutcome & { kind: "succeeded" } {
  const isExact =
    amountNano === undefined ||
    (intent.currency === "usd" && intent.amount_received === centsOf(amountNano));
  if (!isExact) {
    throw new Error(
      `payment ${intent.id} received ${intent.amount_received} ${intent.currency} instead of ${amountNano} nano-USD`,
    );
  }
  const charge = intent.latest_charge;
  const receiptUrl = typeof charge === "object" ? charge?.receipt_url : undefined;
  return {
    kind: "succeeded",
    reference: intent.id,
    ...(receiptUrl != null && { receiptUrl }),
  };
}

const DECLINED = "The card was declined.";

function actionOf(reference: string, intent: Stripe.PaymentIntent): ChargeOutcome {
  const url = intent.next_action?.redirect_to_url?.url;
  return {
    kind: "action",
    reference,
    ...(url != null && { url }),
    ...(intent.client_secret != null && { clientSecret: intent.client_secret }),
  };
}

function declineForAbsentPayer(reference: string): ChargeOutcome {
  const message = "The card requires authentication by its holder.";
  return { kind: "declined", reference, reason: "authentication_required", message };
}

function requiresAuthentication(
  error: { readonly code?: string; readonly decline_code?: string } | null,
): boolean {
  return (
    error?.code === "authentication_required" || error?.decline_code === "authentication_required"
  );
}

/**
 * Returns true if Stripe stated that it did not carry out the request. After any other error the request was
 * possibly carried out.
 */
export function isRefusal(error: unknown): boolean {
  const { errors } = Stripe;
  return (
    error instanceof errors.StripeInvalidRequestError ||
    error instanceof errors.StripeAuthenticationError ||
    error instanceof errors.StripePermissionError ||
    error instanceof errors.StripeRateLimitError
  );
}

/**
 * Returns an error that is safe to log. Stripe's errors contain whole objects with the secrets of payments.
 */
function asProcessorError(cause: unknown): PaymentProcessorError {
  const isRetryable = !isRefusal(cause) || cause instanceof Stripe.errors.StripeRateLimitError;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new PaymentProcessorError(`Stripe: ${reason}`, isRetryable, cause);
}

/** Calls Stripe and converts its errors. Only for calls that move no money. */
export async function asked<Result>(ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask();
  } catch (error) {
    throw asProcessorError(error);
  }
}

export function idOf(named: string | { readonly id: string }): string {
  return typeof named === "string" ? named : named.id;
}

export function nanoOfCents(cents: number): NanoUsd {
  return BigInt(cents) * NANO_PER_CENT;
}

function centsOf(amountNano: NanoUsd): number {
  if (amountNano % NANO_PER_CENT !== 0n)
    throw new RangeError("the amount is not a multiple of one cent");
  return Number(amountNano / NANO_PER_CENT);
}
