import { useEffect, useState } from "preact/hooks";
import { TRANSACTION_KINDS, type TransactionKind } from "../../../lib/transaction-kinds.ts";
import { Button, Choice, Field, Link, OutsideLink } from "../components/controls.tsx";
import { Badge, Empty, PageHead, Panel, ShortId, Time } from "../components/display.tsx";
import { RangePicker } from "../components/range-picker.tsx";
import { type Column, OffsetPager, Table } from "../components/table.tsx";
import { download } from "../download.ts";
import { usdExact } from "../format.ts";
import { parseRange } from "../range.ts";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { useKeyNames } from "./key-names.ts";
import { KeyChoice } from "./requests.tsx";
import { methodTitle } from "./settings/payment-methods.tsx";

/** A transaction in the answer of GET /v1/credits/transactions. */
interface Transaction {
  readonly id: string;
  readonly type: string;
  readonly kind: TransactionKind;
  readonly amount_usd: number;
  readonly fee_usd?: number | null;
  readonly balance_after_usd: number | null;
  readonly description: string;
  readonly key_id?: string | null;
  readonly request_id?: string;
  readonly refunded_request_id?: string | null;
  readonly payment?: {
    readonly id: string;
    readonly method: { readonly brand: string | null; readonly last4: string | null } | null;
  };
  readonly receipt_url?: string;
  readonly created_at: string;
}

interface TransactionPage {
  readonly data: readonly Transaction[];
  readonly total: number;
  readonly has_more: boolean;
}

const PAGE_SIZE = 50;
const TYPES = [
  ["", "All types"],
  ["usage", "Charges"],
  ["topup", "Top-ups"],
  ["refund", "Refunds of charges"],
  ["adjustment", "Adjustments, disputes, refunds to cards"],
] as const;
const FILTERS = ["type", "key_id", "model", "search"] as const;
const RANGE = ["range", "from", "to"] as const;

/** Every line of the ledger, newest first, with the balance after each. */
export function TransactionsPage() {
  const urlQuery = query.value;
  const offset = Math.max(0, Number.parseInt(urlQuery.get("offset") ?? "0", 10) || 0);
  const range = parseRange(urlQuery, Date.now());
  const filters = new URLSearchParams();
  for (const name of FILTERS) {
    const value = urlQuery.get(name)?.trim();
    if (value) filters.set(name, value);
  }
  if (range !== undefined) {
    filters.set("start_date", new Date(range.fromMs).toISOString());
    // The list includes the last millisecond.
    filters.set("end_date", new Date(range.beforeMs - 1).toISOString());
  }
  const { data, error } = useResource<TransactionPage>(
    `v1/credits/transactions?${filters}&limit=${PAGE_SIZE}&offset=${offset}`,
    offset === 0,
  );
  const keyName = useKeyNames();
  const filter = (name: (typeof FILTERS)[number]) => (value: string) =>
    changeQuery({ [name]: value === "" ? undefined : value, offset: undefined });
  const turn = (to: number) => changeQuery({ offset: to <= 0 ? undefined : String(to) });
  const isFiltered = filters.size > 0;
  const clear = () =>
    changeQuery(
      Object.fromEntries([...FILTERS, ...RANGE, "offset"].map((name) => [name, undefined])),
    );
  return (
    <>
      <PageHead title="Transactions">
        <Link page="settings/billing" class="button">
          Statements
        </Link>
        {isFiltered && <Button onClick={clear}>Clear filters</Button>}
        <Button
          onClick={() =>
            void download(`v1/credits/transactions?${filters}&format=csv`, "transactions.csv")
          }
        >
          Download CSV
        </Button>
      </PageHead>
      <RangePicker range={range} isOptional change={{ offset: undefined }} />
      <div class="filters">
        <SearchField value={urlQuery.get("search") ?? ""} onChange={filter("search")} />
        <Choice
          label="Type"
          value={urlQuery.get("type") ?? ""}
          options={TYPES}
          onChange={filter("type")}
        />
        <KeyChoice value={urlQuery.get("key_id") ?? ""} onChange={filter("key_id")} />
      </div>
      <Panel isFlush>
        <Table
          label="Transactions"
          columns={columns(keyName)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title={isFiltered ? "No matching transactions" : "No transactions yet"}>
              {isFiltered ? (
                <p>Clear the filters to see other transactions.</p>
              ) : (
                <p>
                  Credit that you <Link page="settings/billing">add</Link>, charges and refunds
                  appear here.
                </p>
              )}
            </Empty>
          }
        />
        <OffsetPager
          listed={data}
          total={isFiltered && (data?.total ?? 0) >= LEAST_BOUND ? undefined : data?.total}
          offset={offset}
          pageSize={PAGE_SIZE}
          onTurn={turn}
        />
      </Panel>
    </>
  );
}

/** From this total on, the total of a filtered list can be a lower bound. */
const LEAST_BOUND = 5_000;
const TYPING_MS = 300;

interface SearchProps {
  readonly value: string;
  onChange(value: string): void;
}

/** A field that searches when the viewer pauses. */
function SearchField({ value, onChange }: SearchProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <Field
      label="Search"
      type="search"
      value={text}
      onInput={setText}
      placeholder="Id or description"
    />
  );
}

function columns(keyName: (id: string | null | undefined) => string): Column<Transaction>[] {
  return [
    { title: "Time", cell: ({ created_at: at }) => <Time iso={at} form="exact" /> },
    { title: "Type", isCorner: true, cell: ({ kind }) => <Kind kind={kind} /> },
    {
      title: "Description",
      cell: (transaction) => (
        <span class="stacked">
          <span>{transaction.description}</span>
          <Source transaction={transaction} />
        </span>
      ),
    },
    {
      title: "Key",
      isSecondary: true,
      cell: ({ key_id: id }) => (id ? keyName(id) : <span class="quiet">—</span>),
    },
    {
      title: "Amount (USD)",
      isNumber: true,
      cell: ({ amount_usd: amount, fee_usd: fee }) => (
        <span class="stacked">
          <span>{signed(amount)}</span>
          {fee ? <span class="sub">incl. fee {usdExact(fee)}</span> : null}
        </span>
      ),
    },
    {
      title: "Balance after",
      isNumber: true,
      cell: ({ balance_after_usd: balance }) => (balance === null ? "—" : usdExact(balance)),
    },
  ];
}

function signed(amount: number): string {
  return amount > 0 ? `+${usdExact(amount)}` : usdExact(amount);
}

function Kind({ kind }: Pick<Transaction, "kind">) {
  const tone = kind === "dispute" ? "bad" : kind === "charge" ? "neutral" : "good";
  return (
    <Badge tone={kind === "card_refund" || kind === "adjustment" ? "warn" : tone}>
      {TRANSACTION_KINDS[kind].title}
    </Badge>
  );
}

/** The request or payment of a transaction, or else its id. */
function Source({ transaction }: { readonly transaction: Transaction }) {
  const { id, request_id: requestId, refunded_request_id: refundedId, payment } = transaction;
  const request = requestId ?? refundedId ?? undefined;
  if (request !== undefined) {
    return (
      <Link page="requests" query={{ id: request }}>
        {requestId === undefined ? "Refunded request" : "Request"}
      </Link>
    );
  }
  if (payment === undefined) return <ShortId id={id} isSub />;
  const { receipt_url: receipt } = transaction;
  return (
    <>
      <span class="sub">
        {payment.method === null ? "Payment" : methodTitle({ type: "card", ...payment.method })}
      </span>
      {receipt !== undefined && <OutsideLink href={receipt}>Receipt</OutsideLink>}
    </>
  );
}
