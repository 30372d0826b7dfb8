import type { PostedEntry } from "../../../../db/queries/credit-list.ts";
import { postedEntryShape } from "../../../billing/ledger/posted-entry.ts";
import { usdText } from "../../../lib/money.ts";
import { isoTime } from "../../../lib/utc-time.ts";
import { adjustCredit, organizationIdOf } from "../actions/organizations.ts";
import { refundTransaction } from "../actions/refunds.ts";
import { type Command, UsageError } from "../command.ts";
import { withDatabase } from "../operator-database.ts";
import { renderFields } from "../print.ts";
import { readAmountNano, readDescription } from "../read-options.ts";

/** Milliseconds that a running gateway may take to carry out an order. */
const ORDER_TIMEOUT_MS = 10_000;

const adjust: Command = {
  noun: "credits",
  verb: "adjust",
  summary:
    "Adds to a balance, or takes from its part that is not held, and prints the transaction.",
  options: {
    org: { value: "ID", meaning: "id of the organization; not needed if only one exists" },
    "amount-usd": {
      value: "X",
      meaning: "USD, at most 9 decimals; a negative amount reduces the balance",
      isRequired: true,
    },
    description: {
      value: "TEXT",
      meaning: "reason, for the list of transactions",
      isRequired: true,
    },
  },
  run: ({ options }, context) => {
    const request = {
      amountNano: readAmountNano("amount-usd", options["amount-usd"]!),
      description: readDescription("description", options.description!),
    };
    return withDatabase(context, async (sql) => {
      const organizationId = await organizationIdOf(sql, options.org);
      const entry = await adjustCredit(
        sql,
        { ...request, organizationId },
        {
          timeoutMs: ORDER_TIMEOUT_MS,
          interrupted: context.interrupted,
        },
      );
      return { data: postedEntryShape(entry), text: renderFields(fieldsOf(entry)) };
    });
  },
};

const refund: Command = {
  noun: "credits",
  verb: "refund",
  summary:
    "Refunds a charge to its organization, or a top-up to its card, from the part of the balance that is not held.",
  options: {
    org: { value: "ID", meaning: "id of the organization; not needed if only one exists" },
    "transaction-id": {
      value: "ID",
      meaning: "a usage transaction, or a top-up by card",
      isRequired: true,
    },
    "amount-usd": {
      value: "X",
      meaning: "a part of the amount; default: the whole remaining amount",
    },
  },
  run: ({ options }, context) => {
    const given = options["amount-usd"];
    const amountNano = given === undefined ? undefined : readAmountNano("amount-usd", given);
    if (amountNano !== undefined && amountNano <= 0n) {
      throw new UsageError("--amount-usd must be above 0");
    }
    return withDatabase(context, async (sql) => {
      const organizationId = await organizationIdOf(sql, options.org);
      const transactionId = options["transaction-id"]!;
      const entry = await refundTransaction(
        sql,
        { organizationId, transactionId, amountNano },
        { timeoutMs: ORDER_TIMEOUT_MS, interrupted: context.interrupted },
      );
      const toCard = entry.isToCard ? { card_refund_status: "pending" } : {};
      const card = [
        ["Card", "a running gateway, or the next one, orders the refund from the processor"],
      ] as const;
      return {
        data: { ...postedEntryShape(entry), ...toCard },
        text: renderFields([...fieldsOf(entry), ...(entry.isToCard ? card : [])]),
      };
    });
  },
};

function fieldsOf(entry: PostedEntry): (readonly [string, string])[] {
  return [
    ["Transaction", entry.id],
    ["Amount", `${usdText(entry.amountNano)} USD`],
    ["Balance", `${usdText(entry.balanceAfterNano)} USD`],
    ["Description", entry.description],
    ["Time", isoTime(entry.createdAtMs)],
  ];
}

export const creditCommands: readonly Command[] = [adjust, refund];
