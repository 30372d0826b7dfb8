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

/** How long a running gateway may take to carry an order out. */
const ORDER_TIMEOUT_MS = 10_000;

const adjust: Command = {
  noun: "credits",
  verb: "adjust",
  summary: "Adds to a balance, or takes from what of it is not held, and prints the transaction.",
  options: {
    org: { value: "ID", meaning: "the organization; not needed where there is only one" },
    "amount-usd": {
      value: "X",
      meaning: "USD, at most 9 decimals; a negative amount takes",
      isRequired: true,
    },
    description: { value: "TEXT", meaning: "why, for the list of transactions", isRequired: true },
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
    "Gives a charge back to its organization, or takes a top-up from what of the balance is not held for the card that paid it.",
  options: {
    org: { value: "ID", meaning: "the organization; not needed where there is only one" },
    "transaction-id": {
      value: "ID",
      meaning: "a usage transaction, or a top-up by card",
      isRequired: true,
    },
    "amount-usd": { value: "X", meaning: "a part of it; default: all that is left" },
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
        ["Card", "a running gateway, or the next one, has the processor pay it"],
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
