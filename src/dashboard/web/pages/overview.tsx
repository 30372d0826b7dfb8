import { useMemo } from "preact/hooks";
import { Chart, type Series } from "../components/chart.tsx";
import { Code, Link } from "../components/controls.tsx";
import { Empty, Figure, Figures, PageHead, Panel, Time } from "../components/display.tsx";
import { RangePicker, useComparison, useRange } from "../components/range-picker.tsx";
import { type Column, Table } from "../components/table.tsx";
import { change, duration, integer, percent, usd } from "../format.ts";
import { intervalTimes, type Period, type Range, rangeQuery, spanParameters } from "../range.ts";
import { useResource } from "../resource.ts";
import { gatewayUrl } from "../router.ts";
import { MAX_PARTS } from "../stack.ts";
import { Issues, type ObjectIssue } from "./issues.tsx";
import { useKeyNames } from "./key-names.ts";
import { Failure, IncompleteFigures } from "./usage.tsx";
import { UsageChart } from "./usage-chart.tsx";
import {
  ERROR_FILTER,
  type Group,
  MAX_ROWS,
  METRICS,
  type NameSum,
  requestsOf,
  spendText,
  sumsByName,
  type UsagePart,
  type UsageRow,
} from "./usage-rows.ts";

interface Sum {
  readonly requests: number;
  readonly errors: number;
  readonly cost_usd: number;
}

interface Hour extends Sum {
  readonly date: string;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly first_token_p50_ms: number | null;
  readonly first_token_p95_ms: number | null;
}

interface Troubles {
  readonly failures: readonly { readonly error_code: string; readonly count: number }[];
  readonly webhooks: readonly {
    readonly id: string;
    readonly url: string;
    readonly attempts: number;
    readonly next_attempt_at: string | null;
  }[];
  readonly provider_keys: readonly { readonly provider: string; readonly name: string }[];
}

export interface Overview {
  readonly is_complete: boolean;
  readonly today: Sum;
  readonly yesterday: Sum;
  /** Yesterday until the same hour. */
  readonly yesterday_so_far: Sum;
  readonly month: Sum;
  /** The same days of the month before. */
  readonly last_month_so_far: Sum;
  /** Null for a key without the scope `billing:read`. */
  readonly balance_usd: number | null;
  readonly forecast: {
    readonly gone_at: string | null;
    readonly usd_a_day: number;
    readonly pace_of: "day" | "week";
  } | null;
  readonly replenishing: "off" | "active" | "retrying" | "stopped";
  readonly hours: readonly Hour[];
  readonly troubles: Troubles;
  readonly object_issues: readonly ObjectIssue[];
}

const MS_PER_SECOND = 1_000;

export function OverviewPage() {
  const { data, error, reload } = useResource<Overview>("overview", true);
  const isUnused = data !== undefined && data.month.requests === 0 && data.yesterday.requests === 0;
  return (
    <>
      <PageHead title="Overview">
        <span class="quiet">Days in UTC</span>
      </PageHead>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {data?.is_complete === false && <IncompleteFigures />}
      {(data !== undefined || error === undefined) && <Totals overview={data} />}
      {data !== undefined && <Issues overview={data} isUnused={isUnused} />}
      {isUnused ? <FirstCall /> : data !== undefined && <Charts />}
    </>
  );
}

function Totals({ overview }: { readonly overview: Overview | undefined }) {
  const {
    today,
    yesterday_so_far: yesterday,
    month,
    last_month_so_far: lastMonth,
  } = overview ?? {};
  return (
    <Figures>
      <Figure
        label="Spend today"
        value={today && usd(today.cost_usd)}
        note={
          today &&
          yesterday &&
          `${change(yesterday.cost_usd, today.cost_usd)} from ${usd(yesterday.cost_usd)} yesterday by this hour`
        }
      />
      <Figure
        label="Spend this month"
        value={month && usd(month.cost_usd)}
        note={
          month &&
          lastMonth &&
          `${change(lastMonth.cost_usd, month.cost_usd)} from ${usd(lastMonth.cost_usd)} on the same days of last month`
        }
      />
      <Figure
        label="Balance"
        value={overview && (overview.balance_usd === null ? "—" : usd(overview.balance_usd))}
        note={overview && <Forecast overview={overview} />}
      />
      <Figure
        label="Requests today"
        value={today && integer(today.requests)}
        note={
          today &&
          yesterday && (
            <>
              {change(yesterday.requests, today.requests)} from {integer(yesterday.requests)}{" "}
              yesterday by this hour
              <span class="sub">{errorsNote(today)}</span>
            </>
          )
        }
      />
      <LatestTimes label="Latency, p50" hours={overview?.hours} of={["p50_ms", "p95_ms"]} />
      <LatestTimes
        label="First token, p50"
        hours={overview?.hours}
        of={["first_token_p50_ms", "first_token_p95_ms"]}
      />
    </Figures>
  );
}

