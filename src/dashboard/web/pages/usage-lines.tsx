import { Choice } from "../components/controls.tsx";
import { Empty, Panel } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, percent, usd } from "../format.ts";
import { type Resource, useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { type Group, groupValue, MAX_ROWS, type UsagePart, type UsageRow } from "./usage-rows.ts";

const PAGE = 50;

interface LinesProps {
  readonly group: Group;
  /** What stands above the names. */
  readonly title: string;
  readonly interval: "day" | "hour";
  /** The days that are shown, as parameters of the API. */
  readonly span: URLSearchParams;
  /** Rows of each name and interval; those beyond `MAX_ROWS` are asked for with the parameters. */
  readonly each: Resource<UsagePart>;
  readonly parameters: URLSearchParams;
  name(row: UsageRow): string;
}

/** The figures as a table: a row for each name, or for each name and interval. */
export function UsageLines(props: LinesProps) {
  const { group, interval, span } = props;
  const isGrouped = group !== "";
  const { data, error } = useResource<UsagePart>(
    isGrouped ? `v1/usage?${span}&interval=month&group_by=${group}&limit=${MAX_ROWS}` : undefined,
    true,
  );
  // Of more names than one answer has, the sums would be of some.
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
              ["", "Sums"],
              ["each", interval === "hour" ? "Each hour" : "Each day"],
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
          empty={<NothingUsed />}
        />
      )}
    </Panel>
  );
}

function EachInterval({ group, title, each, parameters, name }: LinesProps) {
  const offset = Number(query.value.get("offset") ?? 0) || 0;
  const isBeyond = each.data?.has_more === true && offset + PAGE > MAX_ROWS;
  const further = useResource<UsagePart>(
    isBeyond ? `v1/usage?${parameters}&limit=${PAGE}&offset=${offset}` : undefined,
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
        empty={<NothingUsed />}
      />
      {data !== undefined && (
        <Pager
          first={offset}
          count={data.data.length}
          hasMore={data.has_more}
          onPrevious={offset === 0 ? undefined : () => turn(Math.max(0, offset - PAGE))}
          onNext={() => turn(offset + PAGE)}
        />
      )}
    </>
  );
}

function NothingUsed() {
  return (
    <Empty title="Nothing was used in this time.">
      <p>Choose other days, or send a request: it appears here within seconds.</p>
    </Empty>
  );
}

/** A page of rows, the latest first where these are all. */
function partOf(whole: UsagePart | undefined, offset: number): UsagePart | undefined {
  if (whole === undefined) return undefined;
  const rows = whole.has_more
    ? whole.data
    : whole.data.toSorted((a, b) => b.date.localeCompare(a.date));
  const has_more = whole.has_more || rows.length > offset + PAGE;
  return { ...whole, data: rows.slice(offset, offset + PAGE), has_more };
}

/** The dearest first; rows are of a value and month each. */
function sumsOf({ data }: UsagePart, group: Group): UsageRow[] {
  const sums = new Map<string, UsageRow>();
  for (const row of data) {
    const before = sums.get(groupValue(row, group));
    sums.set(groupValue(row, group), before === undefined ? row : sumOf(before, row));
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
  title: "From (UTC)",
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

/** A request counts at each of its tags, so shares of tags may exceed the whole together. */
function columnsOfSums({ group, title, name }: LinesProps, whole: UsagePart | undefined) {
  const all = whole?.data.reduce((sum, row) => sum + row.cost_usd, 0) ?? 0;
  const share = figure("Share", ({ cost_usd: cost }) => (all === 0 ? "—" : percent(cost / all)));
  return [{ title, cell: name }, ...FIGURES, ...(group === "tag" ? [] : [share])];
}
