import { useMemo } from "preact/hooks";
import { Empty, Notice, Panel } from "../../components/display.tsx";
import { Segments } from "../../components/segments.tsx";
import { StackedChart } from "../../components/stacked-chart.tsx";
import { capitalized, usd, usdExact } from "../../format.ts";
import { intervalTimes, type Range, spanParameters } from "../../range.ts";
import { useResource } from "../../resource.ts";
import { changeQuery, query } from "../../router.ts";
import { MAX_PARTS, stackOf } from "../../stack.ts";

/** A row in the answer of GET /v1/admin/usage with a ranking. */
interface GatewayUsageRow {
  readonly date: string;
  readonly organization_id?: string;
  readonly organization_name?: string | null;
  readonly model?: string | null;
  readonly provider?: string | null;
  readonly is_rest: boolean;
  readonly cost_usd: number;
}

interface GatewayUsage {
  readonly data: readonly GatewayUsageRow[];
}

const GROUPS = [
  ["organization", "Organization"],
  ["provider", "Provider"],
  ["model", "Model"],
] as const;
type Group = (typeof GROUPS)[number][0];

const MAX_ROWS = 1_000;
const MS_PER_SECOND = 1_000;

/** Spend over all organizations, in bars by organization, provider or model. */
export function GatewaySpend({
  range,
  isCompared,
}: {
  readonly range: Range;
  readonly isCompared: boolean;
}) {
  const [group] = GROUPS.find(([id]) => id === query.value.get("by")) ?? GROUPS[0];
  const { interval } = range;
  const common = { interval, limit: String(MAX_ROWS) };
  const ranked = { ...common, group_by: group, top: String(MAX_PARTS) };
  const usage = useResource<GatewayUsage>(
    `v1/admin/usage?${new URLSearchParams({ ...spanParameters(range), ...ranked })}`,
  );
  const earlier = useResource<GatewayUsage>(
    isCompared
      ? `v1/admin/usage?${new URLSearchParams({ ...spanParameters(range.before), ...common })}`
      : undefined,
  );
  const times = useMemo(() => intervalTimes(range, interval), [range.fromMs, range.beforeMs]);
  const parts = useMemo(() => partsOf(usage.data?.data ?? [], group, times), [usage.data, times]);
  const before = useMemo(() => {
    if (!isCompared || earlier.data === undefined) return undefined;
    const starts = intervalTimes(range.before, interval);
    const sums = new Map(earlier.data.data.map((row) => [timeOf(row), row.cost_usd]));
    const values = times.map((_, at) => sums.get(starts[at]!) ?? 0);
    return { label: capitalized(range.before.label), values };
  }, [earlier.data, isCompared, times]);
  return (
    <Panel
      title="Spend"
      aside={
        <Segments
          label="Stack by"
          options={GROUPS}
          value={group}
          onChange={(by) => changeQuery({ by })}
        />
      }
    >
      {usage.error !== undefined && <Notice tone="bad">{usage.error}</Notice>}
      {usage.data?.data.length === 0 ? (
        <Empty title="No requests in this period">
          <p>Choose a longer period.</p>
        </Empty>
      ) : (
        <StackedChart
          label="Spend of all organizations"
          unit="USD"
          {...{ times, parts, before }}
          format={usd}
          formatTick={usdExact}
        />
      )}
    </Panel>
  );
}

function timeOf({ date }: GatewayUsageRow): number {
  return Date.parse(date) / MS_PER_SECOND;
}

function partsOf(rows: readonly GatewayUsageRow[], group: Group, times: readonly number[]) {
  const names = new Map(
    rows.map(({ organization_id: id, organization_name: name }) => [id ?? null, name ?? id]),
  );
  const idOf = (row: GatewayUsageRow) =>
    (group === "organization" ? row.organization_id : row[group]) ?? null;
  const amounts = rows.map((row) => ({
    ...{ time: timeOf(row), id: idOf(row), value: row.cost_usd, isRest: row.is_rest },
  }));
  const nameless = group === "provider" ? "No provider" : "Unknown model";
  return stackOf(amounts, times, (id) =>
    group === "organization" ? (names.get(id) ?? "Unknown") : (id ?? nameless),
  );
}