/** The estimated time at which the balance runs out, and how it was computed. */
function Forecast({ overview }: { readonly overview: Overview }) {
  const { balance_usd: balance, forecast, replenishing } = overview;
  if (balance === null) return <>Requires the scope billing:read</>;
  if (replenishing === "active") return <>Topped up automatically</>;
  if (forecast === null) return null;
  const { gone_at: goneAt, usd_a_day: usdADay, pace_of: paceOf } = forecast;
  const span = paceOf === "day" ? "the last 24 hours" : "the last 7 days";
  return (
    <>
      Estimate: lasts{" "}
      {goneAt === null ? (
        "more than a year"
      ) : (
        <>
          until about <Time iso={goneAt} form="approximate" />
        </>
      )}
      <details class="hint">
        <summary>How it is computed</summary>
        Balance and credit limit, divided by {usd(usdADay)} a day. That is the spend of {span}: the
        gateway takes the last 24 hours or the last 7 days, whichever spent faster.
      </details>
    </>
  );
}

interface LatestTimesProps {
  readonly label: string;
  readonly hours: readonly Hour[] | undefined;
  readonly of: readonly [p50: TimeName, p95: TimeName];
}

type TimeName = "p50_ms" | "p95_ms" | "first_token_p50_ms" | "first_token_p95_ms";

/** The figures of the last hour with requests. */
function LatestTimes({ label, hours, of: [p50, p95] }: LatestTimesProps) {
  const hour = hours?.findLast((candidate) => candidate[p50] !== null);
  if (hours === undefined || hour === undefined) {
    return <Figure label={label} value={hours && "—"} note={hours && "No data in 24 hours"} />;
  }
  return (
    <Figure
      label={label}
      value={duration(hour[p50]!)}
      note={
        <>
          p95 {duration(hour[p95]!)} since <Time iso={hour.date} form="clock" />
        </>
      }
    />
  );
}

function errorsNote({ requests, errors }: Sum) {
  if (requests === 0) return "No requests yet";
  if (errors === 0) return "No errors";
  return `${integer(errors)} ${errors === 1 ? "error" : "errors"}, ${percent(errors / requests)}`;
}

const CHART_HEIGHT = 200;
const SHOWN_ROWS = 5;

interface Latencies {
  readonly data: readonly ({ readonly date: string } & Readonly<Record<TimeName, number | null>>)[];
}

/** The charts of the chosen range, and the models and keys with the highest cost in it. */
function Charts() {
  const range = useRange("7d");
  const { interval } = range;
  const isCompared = useComparison();
  const path = (parameters: Readonly<Record<string, string>>, period: Period = range) =>
    `v1/usage?${new URLSearchParams({ ...spanParameters(period), ...parameters })}&limit=${MAX_ROWS}`;
  const top = { top: String(MAX_PARTS) };
  const models = useResource<UsagePart>(path({ interval, group_by: "model", ...top }), true);
  const before = useResource<UsagePart>(
    isCompared ? path({ interval }, range.before) : undefined,
    true,
  );
  const total = useResource<UsagePart>(path({ interval }), true);
  const chart = { range, interval, height: CHART_HEIGHT } as const;
  const aside = <span class="quiet">{range.label}</span>;
  const error = models.error ?? total.error;
  return (
    <>
      <RangePicker range={range} hasComparison />
      {error !== undefined && (
        <Failure
          error={error}
          onRetry={() => {
            models.reload();
            total.reload();
          }}
        />
      )}
      <Panel title="Spend by model" aside={aside}>
        <UsageChart
          {...chart}
          label="Spend by model"
          metric={METRICS.spend}
          group="model"
          rows={models.data?.data ?? NO_ROWS}
          before={before.data?.data}
          labelOf={(id) => id ?? "Unknown model"}
        />
      </Panel>
      <div class="columns">
        <Panel title="Requests" aside={aside}>
          <UsageChart
            {...chart}
            label="Requests"
            metric={METRICS.requests}
            group=""
            rows={total.data?.data ?? NO_ROWS}
            before={before.data?.data}
            labelOf={() => "Requests"}
          />
        </Panel>
        <Panel title="Errors" aside={aside}>
          <UsageChart
            {...chart}
            label="Errors"
            metric={METRICS.errors}
            group=""
            rows={total.data?.data ?? NO_ROWS}
            before={before.data?.data}
            filters={ERROR_FILTER}
            labelOf={() => "Errors"}
          />
        </Panel>
        <LatencyCharts range={range} />
      </div>
      <TopSpenders range={range} />
    </>
  );
}

