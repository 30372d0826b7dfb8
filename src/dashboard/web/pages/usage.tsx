import { Button, Choice } from "../components/controls.tsx";
import { Figure, Figures, Notice, PageHead, Panel } from "../components/display.tsx";
import { RangePicker, useComparison, useRange } from "../components/range-picker.tsx";
import { Segments } from "../components/segments.tsx";
import { download } from "../download.ts";
import { change, integer, percent, short, usd } from "../format.ts";
import { spanParameters } from "../range.ts";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { MAX_PARTS } from "../stack.ts";
import { useKeyNames } from "./key-names.ts";
import { useOwnerNames } from "./people/names.ts";
import { UsageChart } from "./usage-chart.tsx";
import { UsageLines } from "./usage-lines.tsx";
import {
  ERROR_FILTER,
  GROUPS,
  labelOf,
  MAX_ROWS,
  METRICS,
  type MetricName,
  sumOf,
  type UsagePart,
  type UsageRow,
} from "./usage-rows.ts";

const METRIC_TITLES = (Object.keys(METRICS) as MetricName[]).map(
  (name) => [name, METRICS[name].title] as const,
);

/** Value of `group_by` in the query of the page for figures without groups. */
const TOTAL = "total";

export function UsagePage() {
  const urlQuery = query.value;
  const grouping = urlQuery.get("group_by") ?? "model";
  const [group, title] = GROUPS.find(([id]) => (id || TOTAL) === grouping) ?? GROUPS[1];
  const [metricName] = METRIC_TITLES.find(([name]) => name === urlQuery.get("metric")) ?? ["spend"];
  const metric = METRICS[metricName];
  const range = useRange();
  const isCompared = useComparison();
  const isByUserOrTag = group === "user" || group === "tag";
  // The API counts users and tags by day.
  const interval = range.interval === "hour" && isByUserOrTag ? "day" : range.interval;
  const byDay = new URLSearchParams(spanParameters(range));
  if (group !== "") byDay.set("group_by", group);
  const total = useUsage(new URLSearchParams({ ...spanParameters(range), interval }));
  const before = useUsage(
    isCompared ? new URLSearchParams({ ...spanParameters(range.before), interval }) : undefined,
  );
  const ranked = { group_by: group, top: String(MAX_PARTS), top_by: metric.rankedBy };
  const grouped = useUsage(
    group === ""
      ? undefined
      : new URLSearchParams({ ...spanParameters(range), interval, ...ranked }),
  );
  const shown = group === "" ? total : grouped;
  const names = { keyName: useKeyNames(), ownerName: useOwnerNames() };
  const label = (id: string | null) => labelOf(id, group, names);
  const choose = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ offset: undefined, ...changed });
  return (
    <>
      <PageHead title="Usage">
        <Button
          onClick={() =>
            void download(`v1/usage?${byDay}&format=csv&limit=${MAX_ROWS}`, "usage.csv")
          }
        >
          Download CSV
        </Button>
      </PageHead>
      <RangePicker range={range} hasComparison change={{ offset: undefined }} />
      {total.error !== undefined && <Failure error={total.error} onRetry={total.reload} />}
      {total.data?.is_complete === false && <IncompleteFigures />}
      {(total.data !== undefined || total.error === undefined) && (
        <Totals rows={total.data?.data} before={before.data?.data} />
      )}
      <div class="filters">
        <Segments
          label="Metric"
          options={METRIC_TITLES}
          value={metricName}
          onChange={(name) => choose({ metric: name === "spend" ? undefined : name })}
        />
        <Choice
          label="Group by"
          isInline
          value={group}
          options={GROUPS}
          onChange={(value) => choose({ group_by: value || TOTAL })}
        />
      </div>
      {grouped.error !== undefined && <Failure error={grouped.error} onRetry={grouped.reload} />}
      {shown.data?.data.length !== 0 && shown.error === undefined && (
        <Panel
          title={group === "" ? metric.title : `${metric.title} by ${title.toLowerCase()}`}
          aside={<span class="quiet">{asideText(range.label, isByUserOrTag)}</span>}
        >
          <UsageChart
            label={`${metric.title} over time`}
            {...{ metric, range, interval, group }}
            rows={shown.data?.data ?? NO_ROWS}
            // A request counts for each of its tags, so their sums cannot be compared to a total.
            before={group === "tag" ? undefined : before.data?.data}
            {...(metricName === "errors" && { filters: ERROR_FILTER })}
            labelOf={label}
          />
        </Panel>
      )}
      <UsageLines {...{ group, title, metric, range, interval, total, labelOf: label }} />
    </>
  );
}

const NO_ROWS: readonly UsageRow[] = [];

function asideText(rangeLabel: string, isByUserOrTag: boolean): string {
  return isByUserOrTag ? `${rangeLabel}, whole days in UTC` : `${rangeLabel}, days in UTC`;
}

function useUsage(parameters: URLSearchParams | undefined) {
  const path = parameters && `v1/usage?${parameters}&limit=${MAX_ROWS}`;
  return useResource<UsagePart>(path, true);
}

interface FailureProps {
  readonly error: string;
  onRetry(): void;
}

/** An error of the API, with a button that loads again. */
export function Failure({ error, onRetry }: FailureProps) {
  return (
    <Notice tone="bad">
      {error}{" "}
      <Button variant="quiet" onClick={onRetry}>
        Try again
      </Button>
    </Notice>
  );
}

/** Shown while usage is incomplete: after very many requests at a time, or after an upgrade. */
export function IncompleteFigures() {
  return (
    <Notice tone="warn">
      These figures are incomplete: earlier requests are still being aggregated.
    </Notice>
  );
}

interface TotalsProps {
  readonly rows: readonly UsageRow[] | undefined;
  /** Rows of the period before. Undefined if they are not compared, or while they are loading. */
  readonly before: readonly UsageRow[] | undefined;
}

function Totals({ rows, before }: TotalsProps) {
  const now = rows && sumOf(rows);
  const earlier = before && sumOf(before);
  const figure = (
    name: "cost_usd" | "requests" | "errors" | "prompt_tokens" | "completion_tokens",
    format: (value: number) => string,
  ) => ({
    value: now && format(now[name]),
    note: now && earlier && `${change(earlier[name], now[name])} from ${format(earlier[name])}`,
  });
  const errors = figure("errors", integer);
  const rate = now && now.errors > 0 ? ` (${percent(now.errors / now.requests)})` : "";
  return (
    <Figures>
      <Figure label="Spend" {...figure("cost_usd", usd)} />
      <Figure label="Requests" {...figure("requests", integer)} />
      <Figure label="Errors" {...errors} value={errors.value && errors.value + rate} />
      <Figure label="Prompt tokens" {...figure("prompt_tokens", short)} />
      <Figure label="Completion tokens" {...figure("completion_tokens", short)} />
    </Figures>
  );
}
