import { useMemo } from "preact/hooks";
import { send } from "../api.ts";
import { Chart, type Series } from "../components/chart.tsx";
import { Button, Choice, Field, Tabs } from "../components/controls.tsx";
import { perform } from "../components/dialog.tsx";
import { Empty, Figure, Figures, Notice, PageHead, Panel } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, short, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { useKeyNames } from "./key-names.ts";

/** A sum as GET /v1/usage lists it. */
export interface UsageRow {
  readonly date: string;
  readonly model?: string | null;
  readonly key_id?: string | null;
  readonly provider?: string | null;
  readonly user?: string | null;
  readonly tag?: string | null;
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cached_tokens: number;
  readonly cost_usd: number;
}

const GROUPS = [
  ["", "Total"],
  ["model", "Model"],
  ["key", "Key"],
  ["provider", "Provider"],
  ["user", "User"],
  ["tag", "Tag"],
] as const;
type Group = (typeof GROUPS)[number][0];
const NAMES = {
  model: "model",
  key: "key_id",
  provider: "provider",
  user: "user",
  tag: "tag",
} as const;

const DAY_MS = 86_400_000;
const SHOWN_DAYS = 30;
const PAGE = 50;
/** What one answer of the API holds at most. */
const MAX_CHARTED = 1_000;

const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);

interface UsagePart {
  readonly data: UsageRow[];
  readonly has_more: boolean;
}

/** A page of the rows that the chart has. */
function partOf(whole: UsagePart | undefined, offset: number): UsagePart | undefined {
  if (whole === undefined) return undefined;
  const has_more = whole.has_more || whole.data.length > offset + PAGE;
  return { data: whole.data.slice(offset, offset + PAGE), has_more };
}

export function UsagePage() {
  const asked = query.value;
  const interval = asked.get("interval") === "hour" ? "hour" : "day";
  const [group] = GROUPS.find(([one]) => one === asked.get("group_by")) ?? GROUPS[0];
  const from = asked.get("from") ?? day(Date.now() - (SHOWN_DAYS - 1) * DAY_MS);
  const to = asked.get("to") ?? day(Date.now());
  const offset = Number(asked.get("offset") ?? 0) || 0;
  const span = new URLSearchParams({ start_date: from, end_date: dayAfter(to) ?? to });
  const parameters = new URLSearchParams({ ...Object.fromEntries(span), interval });
  if (group !== "") parameters.set("group_by", group);
  const charted = useResource<UsagePart>(`v1/usage?${parameters}&limit=${MAX_CHARTED}`, true);
  const isPlain = group === "" && interval === "day";
  const byDay = useResource<UsagePart>(
    isPlain ? undefined : `v1/usage?${span}&interval=day&limit=${MAX_CHARTED}`,
    true,
  );
  const total = isPlain ? charted : byDay;
  const isBeyond = charted.data?.has_more === true && offset + PAGE > MAX_CHARTED;
  const further = useResource<UsagePart>(
    isBeyond ? `v1/usage?${parameters}&limit=${PAGE}&offset=${offset}` : undefined,
    true,
  );
  const page = isBeyond ? further : { ...charted, data: partOf(charted.data, offset) };
  const keyName = useKeyNames();
  const name = (row: UsageRow) => nameOf(row, group, keyName);
  const choose = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ offset: undefined, ...changed });
  const rows = total.data?.data;
  const sum = (
    figure: "cost_usd" | "requests" | "errors" | "prompt_tokens" | "completion_tokens",
  ) => rows?.reduce((all, row) => all + row[figure], 0);
  return (
    <>
      <PageHead title="Usage">
        <Button onClick={() => void perform("Saved the file.", () => download(parameters))}>
          Download CSV
        </Button>
      </PageHead>
      <div class="filters">
        <Field label="From" type="date" value={from} onInput={(value) => choose({ from: value })} />
        <Field label="To" type="date" value={to} onInput={(value) => choose({ to: value })} />
        <Choice
          label="Interval"
          value={interval}
          options={[
            ["day", "By day"],
            ["hour", "By hour"],
          ]}
          onChange={(value) => choose({ interval: value })}
        />
      </div>
      {page.error !== undefined && <Notice tone="bad">{page.error}</Notice>}
      {(rows !== undefined || total.error === undefined) && (
        <Figures>
          <Figure label="Spend" value={shownSum(sum("cost_usd"), usd)} />
          <Figure label="Requests" value={shownSum(sum("requests"), integer)} />
          <Figure label="Errors" value={shownSum(sum("errors"), integer)} />
          <Figure label="Prompt tokens" value={shownSum(sum("prompt_tokens"), short)} />
          <Figure label="Completion tokens" value={shownSum(sum("completion_tokens"), short)} />
        </Figures>
      )}
      <Tabs
        label="Group by"
        tabs={GROUPS}
        current={group}
        onChange={(value) =>
          choose({
            group_by: value,
            // Users and tags are kept by the day.
            ...((value === "user" || value === "tag") && { interval: undefined }),
          })
        }
      />
      <Panel
        title="Spend"
        aside={
          <span class="quiet">
            {charted.data?.has_more
              ? `The first ${integer(MAX_CHARTED)} lines are drawn: choose fewer days`
              : "Days and hours begin in UTC"}
          </span>
        }
      >
        <SpendChart
          rows={charted.data?.data ?? []}
          interval={interval}
          from={from}
          to={to}
          name={name}
        />
      </Panel>
      <Panel isFlush>
        <Table
          label="Usage"
          columns={columns(group, name)}
          rows={page.data?.data}
          error={page.error}
          keyOf={(row) => `${row.date} ${name(row)}`}
          empty={
            <Empty title="Nothing was used in this time.">
              <p>Choose other days, or send a request: it appears here within seconds.</p>
            </Empty>
          }
        />
        {page.data !== undefined && (
          <Pager
            first={offset}
            count={page.data.data.length}
            hasMore={page.data.has_more}
            onPrevious={
              offset === 0
                ? undefined
                : () => changeQuery({ offset: String(Math.max(0, offset - PAGE)) })
            }
            onNext={() => changeQuery({ offset: String(offset + PAGE) })}
          />
        )}
      </Panel>
    </>
  );
}

