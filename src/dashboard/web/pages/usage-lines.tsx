import { Choice } from "../components/controls.tsx";
import { Empty, Panel } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, percent, usd } from "../format.ts";
import { type Resource, useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { type Group, groupValue, MAX_ROWS, type UsagePart, type UsageRow } from "./usage-rows.ts";

const PAGE_SIZE = 50;

interface LinesProps {
  readonly group: Group;
  /** Title of the column of names. */
  readonly title: string;
  readonly interval: "day" | "hour";
  /** The shown days, as parameters of the API. */
  readonly span: URLSearchParams;
  /** Rows per name and interval. Rows beyond `MAX_ROWS` are loaded with `parameters`. */
  readonly each: Resource<UsagePart>;
  readonly parameters: URLSearchParams;
  name(row: UsageRow): string;
}

/** The figures as a table: one row per name, or one per name and interval. */
export function UsageLines(props: LinesProps) {
  const { group, interval, span } = props;
  const isGrouped = group !== "";
  const { data, error } = useResource<UsagePart>(
    isGrouped ? `v1/usage?${span}&interval=month&group_by=${group}&limit=${MAX_ROWS}` : undefined,
    true,
  );
  // If there are more names than one answer contains, the sums would be incomplete.
  const canSum = isGrouped && data?.has_more !== true;
  const isEach = !canSum || query.value.get("rows") === "each";
  return (
    <Panel
      isFlush
      title={isGrouped ? `By ${props.title.toLowerCase()}` : undefined}
      aside={
        !canSum ? undefined : (
          <Choice
            label="Rows"
            isInline
            value={isEach ? "each" : ""}
            options={[
              ["", "Totals"],
              ["each", interval === "hour" ? "Per hour" : "Per day"],
            ]}
            onChange={(rows) => changeQuery({ rows, offset: undefined })}
          />
        )
      }
    >
      {isEach ? (
        <EachInterval {...props} />
      ) : (
        <Table
          label="Usage"
          columns={columnsOfSums(props, data)}
          rows={data && sumsOf(data, group)}
          error={error}
          keyOf={(row) => groupValue(row, group)}
          empty={<NoUsage />}
        />
      )}
    </Panel>
  );
}

function EachInterval({ group, title, each, parameters, name }: LinesProps) {
  const offset = Number(query.value.get("offset") ?? 0) || 0;
  const isBeyond = each.data?.has_more === true && offset + PAGE_SIZE > MAX_ROWS;
  const further = useResource<UsagePart>(
    isBeyond ? `v1/usage?${parameters}&limit=${PAGE_SIZE}&offset=${offset}` : undefined,
    true,
  );
  const { data, error } = isBeyond ? further : { ...each, data: partOf(each.data, offset) };
  const turn = (to: number) => changeQuery({ offset: to === 0 ? undefined : String(to) });
  return (
    <>
      <Table
        label="Usage"
        columns={[FROM, ...(group === "" ? [] : [{ title, cell: name }]), ...FIGURES]}
        rows={data?.data}
        error={error}
        keyOf={(row) => `${row.date} ${groupValue(row, group)}`}
        empty={<NoUsage />}
      />
      {data !== undefined && (
        <Pager
          first={offset}
          count={data.data.length}
          hasMore={data.has_more}
          onPrevious={offset === 0 ? undefined : () => turn(Math.max(0, offset - PAGE_SIZE))}
          onNext={() => turn(offset + PAGE_SIZE)}
        />
      )}
    </>
  );
}

function NoUsage() {
  return (
    <Empty title="No usage in this period">
      <p>Choose other days, or send a request: it appears here within seconds.</p>
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

/** Returns the sums, highest cost first. Each input row is for one value and month. */
function sumsOf({ data }: UsagePart, group: Group): UsageRow[] {
  const sums = new Map<string, UsageRow>();
  for (const row of data) {
    const previous = sums.get(groupValue(row, group));
    sums.set(groupValue(row, group), previous === undefined ? row : sumOf(previous, row));
  }
  return [...sums.values()].toSorted((a, b) => b.cost_usd - a.cost_usd || b.requests - a.requests);
}

function sumOf(a: UsageRow, b: UsageRow): UsageRow {
  return {
    ...a,
    requests: a.requests + b.requests,
    errors: a.errors + b.errors,
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    cached_tokens: a.cached_tokens + b.cached_tokens,
    cost_usd: a.cost_usd + b.cost_usd,
  };
}

function figure(
  title: string,
  cell: (row: UsageRow) => string,
  isSecondary = false,
): Column<UsageRow> {
  return { title, isNumber: true, isSecondary, cell };
}

const FROM: Column<UsageRow> = {
  title: "Start (UTC)",
  cell: ({ date }) => date.replace("T", " ").replace(/:00Z$/, ""),
};

const FIGURES: readonly Column<UsageRow>[] = [
  figure("Requests", ({ requests }) => integer(requests)),
  figure("Errors", ({ errors }) => integer(errors)),
  figure("Prompt tokens", ({ prompt_tokens: tokens }) => integer(tokens), true),
  figure("Cached", ({ cached_tokens: tokens }) => integer(tokens), true),
  figure("Completion tokens", ({ completion_tokens: tokens }) => integer(tokens), true),
  figure("Spend", ({ cost_usd: cost }) => usd(cost)),
];

/**
 * Returns the columns of sums. A request counts for each of its tags, so tags have no share column: their
 * shares could exceed 100 % in total.
 */
function columnsOfSums({ group, title, name }: LinesProps, whole: UsagePart | undefined) {
  const total = whole?.data.reduce((sum, row) => sum + row.cost_usd, 0) ?? 0;
  const share = figure("Share", ({ cost_usd: cost }) =>
    total === 0 ? "—" : percent(cost / total),
  );
  return [{ title, cell: name }, ...FIGURES, ...(group === "tag" ? [] : [share])];
}
