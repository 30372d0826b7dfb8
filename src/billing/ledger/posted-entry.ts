import type { PostedEntry } from "../../../db/queries/credit-list.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";

/** Returns an adjustment or a refund as the HTTP API and the CLI show it. */
export function postedEntryShape(entry: PostedEntry) {
  return {
    id: entry.id,
    type: entry.type,
    amount_usd: usdNumber(entry.amountNano),
    balance_after_usd: usdNumber(entry.balanceAfterNano),
    description: entry.description,
    created_at: isoTime(entry.createdAtMs),
  };
}
