import { Button, Choice, Field, Tabs } from "../components/controls.tsx";
import { Figure, Figures, Notice, PageHead, Panel } from "../components/display.tsx";
import { download } from "../download.ts";
import { integer, short, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import { useKeyNames } from "./key-names.ts";
import { useOwnerNames } from "./people/names.ts";
import { SpendChart } from "./usage-chart.tsx";
import { UsageLines } from "./usage-lines.tsx";
import { GROUPS, MAX_ROWS, nameOf, type UsagePart, type UsageRow } from "./usage-rows.ts";

const DAY_MS = 86_400_000;
const SHOWN_DAYS = 30;
const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);

export function UsagePage() {
  const urlQuery = query.value;
  const [group, title] = GROUPS.find(([id]) => id === urlQuery.get("group_by")) ?? GROUPS[0];
  const isByUserOrTag = group === "user" || group === "tag";
  const interval = urlQuery.get("interval") === "hour" && !isByUserOrTag ? "hour" : "day";
  const from = urlQuery.get("from") ?? day(Date.now() - (SHOWN_DAYS - 1) * DAY_MS);
  const to = urlQuery.get("to") ?? day(Date.now());
  const span = new URLSearchParams({ start_date: from, end_date: dayAfter(to) ?? to });
  const parameters = new URLSearchParams({ ...Object.fromEntries(span), interval });
  if (group !== "") parameters.set("group_by", group);
  const each = useResource<UsagePart>(`v1/usage?${parameters}&limit=${MAX_ROWS}`, true);
  const isTotalByDay = group === "" && interval === "day";
  const byDay = useResource<UsagePart>(
    isTotalByDay ? undefined : `v1/usage?${span}&interval=day&limit=${MAX_ROWS}`,
    true,
  );
  const total = isTotalByDay ? each : byDay;
  const names = { keyName: useKeyNames(), ownerName: useOwnerNames() };
  const name = (row: UsageRow) => nameOf(row, group, names);
  const choose = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ offset: undefined, ...changed });
  return (
    <>
      <PageHead title="Usage">
        <Button
          onClick={() =>
            void download(`v1/usage?${parameters}&format=csv&limit=${MAX_ROWS}`, "usage.csv")
          }
        >
          Download CSV
        </Button>
      </PageHead>
      <div class="filters">
        <Field label="From" type="date" value={from} onInput={(value) => choose({ from: value })} />
        <Field label="To" type="date" value={to} onInput={(value) => choose({ to: value })} />
        <Choice
          label="Interval"
          value={interval}
          options={[["day", "By day"], ...(isByUserOrTag ? [] : [["hour", "By hour"] as const])]}
          onChange={(value) => choose({ interval: value })}
        />
      </div>
      {each.error !== undefined && <Notice tone="bad">{each.error}</Notice>}
      {total.data?.is_complete === false && <IncompleteFigures />}
      {(total.data !== undefined || total.error === undefined) && (
        <Totals rows={total.data?.data} />
      )}
      <Tabs
        label="Group by"
        tabs={GROUPS}
        current={group}
        onChange={(value) => choose({ group_by: value })}
      />
      {each.data?.data.length !== 0 && (
        <Panel
          title="Spend"
          aside={
            <span class="quiet">
              {each.data?.has_more
                ? `Shows the first ${integer(MAX_ROWS)} rows: choose fewer days`
                : "Days and hours begin in UTC"}
            </span>
          }
        >
          <SpendChart
            rows={each.data?.data ?? []}
            interval={interval}
            from={from}
            to={to}
            name={name}
          />
        </Panel>
      )}
      <UsageLines {...{ group, title, interval, span, each, parameters, name }} />
    </>
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

function Totals({ rows }: { readonly rows: readonly UsageRow[] | undefined }) {
  const sum = (
    figure: "cost_usd" | "requests" | "errors" | "prompt_tokens" | "completion_tokens",
    format: (value: number) => string,
  ) => rows && format(rows.reduce((all, row) => all + row[figure], 0));
  return (
    <Figures>
      <Figure label="Spend" value={sum("cost_usd", usd)} />
      <Figure label="Requests" value={sum("requests", integer)} />
      <Figure label="Errors" value={sum("errors", integer)} />
      <Figure label="Prompt tokens" value={sum("prompt_tokens", short)} />
      <Figure label="Completion tokens" value={sum("completion_tokens", short)} />
    </Figures>
  );
}

function dayAfter(date: string): string | undefined {
  const ms = Date.parse(date);
  return Number.isNaN(ms) ? undefined : day(ms + DAY_MS);
}
