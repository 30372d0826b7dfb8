import { Button } from "../../components/controls.tsx";
import { Figure, Figures, Notice, PageHead } from "../../components/display.tsx";
import { RangePicker, useComparison, useRange } from "../../components/range-picker.tsx";
import { change, duration, integer, percent, usd } from "../../format.ts";
import { spanParameters } from "../../range.ts";
import { useResource } from "../../resource.ts";
import { IncompleteFigures } from "../usage.tsx";
import type { GatewayFigures, GatewayState, Sums } from "./answers.ts";
import { GatewaySpend } from "./spend-panel.tsx";
import { Attention, CircuitHistory, Instances, WaitingPayments } from "./state-panels.tsx";
import { Movers, OrganizationTable, SumsTable } from "./tables.tsx";

/** The operators' first page: figures over all organizations, and what needs attention. */
export function OperationPage() {
  const range = useRange("7d");
  const isCompared = useComparison();
  const { start_date: beforeStart, end_date: beforeEnd } = spanParameters(range.before);
  const span = new URLSearchParams({
    ...spanParameters(range),
    before_start: beforeStart!,
    before_end: beforeEnd!,
  });
  const figures = useResource<GatewayFigures>(`operation/figures?${span}`);
  const state = useResource<GatewayState>("operation/state");
  const reload = () => {
    figures.reload();
    state.reload();
  };
  const { data } = figures;
  const before = isCompared ? data?.before : undefined;
  const isEmpty = data?.total.requests === 0 && data.before.requests === 0;
  return (
    <>
      <PageHead title="Overview">
        <Button onClick={reload}>Refresh</Button>
      </PageHead>
      <Attention state={state} />
      <RangePicker range={range} hasComparison />
      {figures.error !== undefined && <Notice tone="bad">{figures.error}</Notice>}
      {data?.is_complete === false && <IncompleteFigures />}
      <Totals total={data?.total} before={before} label={range.before.label} />
      <GatewaySpend range={range} isCompared={isCompared} />
      {!isEmpty && (
        <>
          <OrganizationTable
            rows={data?.organizations}
            error={figures.error}
            isCompared={isCompared}
          />
          {isCompared && (
            <Movers rows={data?.movers} error={figures.error} before={range.before.label} />
          )}
          <SumsTable
            title="Providers"
            rows={data?.providers}
            {...{ error: figures.error, isCompared }}
          />
          <SumsTable title="Models" rows={data?.models} {...{ error: figures.error, isCompared }} />
        </>
      )}
      <WaitingPayments state={state} />
      <CircuitHistory state={state} />
      <Instances state={state} />
    </>
  );
}

interface TotalsProps {
  readonly total: Sums | undefined;
  readonly before: Sums | undefined;
  /** Name of the period before. */
  readonly label: string;
}

const margin = (sums: Sums) => sums.cost_usd - sums.provider_cost_usd;

function Totals({ total, before, label }: TotalsProps) {
  const figure = (of: (sums: Sums) => number | null, format: (value: number) => string) => {
    const now = total && of(total);
    const then = before && of(before);
    const value = now === null ? "—" : now === undefined ? undefined : format(now);
    const hasBoth = typeof now === "number" && typeof then === "number";
    const changed = hasBoth ? change(then, now) : undefined;
    const isSame = changed === "No change" || !hasBoth;
    const note = isSame ? changed : `${changed} from ${format(then)}`;
    return { value, note: note && <span title={`Compared to ${label}`}>{note}</span> };
  };
  const errorShare = total && total.requests > 0 ? total.errors / total.requests : undefined;
  return (
    <Figures>
      <Figure label="Spend" {...figure(({ cost_usd: cost }) => cost, usd)} />
      <Figure label="Provider cost" {...figure((sums) => sums.provider_cost_usd, usd)} />
      <Figure label="Fees" {...figure(({ fee_usd: fee }) => fee, usd)} />
      <Figure label="Margin" {...figure(margin, usd)} />
      <Figure label="Requests" {...figure(({ requests }) => requests, integer)} />
      <Figure
        label={errorShare === undefined ? "Errors" : `Errors (${percent(errorShare)})`}
        {...figure(({ errors }) => errors, integer)}
      />
      <Figure label="Latency, p50" {...figure(({ p50_ms: ms }) => ms, duration)} />
      <Figure label="Latency, p95" {...figure(({ p95_ms: ms }) => ms, duration)} />
    </Figures>
  );
}
