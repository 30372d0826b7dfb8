/** The columns of a statement in which movements of the balance are. */
export const STATEMENT_COLUMNS = ["topups", "usage", "fees", "adjustments", "refunds"] as const;
export type StatementColumn = (typeof STATEMENT_COLUMNS)[number];

interface KindRow {
  /** The kind in plain words. */
  readonly title: string;
  /** The column of a statement. The plan's fee of a charge is in `fees`. */
  readonly column: Exclude<StatementColumn, "fees">;
}

/** The kinds of transactions that the SQL function transaction_kind returns: each transaction has one. */
const KINDS = {
  topup: { title: "Top-up", column: "topups" },
  automatic_topup: { title: "Automatic top-up", column: "topups" },
  charge: { title: "Charge", column: "usage" },
  refund: { title: "Refund of a charge", column: "refunds" },
  starting_credit: { title: "Starting credit", column: "adjustments" },
  adjustment: { title: "Adjustment", column: "adjustments" },
  card_refund: { title: "Refund to a card", column: "adjustments" },
  dispute: { title: "Dispute", column: "adjustments" },
} as const satisfies Record<string, KindRow>;

export type TransactionKind = keyof typeof KINDS;
export const TRANSACTION_KINDS: Readonly<Record<TransactionKind, KindRow>> = KINDS;
export const KIND_NAMES = Object.keys(KINDS) as readonly TransactionKind[];