function shownSum(
  value: number | undefined,
  format: (value: number) => string,
): string | undefined {
  return value === undefined ? undefined : format(value);
}

function dayAfter(date: string): string | undefined {
  const ms = Date.parse(date);
  return Number.isNaN(ms) ? undefined : day(ms + DAY_MS);
}

function nameOf(
  row: UsageRow,
  group: Group,
  keyName: (id: string | null | undefined) => string,
): string {
  if (group === "") return "Total";
  const value = row[NAMES[group]];
  return group === "key" ? keyName(value) : (value ?? "None");
}

const SHOWN_SERIES = 5;
const HOUR_SECONDS = 3_600;
const MS_PER_SECOND = 1_000;

interface SpendChartProps {
  readonly rows: readonly UsageRow[];
  readonly interval: "day" | "hour";
  readonly from: string;
  readonly to: string;
  name(row: UsageRow): string;
}

/** The largest names have a line each, what is beyond is one line too. */
function SpendChart({ rows, interval, from, to, name }: SpendChartProps) {
  const names = rows.map(name).join();
  const { times, series } = useMemo(() => {
    const step = interval === "hour" ? HOUR_SECONDS : DAY_MS / MS_PER_SECOND;
    const first = Date.parse(from) / MS_PER_SECOND;
    const end = Math.min(Date.parse(to) + DAY_MS, Date.now()) / MS_PER_SECOND;
    const count = Math.max(0, Math.min(MAX_CHARTED, Math.ceil((end - first) / step)));
    const beginnings = Array.from({ length: count }, (_, at) => first + at * step);
    return { times: beginnings, series: seriesOf(rows, name, beginnings, step) };
  }, [rows, interval, from, to, names]);
  return <Chart label="Spend" times={times} series={series} height={220} format={usd} />;
}

function seriesOf(
  rows: readonly UsageRow[],
  name: (row: UsageRow) => string,
  times: readonly number[],
  step: number,
): Series[] {
  const totals = new Map<string, number>();
  for (const row of rows) totals.set(name(row), (totals.get(name(row)) ?? 0) + row.cost_usd);
  const largest = [...totals].toSorted(([, a], [, b]) => b - a).map(([one]) => one);
  const shown = largest.slice(0, SHOWN_SERIES);
  const labels = largest.length > SHOWN_SERIES ? [...shown, "Others"] : shown;
  const values = labels.map(() => times.map(() => 0));
  for (const row of rows) {
    const at = Math.floor((Date.parse(row.date) / MS_PER_SECOND - times[0]!) / step);
    const of = shown.indexOf(name(row));
    const line = values[of === -1 ? labels.length - 1 : of];
    if (line?.[at] !== undefined) line[at] += row.cost_usd;
  }
  const isAlone = labels.length <= 1;
  if (labels.length === 0)
    return [{ label: "Spend", values: times.map(() => 0), color: 1, isBars: true }];
  return labels.map((label, at) => ({
    label: isAlone && label === "Total" ? "Spend" : label,
    values: values[at]!,
    color: at + 1,
    isBars: isAlone,
  }));
}

function columns(group: Group, name: (row: UsageRow) => string): Column<UsageRow>[] {
  const number = (
    title: string,
    value: (row: UsageRow) => string,
    isSecondary = false,
  ): Column<UsageRow> => ({
    title,
    isNumber: true,
    isSecondary,
    cell: value,
  });
  return [
    { title: "From (UTC)", cell: ({ date }) => date.replace("T", " ").replace(/:00Z$/, "") },
    ...(group === ""
      ? []
      : [{ title: GROUPS.find(([one]) => one === group)![1], cell: (row: UsageRow) => name(row) }]),
    number("Requests", ({ requests }) => integer(requests)),
    number("Errors", ({ errors }) => integer(errors)),
    number("Prompt tokens", ({ prompt_tokens: tokens }) => integer(tokens), true),
    number("Cached", ({ cached_tokens: tokens }) => integer(tokens), true),
    number("Completion tokens", ({ completion_tokens: tokens }) => integer(tokens), true),
    number("Spend", ({ cost_usd: cost }) => usd(cost)),
  ];
}

/** Saves what the API answers as CSV, up to its 1,000 lines. */
async function download(parameters: URLSearchParams): Promise<void> {
  const response = await send("GET", `v1/usage?${parameters}&format=csv&limit=${MAX_CHARTED}`, {
    headers: { accept: "text/csv" },
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = "usage.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}
