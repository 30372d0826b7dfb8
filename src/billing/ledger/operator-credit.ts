import { createHash } from "node:crypto";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import { type Database, type Query, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import { refundPart } from "../../../db/ledger/credits.ts";
import {
  type CreditCommandOutcome,
  deleteRejectedCommand,
  findCreditCommand,
  insertDoneRefund,
  type KnownOrder,
} from "../../../db/queries/credit-commands.ts";
import { findCreditEntry, type PostedEntry } from "../../../db/queries/credit-list.ts";
import { findOperatedOrganization } from "../../../db/queries/organizations.ts";
import type { RefundState } from "../../../db/queries/payment-refunds.ts";
import type { Author } from "../../lib/author.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { usdText } from "../../lib/money.ts";
import type { CardRefunds } from "./card-refunds.ts";
import type { CreditOrders } from "./credit-orders.ts";

export interface OperatorCreditDependencies {
  readonly sql: Database;
  readonly organizations: OrganizationActors;
  readonly orders: CreditOrders;
  readonly cardRefunds: Pick<CardRefunds, "order">;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** The author of an order. An idempotency key is carried out once per operator key. */
export interface OrderSource {
  readonly author: Author;
  readonly idempotencyKey: string | undefined;
}

export interface Adjustment {
  readonly organizationId: string;
  /** Amount in nano-USD. A negative amount is deducted, up to the part of the balance that is not held. */
  readonly amountNano: bigint;
  readonly description: string;
}

export interface Refund {
  readonly organizationId: string;
  /** Id of a usage transaction, or of a card top-up. */
  readonly chargeId: string;
  /** Undefined: everything that was not refunded yet. */
  readonly amountNano: bigint | undefined;
}

export interface RefundEntry extends PostedEntry {
  /** Set for a refund to a card. */
  readonly cardStatus?: RefundState;
}

/** Largest credit. Sums of it and any one amount stay within a bigint. */
const MAX_CREDIT_NANO = 4n * 10n ** 18n;
/** Most reads of an order. It is read again if an equal order is given or rejected at the same time. */
const MAX_LOOKS = 8;

/**
 * Adjustments and refunds that operators order over HTTP. An order is a row whose id is derived from the
 * idempotency key. It is carried out in the transaction that marks it done, so a repeated order finds the row.
 */
export class OperatorCredit {
  readonly #dependencies: OperatorCreditDependencies;

  constructor(dependencies: OperatorCreditDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Adjusts the balance. Throws 400 if the balance would become too large, 402 if too little is available, 404 if
   * the organization does not exist, 409 if another order has the same idempotency key, and 503 if the order was
   * not carried out in time.
   */
  async adjust(source: OrderSource, adjustment: Adjustment): Promise<PostedEntry> {
    const { organizationId, amountNano } = adjustment;
    const { balanceNano, creditNano } = await this.#requireOrganization(organizationId);
    if (creditNano + amountNano > MAX_CREDIT_NANO) {
      throw new GatewayError(
        "invalid_body",
        "The balance would exceed the largest amount that the gateway can store.",
        {
          param: "amount_usd",
        },
      );
    }
    const id = orderId(source);
    const { transactionId } = await this.#giveOnce({ ...adjustment, id, author: source.author });
    if (transactionId !== null) return this.#posted(organizationId, transactionId);
    throw new GatewayError(
      "insufficient_credits",
      `The balance is ${usdText(balanceNano)} USD, and running requests may hold a part of it: ${usdText(-amountNano)} USD cannot be deducted.`,
    );
  }

  /**
   * Refunds a charge to the balance, or a top-up from the balance to the card that paid it. Throws 400 if less is
   * left to refund, 404 if the organization or the charge does not exist, 409 if another order has the same
   * idempotency key, and 503 if the order was not carried out in time. For a top-up it also throws like
   * `CardRefunds.order`.
   */
  async refund(source: OrderSource, refund: Refund): Promise<RefundEntry> {
    const { organizationId, chargeId: transactionId, amountNano } = refund;
    await this.#requireOrganization(organizationId);
    const id = orderId(source);
    const { cardRefunds } = this.#dependencies;
    const toCard = {
      organizationId,
      transactionId,
      amountNano,
      orderId: id,
      author: source.author,
    };
    const cardRefund = await cardRefunds.order(toCard);
    if (cardRefund === undefined) return this.#refundCharge(id, refund, source.author);
    if (cardRefund.transactionId === null) throw busy();
    const entry = await this.#posted(organizationId, cardRefund.transactionId);
    return { ...entry, cardStatus: cardRefund.state };
  }

  async #refundCharge(id: string, refund: Refund, author: Author): Promise<PostedEntry> {
    const { organizationId } = refund;
    for (let look = 0; look < MAX_LOOKS; look++) {
      const earlier = await this.#earlierOrder(id, refundOrder(refund));
      if (earlier?.transactionId) return this.#posted(organizationId, earlier.transactionId);
      try {
        const transactionId = await this.#refundNow(id, refund, author);
        this.#dependencies.organizations.forget(organizationId);
        return await this.#posted(organizationId, transactionId);
      } catch (error) {
        if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      }
    }
    throw busy();
  }

  /** Refunds in one transaction. A second refund with the same id waits for the first. */
  #refundNow(id: string, refund: Refund, author: Author): Promise<string> {
    const transactionId = newId("txn");
    return authored(this.#dependencies.sql, author).begin(async (transaction) => {
      await insertDoneRefund(transaction, { ...refundOrder(refund), id, transactionId });
      const outcome = await refundPart(transaction, {
        ...refund,
        transactionId,
        description: `Refund of ${refund.chargeId}`,
      });
      if (outcome.kind === "posted") return transactionId;
      if (outcome.kind === "unknown charge") {
        throw new GatewayError("transaction_not_found", "The organization has no such charge.", {
          param: "transaction_id",
        });
      }
      throw new GatewayError(
        "invalid_body",
        `${usdText(outcome.leftNano)} USD of this transaction can still be refunded.`,
        { param: refund.amountNano === undefined ? "transaction_id" : "amount_usd" },
      );
    });
  }

  async #giveOnce(
    order: Adjustment & { readonly id: string; readonly author: Author },
  ): Promise<CreditCommandOutcome> {
    const { sql, orders } = this.#dependencies;
    const { id } = order;
    for (let look = 0; look < MAX_LOOKS; look++) {
      const earlier = await this.#earlierOrder(id, { ...order, kind: "adjustment" });
      try {
        if (earlier === undefined) return await orders.give({ ...order, kind: "adjustment" });
      } catch (error) {
        if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
        continue;
      }
      if (earlier.isDone && !earlier.isRefused) return earlier;
      // A rejected order frees the key, because enough credit may be available now.
      if (earlier.isRefused) await deleteRejectedCommand(sql, id);
      else await orders.carryOut();
    }
    throw busy();
  }

  /** Returns the order that was given under the id before. Throws 409 if that was a different order. */
  async #earlierOrder(
    id: string,
    order: Pick<KnownOrder, "organizationId" | "kind" | "amountNano" | "description">,
  ): Promise<KnownOrder | undefined> {
    const earlier = await this.#dependencies.read(findCreditCommand(id));
    if (earlier === undefined) return undefined;
    const isSame =
      earlier.kind === order.kind &&
      earlier.organizationId === order.organizationId &&
      earlier.amountNano === order.amountNano &&
      earlier.description === order.description;
    if (isSame) return earlier;
    throw new GatewayError(
      "idempotency_conflict",
      "This idempotency key was already used for another order.",
      { param: "Idempotency-Key" },
    );
  }

  async #requireOrganization(id: string) {
    const organization = await findOperatedOrganization(this.#dependencies.sql, id);
    if (organization !== undefined) return organization;
    throw new GatewayError("organization_not_found", "There is no such organization.");
  }

  async #posted(organizationId: string, transactionId: string): Promise<PostedEntry> {
    const entry = await findCreditEntry(this.#dependencies.sql, organizationId, transactionId);
    if (entry === undefined) throw new Error(`transaction ${transactionId} is missing`);
    return entry;
  }
}

function orderId({ author, idempotencyKey }: OrderSource): string {
  if (idempotencyKey === undefined) return newId("cmd");
  const digest = createHash("sha256").update(author.id).update("\n").update(idempotencyKey);
  return `cmd_${digest.digest("hex")}`;
}

/** Returns the members of the order's row, by which a repeated refund is recognised. */
function refundOrder({ organizationId, chargeId, amountNano }: Refund) {
  const part = amountNano === undefined ? "what is left" : "a part";
  return {
    kind: "refund",
    organizationId,
    amountNano: amountNano ?? 0n,
    description: `${part} of ${chargeId}`,
  } as const;
}

function busy(): GatewayError {
  return overloaded("The same order is being carried out. Try again shortly.");
}