const NO_ROWS: readonly UsageRow[] = [];

function LatencyCharts({ range }: { readonly range: Range }) {
  const { interval } = range;
  const parameters = new URLSearchParams({ ...spanParameters(range), interval });
  const { data } = useResource<Latencies>(`v1/usage/latency?${parameters}&limit=${MAX_ROWS}`, true);
  const times = useMemo(() => intervalTimes(range, interval), [String(parameters)]);
  const series = useMemo(() => {
    const rows = new Map(
      data?.data.map((row) => [Date.parse(row.date) / MS_PER_SECOND, row] as const),
    );
    const line = (label: string, name: TimeName, color: number): Series => ({
      ...{ label, color, values: times.map((time) => rows.get(time)?.[name] ?? null) },
    });
    return {
      total: [line("p50", "p50_ms", 5), line("p95", "p95_ms", 3)],
      firstToken: [line("p50", "first_token_p50_ms", 5), line("p95", "first_token_p95_ms", 3)],
    };
  }, [data, times]);
  const chart = (label: string, shown: readonly Series[]) => (
    <Panel title={label} aside={<span class="quiet">{range.label}</span>}>
      <Chart label={label} times={times} series={shown} height={CHART_HEIGHT} format={duration} />
    </Panel>
  );
  return (
    <>
      {chart("Latency", series.total)}
      {chart("Time to first token", series.firstToken)}
    </>
  );
}

/** The models and keys with the highest cost in the range. */
function TopSpenders({ range }: { readonly range: Range }) {
  const top = (group: Group) =>
    `v1/usage?${new URLSearchParams({ ...spanParameters(range), interval: "month", group_by: group })}` +
    `&top=${SHOWN_ROWS}&limit=${MAX_ROWS}`;
  const models = useResource<UsagePart>(top("model"), true);
  const keys = useResource<UsagePart>(top("key"), true);
  const keyName = useKeyNames();
  const table = (title: string, group: Group, { data, error }: typeof models) => (
    <Panel title={title} aside={<span class="quiet">{range.label}</span>} isFlush>
      <Table
        label={title}
        columns={[
          {
            title: group === "model" ? "Model" : "Key",
            cell: ({ id }) => (
              <Link
                page="requests"
                query={{ ...rangeQuery(range), ...(id && requestsOf(group, id)) }}
              >
                {group === "key" ? keyName(id) : (id ?? "Unknown model")}
              </Link>
            ),
          },
          ...SUMS,
        ]}
        rows={data && namedSums(data.data, group)}
        error={error}
        keyOf={({ id }) => `name ${id ?? ""}`}
        empty={
          <Empty title="No usage in this period">
            <p>Choose another period. New requests appear here within seconds.</p>
          </Empty>
        }
      />
    </Panel>
  );
  return (
    <div class="columns">
      {table("Top models", "model", models)}
      {table("Top keys", "key", keys)}
    </div>
  );
}

/** Returns the sums of the names, without the rest, the highest cost first. */
function namedSums(rows: readonly UsageRow[], group: Group) {
  return sumsByName(rows, group)
    .filter(({ id }) => id !== undefined)
    .toSorted((a, b) => b.cost_usd - a.cost_usd || b.requests - a.requests);
}

const SUMS: readonly Column<NameSum>[] = [
  { title: "Requests", isNumber: true, cell: ({ requests }) => integer(requests) },
  { title: "Spend", isNumber: true, cell: spendText },
];

function FirstCall() {
  const call = `curl ${new URL("v1/chat/completions", gatewayUrl).href} \\
  -H "Authorization: Bearer $SECRET_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "sandbox/chat",
       "messages": [{"role": "user", "content": "Hello"}]}'`;
  return (
    <Panel title="Make your first request">
      <p>
        <Link page="keys">Create a key</Link>, and send a request with it. The model{" "}
        <code>sandbox/chat</code> is built in for testing. The cost appears here within seconds.
      </p>
      <Code
        text={call}
        action="Copy as curl"
        hint={
          <>
            Set the key first: <code>export SECRET_KEY=…</code>
          </>
        }
      />
    </Panel>
  );
}
