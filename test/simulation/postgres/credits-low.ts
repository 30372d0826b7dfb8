import { Table } from "./table.ts";
import type { AccountRow, OutboxRow } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

const LEAST_THRESHOLD_NANO = 1_000_000_000n;

/** The table of accounts with its trigger emit_credits_low. */
export class AccountTable extends Table<AccountRow> {
  readonly #outbox: Table<OutboxRow>;
  #events = 0;

  constructor(outbox: Table<OutboxRow>, violated?: (row: AccountRow) => string | undefined) {
    super("accounts", violated);
    this.#outbox = outbox;
  }

  override *update(
    transaction: Transaction,
    id: string,
    change: (value: AccountRow) => AccountRow | undefined,
  ): Running<AccountRow | undefined> {
    let before: AccountRow | undefined;
    const after = yield* super.update(transaction, id, (row) => {
      before = row;
      return change(row);
    });
    if (before !== undefined && after?.kind === "org" && isLow(after) && !isLow(before, true)) {
      const name = `credits.low ${++this.#events}`;
      yield* this.#outbox.insert(transaction, name, {
        event_id: name,
        organization_id: after.organization_id,
        type: "credits.low",
        data: { balance_nano: after.credit_nano - after.posted_nano },
      });
    }
    return after;
  }
}

/** Credit without a limit compares as null, which is neither low nor enough. */
function isLow(row: AccountRow, unlimited = false): boolean {
  if (row.credit_limit_nano === null) return unlimited;
  const tenth = row.last_topup_nano / 10n;
  const threshold = tenth > LEAST_THRESHOLD_NANO ? tenth : LEAST_THRESHOLD_NANO;
  return row.credit_nano + row.credit_limit_nano - row.posted_nano < threshold;
}
