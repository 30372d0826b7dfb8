import { Choice, Link } from "../components/controls.tsx";
import { Empty, Meter, Panel, ShortId } from "../components/display.tsx";
import { type Column, OffsetPager, Table } from "../components/table.tsx";
import { integer, percent } from "../format.ts";
import { type Interval, intervalTimes, type Range, rangeQuery, spanParameters } from "../range.ts";
import { type Resource, useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import {
  type Group,
  idOf,
  MAX_ROWS,
  type Metric,
  type NameSum,
  requestsOf,
  spendText,
  sumsByName,
  type UsagePart,
  type UsageRow,
  type UsageSums,
} from "./usage-rows.ts";

const PAGE_SIZE = 50;
/** Most names with a line. */
const MAX_NAMES = 200;

interface LinesProps {
  readonly group: Group;
  /** Title of the column of names. */
  readonly title: string;
  readonly metric: Metric;
  readonly range: Range;
  readonly interval: Interval;
  /** Rows by interval, for all names together. */
  readonly total: Resource<UsagePart>;
  labelOf(id: string | null): string;
}

/** The figures as a table: one row per name, or one per name and interval. */
export function UsageLines(props: LinesProps) {
  const { group, title, interval } = props;
  const isGrouped = group !== "";
  const isEach = !isGrouped || query.value.get("rows") === "each";
  return (
    <Panel
      isFlush
      title={isGrouped ? `By ${title.toLowerCase()}` : `By ${interval}`}
      aside={
        isGrouped && (
          <Choice
            label="Rows"
            isInline
            value={isEach ? "each" : ""}
            options={[
              ["", "Totals"],
              ["each", `Per ${interval}`],
            ]}
            onChange={(rows) => changeQuery({ rows, offset: undefined })}
          />
        )
      }
    >
      {isEach ? <EachInterval {...props} /> : <Sums {...props} />}
    </Panel>
  );
}

function Sums(props: LinesProps) {
  const { group, metric, range } = props;
  // The API answers by month, so each name takes a row for each month.
  const months = intervalTimes(range, "month").length;
  const top = Math.min(MAX_NAMES, Math.floor(MAX_ROWS / months) - 2);
  const parameters = new URLSearchParams({
    ...{ ...spanParameters(range), interval: "month", group_by: group },
    ...{ top: String(top), top_by: metric.rankedBy, limit: String(MAX_ROWS) },
  });
  const { data, error } = useResource<UsagePart>(`v1/usage?${parameters}`, true);
  const rows = data && rankedSums(data.data, group, metric);
  return (
    <Table
      label="Usage"
      columns={columnsOfSums(props, rows ?? [])}
      rows={rows}
      error={error}
      keyOf={({ id }) => (id === undefined ? "rest" : `name ${id ?? ""}`)}
      empty={<NoUsage />}
    />
  );
}

function EachInterval({ group, title, range, interval, total, labelOf }: LinesProps) {
  const offset = Number(query.value.get("offset") ?? 0) || 0;
  const parameters = new URLSearchParams({ ...spanParameters(range), interval });
  if (group !== "") parameters.set("group_by", group);
  const listed = useResource<UsagePart>(
    group === "" ? undefined : `v1/usage?${parameters}&limit=${MAX_ROWS}`,
    true,
  );
  const each = group === "" ? total : listed;
  const isBeyond = each.data?.has_more === true && offset + PAGE_SIZE > MAX_ROWS;
  const further = useResource<UsagePart>(
    isBeyond ? `v1/usage?${parameters}&limit=${PAGE_SIZE}&offset=${offset}` : undefined,
    true,
  );
  const { data, error } = isBeyond ? further : { ...each, data: partOf(each.data, offset) };
  const turn = (to: number) => changeQuery({ offset: to === 0 ? undefined : String(to) });
  const name = { title, cell: (row: UsageRow) => labelOf(idOf(row, group) ?? null) };
  return (
    <>
      <Table
        label="Usage"
        columns={[FROM, ...(group === "" ? [] : [name]), ...FIGURES]}
        rows={data?.data}
        error={error}
        keyOf={(row) => `${row.date} ${idOf(row, group)}`}
        empty={<NoUsage />}
      />
      <OffsetPager listed={data} offset={offset} pageSize={PAGE_SIZE} onTurn={turn} />
    </>
  );
}

function NoUsage() {
  return (
    <Empty title="No usage in this period">
      <p>
        Choose another period, or send a request with a <Link page="keys">key</Link> or in the{" "}
        <Link page="playground">playground</Link>. It appears here within seconds.
      </p>
    </Empty>
  );
}

/** Returns a page of rows. If `whole` contains all rows, the latest come first. */
function partOf(whole: UsagePart | undefined, offset: number): UsagePart | undefined {
  if (whole === undefined) return undefined;
  const rows = whole.has_more
    ? whole.data
    : whole.data.toSorted((a, b) => b.date.localeCompare(a.date));
  const has_more = whole.has_more || rows.length > offset + PAGE_SIZE;
  return { ...whole, data: rows.slice(offset, offset + PAGE_SIZE), has_more };
}

/** Returns the sums by name, the largest by the metric first, and the rest last. */
function rankedSums(rows: readonly UsageRow[], group: Group, metric: Metric): NameSum[] {
  const rankOf = (sum: NameSum) => (sum.id === undefined ? -1 : metric.valueOf(sum));
  return sumsByName(rows, group).toSorted(
    (a, b) => rankOf(b) - rankOf(a) || b.requests - a.requests,
  );
}

function figure(
  title: string,
  cell: (row: UsageSums) => string,
  isSecondary = false,
): Column<UsageSums> {
  return { title, isNumber: true, isSecondary, cell };
}

const FROM: Column<UsageRow> = {
  title: "Start (UTC)",
  cell: ({ date }) => date.replace("T", " ").replace(/:00Z$/, ""),
};

const FIGURES: readonly Column<UsageSums>[] = [
  figure("Requests", ({ requests }) => integer(requests)),
  figure("Errors", ({ errors }) => integer(errors)),
  figure("Prompt tokens", ({ prompt_tokens: tokens }) => integer(tokens), true),
  figure("Cached", ({ cached_tokens: tokens }) => integer(tokens), true),
  figure("Completion tokens", ({ completion_tokens: tokens }) => integer(tokens), true),
  figure("Spend", spendText),
];

/**
 * Returns the columns of sums. A request counts for each of its tags. Tags therefore have no share column,
 * because their shares could exceed 100 % in total.
 */
function columnsOfSums(props: LinesProps, rows: readonly NameSum[]): readonly Column<NameSum>[] {
  const { group, title, metric, range } = props;
  const total = rows.reduce((sum, row) => sum + metric.valueOf(row), 0);
  const share: Column<NameSum> = {
    title: `Share of ${metric.title.toLowerCase()}`,
    cell: (row) => {
      const part = total > 0 ? metric.valueOf(row) / total : 0;
      const text = percent(part);
      const name = row.id === undefined ? "others" : props.labelOf(row.id);
      return <Meter label={`Share of ${name}`} share={part} text={text} tone="neutral" />;
    },
  };
  const name: Column<NameSum> = {
    title,
    cell: ({ id }) => <Name {...{ id, group, range }} {...props} />,
  };
  return [name, ...FIGURES, ...(group === "tag" ? [] : [share])];
}

interface NameProps extends LinesProps {
  readonly id: string | null | undefined;
}

/** A name that leads to its requests, with its id. */
function Name({ id, group, range, labelOf }: NameProps) {
  if (id === undefined) return <span class="quiet">Others</span>;
  const label = labelOf(id);
  const filter = requestsOf(group, id);
  return (
    <span>
      {filter === undefined ? (
        label
      ) : (
        <Link page="requests" query={{ ...rangeQuery(range), ...filter }}>
          {label}
        </Link>
      )}
      {id !== null && id !== label && <ShortId id={id} isSub />}
    </span>
  );
}
