import { usdNumber, usdText } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { adjustCredit, organizationIdOf } from "../actions/organizations.ts";
import type { Command } from "../command.ts";
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
      return {
        data: {
          id: entry.id,
          type: entry.type,
          amount_usd: usdNumber(entry.amountNano),
          balance_after_usd: usdNumber(entry.balanceAfterNano),
          description: entry.description,
          created_at: isoTime(entry.createdAtMs),
        },
        text: renderFields([
          ["Transaction", entry.id],
          ["Amount", `${usdText(entry.amountNano)} USD`],
          ["Balance", `${usdText(entry.balanceAfterNano)} USD`],
          ["Description", entry.description],
          ["Time", isoTime(entry.createdAtMs)],
        ]),
      };
    });
  },
};

export const creditCommands: readonly Command[] = [adjust];
