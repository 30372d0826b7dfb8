import { Empty, Panel } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { change, duration, integer, percent, usd } from "../../format.ts";
import { OrganizationButton } from "../../view.tsx";
import type { NamedSums, OrganizationSums } from "./answers.ts";

interface SumsTableProps<Row> {
  readonly rows: readonly Row[] | undefined;
  readonly error: string | undefined;
  readonly isCompared: boolean;
}

/** Organizations with the largest spend. A name opens the organization. */
export function OrganizationTable(props: SumsTableProps<OrganizationSums>) {
  const name: Column<OrganizationSums> = {
    title: "Organization",
    cell: ({ id, name: text }) => <OrganizationButton organization={{ id, name: text }} />,
  };
  return <Sums {...props} title="Organizations" name={name} keyOf={({ id }) => id} />;
}

/** Models or providers with the largest spend. */
export function SumsTable({
  title,
  ...props
}: SumsTableProps<NamedSums> & { readonly title: "Providers" | "Models" }) {
  const nameless = title === "Providers" ? "No provider" : "Unknown model";
  const name: Column<NamedSums> = {
    title: title === "Providers" ? "Provider" : "Model",
    cell: ({ id }) => <span class={id === null ? "quiet" : "strong"}>{id ?? nameless}</span>,
  };
  return <Sums {...props} title={title} name={name} keyOf={({ id }) => id ?? ""} />;
}

interface SumsProps<Row> extends SumsTableProps<Row> {
  readonly title: string;
  readonly name: Column<Row>;
  keyOf(row: Row): string;
}

function Sums<Row extends NamedSums>({
  title,
  name,
  rows,
  error,
  isCompared,
  keyOf,
}: SumsProps<Row>) {
  return (
    <Panel title={title} isFlush>
      <Table
        label={title}
        columns={[name, ...figureColumns(isCompared)]}
        rows={rows}
        error={error}
        keyOf={keyOf}
        empty={<Empty title="No requests in this period" />}
      />
    </Panel>
  );
}

function figureColumns(isCompared: boolean): Column<NamedSums>[] {
  const before: Column<NamedSums> = {
    title: "Change",
    isNumber: true,
    isSecondary: true,
    cell: ({ cost_usd: cost, before_usd: then }) => (
      <span title={`${usd(then)} before`}>{change(then, cost)}</span>
    ),
  };
  return [
    { title: "Spend", isNumber: true, cell: ({ cost_usd: cost }) => usd(cost) },
    ...(isCompared ? [before] : []),
    {
      title: "Provider cost",
      isNumber: true,
      isSecondary: true,
      cell: ({ provider_cost_usd: cost }) => usd(cost),
    },
    { title: "Fees", isNumber: true, isSecondary: true, cell: ({ fee_usd: fee }) => usd(fee) },
    {
      title: "Margin",
      isNumber: true,
      cell: ({ cost_usd: cost, provider_cost_usd: provider }) => (
        <span class={cost < provider ? "bad" : undefined}>{usd(cost - provider)}</span>
      ),
    },
    { title: "Requests", isNumber: true, cell: ({ requests }) => integer(requests) },
    {
      title: "Errors",
      isNumber: true,
      cell: ({ errors, requests }) => (errors === 0 ? "0" : percent(errors / requests)),
    },
    {
      title: "p50",
      isNumber: true,
      isSecondary: true,
      cell: ({ p50_ms: ms }) => (ms === null ? "—" : duration(ms)),
    },
    {
      title: "p95",
      isNumber: true,
      isSecondary: true,
      cell: ({ p95_ms: ms }) => (ms === null ? "—" : duration(ms)),
    },
  ];
}

interface MoversProps {
  readonly rows: readonly OrganizationSums[] | undefined;
  readonly error: string | undefined;
  /** Name of the period before. */
  readonly before: string;
}

/** Organizations whose spend has changed most. */
export function Movers({ rows, error, before }: MoversProps) {
  return (
    <Panel
      title="Largest changes"
      aside={<span class="quiet">Spend, compared to {before}</span>}
      isFlush
    >
      <Table
        label="Largest changes"
        columns={MOVERS}
        rows={rows}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No organization's spend has changed" />}
      />
    </Panel>
  );
}

const MOVERS: Column<OrganizationSums>[] = [
  {
    title: "Organization",
    cell: ({ id, name }) => <OrganizationButton organization={{ id, name }} />,
  },
  { title: "Before", isNumber: true, cell: ({ before_usd: before }) => usd(before) },
  { title: "Now", isNumber: true, cell: ({ cost_usd: cost }) => usd(cost) },
  {
    title: "Change",
    isNumber: true,
    cell: ({ cost_usd: cost, before_usd: before }) => (
      <span>
        {cost > before ? "+" : "−"}
        {usd(Math.abs(cost - before))}
        <span class="sub">{change(before, cost)}</span>
      </span>
    ),
  },
];
