import { Chart, type Series } from "../components/chart.tsx";
import { Code, Link } from "../components/controls.tsx";
import { Empty, Figure, Figures, Notice, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer, percent, usd, usdExact } from "../format.ts";
import { useResource } from "../resource.ts";
import { gatewayUrl } from "../router.ts";
import { Issues, type ObjectIssue } from "./issues.tsx";
import { useKeyNames } from "./key-names.ts";
import { IncompleteFigures } from "./usage.tsx";
import type { UsageRow } from "./usage-rows.ts";

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
  readonly month: Sum;
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
  const { data, error } = useResource<Overview>("overview", true);
  const isUnused = data !== undefined && data.month.requests === 0 && data.yesterday.requests === 0;
  return (
    <>
      <PageHead title="Overview" />
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
      {data?.is_complete === false && <IncompleteFigures />}
      {(data !== undefined || error === undefined) && <Totals overview={data} />}
      {data !== undefined && <Issues overview={data} isUnused={isUnused} />}
      {isUnused ? <FirstCall /> : data !== undefined && <Hours hours={data.hours} />}
      {!isUnused && <TopSpenders />}
    </>
  );
}

function Totals({ overview }: { readonly overview: Overview | undefined }) {
  const { today, yesterday, month } = overview ?? {};
  return (
    <Figures>
      <Figure
        label="Spend today (UTC)"
        value={today && usd(today.cost_usd)}
        note={yesterday && `${usd(yesterday.cost_usd)} yesterday`}
      />
      <Figure
        label="Spend this month"
        value={month && usd(month.cost_usd)}
        note={month && `${integer(month.requests)} requests`}
      />
      <Figure
        label="Balance"
        value={overview && (overview.balance_usd === null ? "—" : usd(overview.balance_usd))}
        note={overview && <Forecast overview={overview} />}
      />
      <Figure
        label="Requests today"
        value={today && integer(today.requests)}
        note={today && errorsNote(today)}
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

/** The time at which the balance runs out, and the spend rate of the forecast. */
function Forecast({ overview }: { readonly overview: Overview }) {
  const { balance_usd: balance, forecast, replenishing } = overview;
  if (balance === null) return <>Requires the scope billing:read</>;
  if (replenishing === "active") return <>Topped up automatically</>;
  if (forecast === null) return null;
  const { gone_at: goneAt, usd_a_day: usdADay, pace_of: paceOf } = forecast;
  const span = paceOf === "day" ? "the last 24 hours" : "the last 7 days";
  return (
    <span title={`At the spend rate of ${span}`}>
      {goneAt === null ? (
        "Lasts more than a year"
      ) : (
        <>
          Runs out <Time iso={goneAt} />
        </>
      )}{" "}
      at {usd(usdADay)} a day
    </span>
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
  if (requests === 0) return "None yet";
  if (errors === 0) return "No errors";
  return `${integer(errors)} ${errors === 1 ? "error" : "errors"}, ${percent(errors / requests)}`;
}

const CHART_HEIGHT = 170;

function Hours({ hours }: { readonly hours: readonly Hour[] }) {
  const times = hours.map(({ date }) => Date.parse(date) / MS_PER_SECOND);
  const chart = (
    label: string,
    series: readonly Series[],
    format: (value: number) => string,
    formatTick = format,
  ) => (
    <Panel title={label} aside={<span class="quiet">Last 24 hours</span>}>
      <Chart
        label={label}
        times={times}
        series={series}
        height={CHART_HEIGHT}
        format={format}
        formatTick={formatTick}
      />
    </Panel>
  );
  const valuesOf = (name: "requests" | "errors" | "cost_usd" | TimeName) =>
    hours.map((hour) => hour[name]);
  const times95 = (p50: TimeName, p95: TimeName) => [
    { label: "p50", values: valuesOf(p50), color: 5 },
    { label: "p95", values: valuesOf(p95), color: 3 },
  ];
  return (
    <div class="columns">
      {chart(
        "Spend by hour",
        [{ label: "Spend", values: valuesOf("cost_usd"), color: 1, isBars: true }],
        usd,
        usdExact,
      )}
      {chart(
        "Requests by hour",
        [
          { label: "Requests", values: valuesOf("requests"), color: 2, isBars: true },
          { label: "Errors", values: valuesOf("errors"), color: 4, isBars: true },
        ],
        integer,
      )}
      {chart("Latency by hour", times95("p50_ms", "p95_ms"), duration)}
      {chart(
        "Time to first token by hour",
        times95("first_token_p50_ms", "first_token_p95_ms"),
        duration,
      )}
    </div>
  );
}

const SHOWN_ROWS = 5;

/** The models and keys with the highest cost this month. */
function TopSpenders() {
  const now = new Date();
  const start = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth())).toISOString();
  const path = (group: string) =>
    `v1/usage?interval=month&limit=1000&start_date=${start}&group_by=${group}`;
  const models = useResource<{ data: UsageRow[] }>(path("model"), true);
  const keys = useResource<{ data: UsageRow[] }>(path("key"), true);
  const keyName = useKeyNames();
  const table = (title: string, rows: UsageRow[] | undefined, column: Column<UsageRow>) => (
    <Panel title={title} aside={<span class="quiet">This month</span>} isFlush>
      <Table
        label={title}
        columns={[column, ...SUMS]}
        rows={rows?.toSorted((a, b) => b.cost_usd - a.cost_usd).slice(0, SHOWN_ROWS)}
        keyOf={(row) => `${row.model} ${row.key_id}`}
        empty={
          <Empty title="No usage this month">
            <p>Costs appear here within seconds.</p>
          </Empty>
        }
      />
    </Panel>
  );
  return (
    <div class="columns">
      {table("Top models", models.data?.data, {
        title: "Model",
        cell: ({ model }) => (
          <Link page="requests" query={{ model: model ?? undefined }}>
            {model ?? "Not found"}
          </Link>
        ),
      })}
      {table("Top keys", keys.data?.data, {
        title: "Key",
        cell: ({ key_id: id }) => (
          <Link page="requests" query={{ key_id: id ?? undefined }}>
            {keyName(id)}
          </Link>
        ),
      })}
    </div>
  );
}

const SUMS: readonly Column<UsageRow>[] = [
  { title: "Requests", isNumber: true, cell: ({ requests }) => integer(requests) },
  { title: "Spend", isNumber: true, cell: ({ cost_usd: cost }) => usd(cost) },
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
