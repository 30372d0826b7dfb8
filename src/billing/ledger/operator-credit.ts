import { createHash } from "node:crypto";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import { type Database, type Query, sqlState } from "../../../db/client.ts";
import { refundPart } from "../../../db/ledger/credits.ts";
import {
  type CreditCommandOutcome,
  findCreditCommand,
  forgetRefusedCommand,
  insertDoneRefund,
  type KnownOrder,
} from "../../../db/queries/credit-commands.ts";
import { findCreditEntry, type PostedEntry } from "../../../db/queries/credit-list.ts";
import { findOperatedOrganization } from "../../../db/queries/organizations.ts";
import type { RefundState } from "../../../db/queries/payment-refunds.ts";
import type { Author } from "../../lib/author.ts";
import { GatewayError } from "../../lib/errors.ts";
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

/** Who orders it. The same idempotency key of the same operator key orders it once. */
export interface OrderSource {
  readonly author: Author;
  readonly idempotencyKey: string | undefined;
}

export interface Adjustment {
  readonly organizationId: string;
  /** Negative takes from the balance, at most what is not held. */
  readonly amountNano: bigint;
  readonly description: string;
}

export interface Refund {
  readonly organizationId: string;
  /** Id of a usage transaction, or of a top-up by card. */
  readonly chargeId: string;
  /** Undefined: all that was not given back yet. */
  readonly amountNano: bigint | undefined;
}

export interface RefundEntry extends PostedEntry {
  /** Of money that goes back to a card. */
  readonly cardStatus?: RefundState;
}

const UNIQUE_VIOLATION = "23505";
/** Sums with it and with any one amount stay within a bigint. */
const MAX_CREDIT_NANO = 4n * 10n ** 18n;
/** How often an order is read again, because the same one was given or refused at the same moment. */
const MAX_LOOKS = 8;

/**
 * Adjustments and refunds that operators order over HTTP. An order is a row whose id follows from the
 * idempotency key, and is carried out in the transaction that marks it done: a repeated one finds the row.
 */
export class OperatorCredit {
  readonly #dependencies: OperatorCreditDependencies;

  constructor(dependencies: OperatorCreditDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 402, 404, 409, and 503 where it was not carried out in time: then it was withdrawn. */
  async adjust(source: OrderSource, adjustment: Adjustment): Promise<PostedEntry> {
    const { organizationId, amountNano } = adjustment;
    const { balanceNano, creditNano } = await this.#requireOrganization(organizationId);
    if (creditNano + amountNano > MAX_CREDIT_NANO) {
      throw new GatewayError("invalid_body", "The balance would be larger than can be counted.", {
        param: "amount_usd",
      });
    }
    const id = orderId(source);
    const { transactionId } = await this.#giveOnce({ ...adjustment, id, author: source.author });
    if (transactionId !== null) return this.#posted(organizationId, transactionId);
    throw new GatewayError(
      "insufficient_credits",
      `The balance is ${usdText(balanceNano)} USD, and running requests may hold a part of it: ${usdText(-amountNano)} USD cannot be taken.`,
    );
  }

  /**
   * Gives a charge back to the balance, or a top-up from the balance to the card that paid it. Throws 400 where
   * less is left of it, 404, 409; of a top-up also 402 where so much is not free, and 502.
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
    const given = await cardRefunds.order(toCard);
    if (given === undefined) return this.#refundCharge(id, refund, source.author);
    if (given.transactionId === null) throw busy();
    const entry = await this.#posted(organizationId, given.transactionId);
    return { ...entry, cardStatus: given.state };
  }

  async #refundCharge(id: string, refund: Refund, author: Author): Promise<PostedEntry> {
    const { organizationId } = refund;
    for (let look = 0; look < MAX_LOOKS; look++) {
      const known = await this.#known(id, refundOrder(refund));
      if (known?.transactionId) return this.#posted(organizationId, known.transactionId);
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

  /** All of it in one transaction: a second one of the same id waits for the first. */
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
        `${usdText(outcome.leftNano)} USD of this transaction are left to refund.`,
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
      const known = await this.#known(id, { ...order, kind: "adjustment" });
      try {
        if (known === undefined) return await orders.give({ ...order, kind: "adjustment" });
      } catch (error) {
        if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
        continue;
      }
      if (known.isDone && !known.isRefused) return known;
      // A refusal frees the key: what it lacked may be there now.
      if (known.isRefused) await forgetRefusedCommand(sql, id);
      else await orders.carryOut();
    }
    throw busy();
  }

  /** Throws 409 where something else was ordered under the id. */
  async #known(
    id: string,
    order: Pick<KnownOrder, "organizationId" | "kind" | "amountNano" | "description">,
  ): Promise<KnownOrder | undefined> {
    const known = await this.#dependencies.read(findCreditCommand(id));
    if (known === undefined) return undefined;
    const isSame =
      known.kind === order.kind &&
      known.organizationId === order.organizationId &&
      known.amountNano === order.amountNano &&
      known.description === order.description;
    if (isSame) return known;
    throw new GatewayError(
      "idempotency_conflict",
      "This idempotency key was used for another order before.",
      { param: "Idempotency-Key" },
    );
  }

  async #requireOrganization(id: string) {
    const found = await findOperatedOrganization(this.#dependencies.sql, id);
    if (found !== undefined) return found;
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

/** What the order's row says of a refund, by which a repeated one is recognised. */
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
  return new GatewayError("overloaded", "The same order is being carried out. Try again shortly.", {
    retryAfterSeconds: 1,
  });
}
