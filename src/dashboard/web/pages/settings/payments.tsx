import { useState } from "preact/hooks";
import { Link, OutsideLink } from "../../components/controls.tsx";
import { Badge, Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, OffsetPager, Table } from "../../components/table.tsx";
import { usd } from "../../format.ts";
import { type Resource, useResource } from "../../resource.ts";
import { methodTitle } from "./payment-methods.tsx";

/** A payment in the answer of GET /v1/billing/payments. */
interface Payment {
  readonly id: string;
  readonly status: "pending" | "requires_action" | "succeeded" | "failed";
  readonly amount_usd: number;
  readonly description: string;
  readonly payment_method: { readonly brand: string | null; readonly last4: string | null } | null;
  readonly error_reason: string | null;
  readonly error_message: string | null;
  readonly transaction_id: string | null;
  readonly receipt_url: string | null;
  readonly returns: readonly {
    readonly kind: "refund" | "dispute";
    readonly status: string;
    readonly amount_usd: number;
  }[];
  readonly created_at: string;
}

interface PaymentPage {
  readonly data: readonly Payment[];
  readonly has_more: boolean;
}

const PAGE_SIZE = 10;

interface Payments {
  readonly listed: Resource<PaymentPage>;
  readonly offset: number;
  onTurn(offset: number): void;
}

/** Returns the page of payments that is shown. */
export function usePayments(): Payments {
  const [offset, onTurn] = useState(0);
  const listed = useResource<PaymentPage>(
    `v1/billing/payments?limit=${PAGE_SIZE}&offset=${offset}`,
    true,
  );
  return { listed, offset, onTurn };
}

/** Payments, those that failed too, with their reasons, refunds and disputes. */
export function PaymentsPanel({ listed: { data, error }, offset, onTurn }: Payments) {
  return (
    <Panel title="Payments" isFlush>
      <Table
        label="Payments"
        columns={COLUMNS}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No payments yet">
            <p>Payments are listed here with their receipts, refunds and disputes.</p>
          </Empty>
        }
      />
      <OffsetPager listed={data} offset={offset} pageSize={PAGE_SIZE} onTurn={onTurn} />
    </Panel>
  );
}

const STATES = {
  pending: ["Pending", "neutral"],
  requires_action: ["Needs confirmation", "warn"],
  succeeded: ["Paid", "good"],
  failed: ["Failed", "bad"],
} as const;

const RETURN_STATES: Readonly<Record<string, string>> = {
  ordered: "ordered",
  pending: "on its way",
  succeeded: "done",
  failed: "failed, back in the balance",
  open: "open",
  lost: "lost",
  returned: "won, back in the balance",
};

const COLUMNS: readonly Column<Payment>[] = [
  { title: "Date", cell: ({ created_at: at }) => <Time iso={at} form="exact" /> },
  {
    title: "Payment",
    cell: ({ transaction_id: id, description, payment_method: method, receipt_url: receipt }) => (
      <span class="stacked">
        {id === null ? (
          <span>{description}</span>
        ) : (
          <Link page="transactions" query={{ search: id }}>
            {description}
          </Link>
        )}
        {method !== null && <span class="sub">{methodTitle({ type: "card", ...method })}</span>}
        {receipt !== null && <OutsideLink href={receipt}>Receipt</OutsideLink>}
      </span>
    ),
  },
  {
    title: "Status",
    cell: ({ status, error_reason: reason, error_message: message, returns }) => (
      <span class="stacked">
        <Badge tone={STATES[status][1]}>{STATES[status][0]}</Badge>
        {message !== null && <span class="sub">{message}</span>}
        {message === null && reason !== null && <span class="sub">{reason}</span>}
        {returns.map((one, index) => (
          <span key={index} class="sub">
            {one.kind === "dispute" ? "Dispute" : "Refund to the card"} of {usd(one.amount_usd)}:{" "}
            {RETURN_STATES[one.status] ?? one.status}
          </span>
        ))}
      </span>
    ),
  },
  {
    title: "Amount",
    isNumber: true,
    cell: ({ amount_usd: amount }) => usd(amount),
  },
];
