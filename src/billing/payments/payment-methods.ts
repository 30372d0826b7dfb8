import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { findOperatedOrganization } from "../../../db/queries/organizations.ts";
import {
  activatePaymentMethod,
  detachPaymentMethod,
  findPaymentCustomer,
  findPaymentMethod,
  insertPendingMethod,
  keepPaymentCustomer,
  listPaymentMethods,
  makeDefaultMethod,
  noteMethodDetached,
  type PaymentMethod,
  type PendingMethod,
  pendingPaymentMethods,
  removePendingMethod,
} from "../../../db/queries/payment-methods.ts";
import type { Author } from "../../lib/author.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { type PaymentProcessor, PaymentProcessorError, type SavedMethod } from "./interface.ts";

export interface PaymentMethodsDependencies {
  readonly sql: Database;
  readonly processor: PaymentProcessor;
  onError(error: unknown): void;
}

/** The payment method of one payment. */
export interface ChosenMethod {
  /** Our id of the saved method. Undefined for a test method that is not saved. */
  readonly id: string | undefined;
  /** The processor's id of the method. */
  readonly reference: string;
  readonly customer: string | undefined;
  /** A text for people: `Visa ending in 4242`. */
  readonly label: string;
}

/** Most payment methods of one organization. */
const MAX_METHODS = 20;
const PENDING_AT_A_TIME = 20;

/** The payment methods that organizations have saved at the payment processor. */
export class PaymentMethods {
  readonly #dependencies: PaymentMethodsDependencies;

  constructor(dependencies: PaymentMethodsDependencies) {
    this.#dependencies = dependencies;
  }

  list(organizationId: string): Promise<PaymentMethod[]> {
    return listPaymentMethods(this.#dependencies.sql, this.#owner(organizationId));
  }

  /**
   * Returns the method with this id, or the default method if the id is undefined. Throws 402 if the
   * organization has no default, and 404 if it has no such method.
   */
  async chosen(organizationId: string, id: string | undefined): Promise<ChosenMethod> {
    const { sql, processor } = this.#dependencies;
    const owner = this.#owner(organizationId);
    const saved = await findPaymentMethod(sql, owner, id);
    if (saved !== undefined) {
      const customer = await findPaymentCustomer(sql, owner);
      return { id: saved.id, reference: saved.reference, customer, label: labelOf(saved) };
    }
    const named = id === undefined ? undefined : processor.namedMethod(id);
    if (named !== undefined) {
      const { reference } = named;
      return { id: undefined, reference, customer: undefined, label: labelOf(named) };
    }
    if (id !== undefined) throw methodNotFound();
    throw new GatewayError(
      "payment_declined",
      "The organization has no default payment method: add one with POST /v1/billing/payment_methods, or send payment_method_id.",
      { param: "payment_method_id" },
    );
  }

  /**
   * Adds a named test method immediately, or starts to add a method on the processor's page and returns the URL of
   * that page. Throws 400 if there is no such test method or the processor has no page, 403 if the organization
   * has the maximum number of methods, and 502 if the processor rejects the call or does not answer.
   */
  async add(
    organizationId: string,
    { name, returnUrl }: { readonly name: string | undefined; readonly returnUrl: string },
    author: Author,
  ): Promise<{ readonly id: string; readonly setupUrl: string | null }> {
    const { processor } = this.#dependencies;
    const sql = authored(this.#dependencies.sql, author);
    const owner = this.#owner(organizationId);
    if ((await this.list(organizationId)).length >= MAX_METHODS) {
      throw new GatewayError(
        "quota_exceeded",
        `An organization has at most ${MAX_METHODS} payment methods.`,
      );
    }
    const id = newId("pm");
    if (name !== undefined) {
      const named = processor.namedMethod(name);
      if (named === undefined) throw unknownName(processor);
      const added = await activatePaymentMethod(sql, { ...owner, ...named, id });
      return { id: added.id, setupUrl: null };
    }
    const setup = await this.#asking(async () => {
      const customer = await this.customer(organizationId);
      return processor.beginSetup({ methodId: id, organizationId, customer, returnUrl });
    });
    if (setup === undefined) {
      throw new GatewayError(
        "invalid_body",
        "The test processor has no page for entering cards: send the name of a test method in payment_method, such as pm_card_visa.",
        { param: "payment_method" },
      );
    }
    await insertPendingMethod(sql, { ...owner, id, setupReference: setup.reference });
    return { id, setupUrl: setup.url };
  }

