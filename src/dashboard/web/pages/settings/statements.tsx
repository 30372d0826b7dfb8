import { Button } from "../../components/controls.tsx";
import { Badge, Empty, Figure, Figures, Panel } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { download } from "../../download.ts";
import { usd, usdExact } from "../../format.ts";
import type { Resource } from "../../resource.ts";

/** A month in the answer of GET /v1/billing/statements. */
export interface StatementTotals {
  readonly month: string;
  readonly opening_balance_usd: number;
  readonly topups_usd: number;
  readonly usage_usd: number;
  readonly fees_usd: number;
  readonly adjustments_usd: number;
  readonly refunds_usd: number;
  readonly closing_balance_usd: number;
  readonly is_final: boolean;
}

export interface StatementList {
  readonly data: readonly StatementTotals[];
}

const MOVEMENTS = [
  ["topups_usd", "Top-ups"],
  ["adjustments_usd", "Adjustments"],
  ["refunds_usd", "Refunds"],
  ["usage_usd", "Usage"],
  ["fees_usd", "Plan fees"],
] as const;

/** The balance, and the sums of all months that it consists of. */
export function BalanceFigures({ statements }: { readonly statements: StatementList | undefined }) {
  const months = statements?.data;
  return (
    <Figures>
      <Figure label="Balance" value={months && amountText(months[0]?.closing_balance_usd ?? 0)} />
      {MOVEMENTS.map(([column, title], index) => (
        <Figure
          key={column}
          label={`${index === 0 ? "=" : "+"} ${title}`}
          value={months && amountText(months.reduce((sum, month) => sum + month[column], 0))}
        />
      ))}
    </Figures>
  );
}

/** The statements of all months, with downloads. */
export function StatementsPanel({ listed }: { readonly listed: Resource<StatementList> }) {
  return (
    <Panel
      title="Statements"
      aside={<span class="quiet">Months in UTC, amounts in USD</span>}
      isFlush
    >
      <Table
        label="Statements"
        columns={COLUMNS}
        rows={listed.data?.data}
        error={listed.error}
        keyOf={({ month }) => month}
        empty={
          <Empty title="No statements yet">
            <p>The first statement appears with the first transaction.</p>
          </Empty>
        }
      />
    </Panel>
  );
}

const save = (month: string, format: "pdf" | "csv") =>
  void download(`v1/billing/statements/${month}?format=${format}`, `statement-${month}.${format}`);

const COLUMNS: readonly Column<StatementTotals>[] = [
  {
    title: "Month",
    cell: ({ month, is_final: isFinal }) => (
      <span>
        {monthTitle(month)} {!isFinal && <Badge>Not final</Badge>}
      </span>
    ),
  },
  amount("Opening", "opening_balance_usd"),
  ...MOVEMENTS.map(([column, title]) => amount(title, column)),
  amount("Closing", "closing_balance_usd"),
  {
    title: "Download",
    isAction: true,
    cell: ({ month }) => (
      <>
        <Button label={`Download ${month} as PDF`} onClick={() => save(month, "pdf")}>
          PDF
        </Button>{" "}
        <Button label={`Download ${month} as CSV`} onClick={() => save(month, "csv")}>
          CSV
        </Button>
      </>
    ),
  },
];

function amount(
  title: string,
  column: Exclude<keyof StatementTotals, "month" | "is_final">,
): Column<StatementTotals> {
  return { title, isNumber: true, cell: (month) => amountText(month[column]) };
}

/** Formats an amount to the cent, and an amount of less than a cent in full. */
function amountText(amount: number): string {
  const nano = Math.round(amount * 1e9);
  return nano !== 0 && Math.abs(nano) < 1e7 ? usdExact(nano / 1e9) : usd(nano / 1e9);
}

function monthTitle(month: string): string {
  return new Date(`${month}-01`).toLocaleString("en-US", {
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });
}