  /** Makes a method the default and returns it. Throws 404 if the organization has no such method. */
  async makeDefault(organizationId: string, id: string, author: Author): Promise<PaymentMethod> {
    const sql = authored(this.#dependencies.sql, author);
    const owner = this.#owner(organizationId);
    if (!(await makeDefaultMethod(sql, owner, id))) throw methodNotFound();
    const changed = await findPaymentMethod(sql, owner, id);
    if (changed === undefined) throw methodNotFound();
    return changed;
  }

  /**
   * Removes a method at the processor and here. Throws 404 if the organization has no such method, and 502 if the
   * processor rejects the call or does not answer.
   */
  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const { sql, processor } = this.#dependencies;
    const owner = this.#owner(organizationId);
    const method = await findPaymentMethod(sql, owner, id);
    if (method?.id !== id) throw methodNotFound();
    await this.#asking(() => processor.detach(method.reference));
    await detachPaymentMethod(authored(sql, author), owner, id);
  }

  /**
   * Returns the processor's id of the organization's customer. Creates the customer if the organization has
   * none. Returns undefined if the processor stores no customers.
   */
  async customer(organizationId: string): Promise<string | undefined> {
    const { sql, processor } = this.#dependencies;
    const owner = this.#owner(organizationId);
    const existing = await findPaymentCustomer(sql, owner);
    if (existing !== undefined) return existing;
    const organization = await findOperatedOrganization(sql, organizationId);
    if (organization === undefined) throw new Error(`organization ${organizationId} is missing`);
    const created = await processor.createCustomer(organization);
    return created === undefined ? undefined : keepPaymentCustomer(sql, owner, created);
  }

  /**
   * Activates the method with this id if the payer has entered it on the processor's page. Rejects if the
   * processor does not answer.
   *
   * @param reference the processor's id of the method, if it is known
   */
  async complete(id: string, reference: string | undefined): Promise<void> {
    const { sql, processor } = this.#dependencies;
    const [pending] = await pendingPaymentMethods(sql, processor.name, { id });
    if (pending === undefined) return;
    if (reference === undefined) return this.#completeOne(pending);
    await this.#activate(pending, await processor.readMethod(reference));
  }

  /** Activates the methods that payers have entered. Needed in case the processor's report was lost. */
  async completePending(): Promise<void> {
    const { sql, processor, onError } = this.#dependencies;
    const pending = await pendingPaymentMethods(sql, processor.name, { limit: PENDING_AT_A_TIME });
    for (const method of pending) await this.#completeOne(method).catch(onError);
  }

  /** Marks a method as detached, because the processor has removed it. */
  noteDetached(reference: string): Promise<void> {
    const { sql, processor } = this.#dependencies;
    return noteMethodDetached(sql, processor.name, reference);
  }

  async #completeOne(pending: PendingMethod): Promise<void> {
    const { sql, processor } = this.#dependencies;
    const setup = await processor.readSetup(pending.setupReference);
    if (setup.kind === "complete") await this.#activate(pending, setup.method);
    else if (setup.kind === "ended") await removePendingMethod(sql, pending.id);
  }

  async #activate({ id, organizationId }: PendingMethod, method: SavedMethod): Promise<void> {
    const owner = this.#owner(organizationId);
    await activatePaymentMethod(this.#dependencies.sql, { ...owner, ...method, id });
  }

  #owner(organizationId: string) {
    return { organizationId, processor: this.#dependencies.processor.name };
  }

  async #asking<Result>(ask: () => Promise<Result>): Promise<Result> {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof PaymentProcessorError)) throw error;
      throw processorFailed(error);
    }
  }
}

/**
 * Returns the error for a caller if the processor rejected the request or did not answer. Nothing was paid.
 */
export function processorFailed(cause: unknown): GatewayError {
  const isRetryable = cause instanceof PaymentProcessorError && cause.isRetryable;
  const message = isRetryable
    ? "The payment processor is not responding; nothing was paid. Try again later."
    : "The payment processor rejected the request; nothing was paid.";
  return new GatewayError("provider_error", message, { cause });
}

function unknownName({ name }: PaymentProcessor): GatewayError {
  const message =
    name === "test"
      ? "The test processor has no such method. It has Stripe's test methods, such as pm_card_visa."
      : "Payment methods are entered on the payment processor's page: omit payment_method and open setup_url.";
  return new GatewayError("invalid_body", message, { param: "payment_method" });
}

function methodNotFound(): GatewayError {
  return new GatewayError(
    "payment_method_not_found",
    "The organization has no such payment method.",
    { param: "payment_method_id" },
  );
}

function labelOf({ brand, type, last4 }: Pick<SavedMethod, "brand" | "type" | "last4">): string {
  const name = (brand ?? type).replace(/^./, (first) => first.toUpperCase());
  return last4 === null ? name : `${name} ending in ${last4}`;
}
