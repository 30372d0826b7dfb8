import { useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { Chart } from "../components/chart.tsx";
import {
  Area,
  Button,
  Check,
  Choice,
  Code,
  CopyText,
  Field,
  Tabs,
} from "../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../components/dialog.tsx";
import {
  Badge,
  Empty,
  Figure,
  Figures,
  Meter,
  Notice,
  PageHead,
  Panel,
  Time,
} from "../components/display.tsx";
import { ICON_NAMES, Icon, Mark } from "../components/icon.tsx";
import { ActionMenu, type MenuItem } from "../components/menu.tsx";
import { RangePicker, useComparison, useRange } from "../components/range-picker.tsx";
import { StackedChart } from "../components/stacked-chart.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, usd } from "../format.ts";
import { intervalQuery, intervalTimes } from "../range.ts";
import { type Amount, stackOf } from "../stack.ts";

const HOUR_SECONDS = 3_600;
const FIRST_HOUR = 1_767_225_600;
const HOURS = Array.from({ length: 24 }, (_, hour) => FIRST_HOUR + hour * HOUR_SECONDS);
const WAVE = HOURS.map((_, hour) => 40 + 30 * Math.sin(hour / 3) + (hour % 5) * 4);

interface Sample {
  readonly name: string;
  readonly count: number;
  readonly costUsd: number;
}

const SAMPLES: readonly Sample[] = [
  { name: "A short name", count: 12, costUsd: 0.42 },
  { name: "<img src=x onerror=alert(1)>", count: 1_204_331, costUsd: 18_204.5 },
  { name: "a-name-that-goes-on-and-on-".repeat(4), count: 7, costUsd: 3 },
];

const ACTIONS: readonly MenuItem[] = [
  { label: "Rotate", icon: "rotate-cw", onSelect: () => toast("Rotated.") },
  { label: "Delete", icon: "trash-2", isDanger: true, onSelect: () => toast("Deleted.") },
];

const AUTHORS = ["openai", "anthropic", "google", "mistral", "meta", "deepseek", "xai", "another"];

const COLUMNS: readonly Column<Sample>[] = [
  { title: "Name", cell: ({ name }) => <span class="strong">{name}</span> },
  { title: "Count", isNumber: true, cell: ({ count }) => integer(count) },
  { title: "Cost", isNumber: true, cell: ({ costUsd }) => usd(costUsd) },
  {
    title: "Actions",
    isAction: true,
    cell: ({ name }) => (
      <>
        <Button variant="quiet">Edit</Button>
        <ActionMenu label={`Actions for ${name}`} items={ACTIONS} />
      </>
    ),
  },
];

const keyOf = ({ name }: Sample) => name;

/** Every component in its states, for visual checks. */
export function ComponentsPage() {
  const [text, setText] = useState("");
  const [tab, setTab] = useState("day");
  const [isChecked, setChecked] = useState(true);
  const [dialog, setDialog] = useState<"dialog" | "confirm">();
  const close = () => setDialog(undefined);
  return (
    <>
      <PageHead title="Components">
        <Button onClick={() => toast("Success.")}>Toast</Button>
        <Button onClick={() => toast("Failure.", true)}>Error toast</Button>
        <Button onClick={() => setDialog("dialog")}>Dialog</Button>
        <Button onClick={() => setDialog("confirm")}>Confirmation</Button>
      </PageHead>
      <Figures>
        <Figure label="Spend today" value={usd(12.5)} note="$0.40 more than yesterday" />
        <Figure label="Requests" value={integer(1_204_331)} />
        <Figure label="Loading" value={undefined} />
        <Figure label="Balance" value={usd(-3)} note={<span class="bad">Below zero</span>} />
      </Figures>
      <Panel title="Buttons">
        <div class="actions">
          <Button variant="primary">Primary</Button>
          <Button>Plain</Button>
          <Button variant="danger">Danger</Button>
          <Button variant="quiet">Quiet</Button>
          <Button variant="link">Link</Button>
          <Button isDisabled>Disabled</Button>
          <Button variant="primary" isBusy>
            Busy
          </Button>
        </div>
      </Panel>
      <Panel title="Icons and marks">
        <div class="actions">
          {ICON_NAMES.map((name) => (
            <Icon key={name} name={name} />
          ))}
          {AUTHORS.map((author) => (
            <Mark key={author} of={author} />
          ))}
        </div>
      </Panel>
      <Panel title="Fields">
        <form>
          <div class="pair">
            <Field label="Empty" value={text} onInput={setText} placeholder="Placeholder" />
            <Field label="With a hint" value="12.5" onInput={setText} hint="USD per UTC day" />
            <Field label="With an error" value="x" onInput={setText} error="Enter a number." />
            <Field label="Secret" value="gateway_sk_0000" onInput={setText} isSecret />
            <Field
              label="With suggestions"
              value={text}
              onInput={setText}
              suggestions={["First", "Second"]}
            />
            <Field label="Disabled" value="Fixed" onInput={setText} isDisabled />
            <Choice
              label="Choice"
              value="b"
              options={[
                ["a", "First"],
                ["b", "Second"],
              ]}
              onChange={setText}
            />
          </div>
          <Area label="Multiple lines" value={text} onInput={setText} />
          <Area label="With an error" value="{" onInput={setText} error="Enter JSON." />
          <Check label="Checkbox" isChecked={isChecked} onChange={setChecked} />
          <CopyText label="sample" text="gateway_sk_0000000000000000000000000000000000000" />
          <Code text="curl https://gateway.example.com/v1/models" action="Copy as curl" />
        </form>
      </Panel>
      <Panel title="Tabs, badges, notices">
        <Tabs
          label="Interval"
          tabs={[
            ["hour", "By hour"],
            ["day", "By day"],
            ["month", "By month"],
          ]}
          current={tab}
          onChange={setTab}
        />
        <div class="stack">
          <p class="actions">
            <Badge>Neutral</Badge>
            <Badge tone="good">Good</Badge>
            <Badge tone="warn">Warning</Badge>
            <Badge tone="bad">Bad</Badge>
            <Time iso={new Date(FIRST_HOUR * 1_000).toISOString()} form="exact" />
          </p>
          <div class="pair">
            <Meter label="Low" share={0.2} text="$2.00 of $10.00" />
            <Meter label="High" share={0.85} text="$8.50 of $10.00" />
            <Meter label="Exceeded" share={1.2} text="$12.00 of $10.00" />
          </div>
          <Notice>Neutral notice</Notice>
          <Notice tone="good">Good notice</Notice>
          <Notice tone="warn">Warning notice</Notice>
          <Notice tone="bad">Error notice</Notice>
        </div>
      </Panel>
      <div class="columns">
        <Panel title="Bar chart">
          <Chart
            label="Sample spend by hour"
            times={HOURS}
            series={[{ label: "Spend", values: WAVE, color: 1, isBars: true }]}
            format={usd}
          />
        </Panel>
        <Panel title="Line chart">
          <Chart
            label="Sample requests by hour"
            times={HOURS}
            series={[
              { label: "Requests", values: WAVE, color: 2 },
              { label: "Errors", values: WAVE.map((value) => value / 8), color: 4 },
            ]}
            format={(value) => integer(Math.round(value))}
          />
        </Panel>
      </div>
      <StackedSample />
      <Panel title="Table" isFlush>
        <Table label="Samples" columns={COLUMNS} rows={SAMPLES} keyOf={keyOf} empty={null} />
        <Pager
          first={50}
          count={3}
          total={53}
          hasMore={false}
          onPrevious={() => {}}
          onNext={() => {}}
        />
      </Panel>
      <Panel title="Loading table" isFlush>
        <Table
          label="Loading samples"
          columns={COLUMNS}
          rows={undefined}
          keyOf={keyOf}
          empty={null}
        />
      </Panel>
      <Panel title="Failed table" isFlush>
        <Table
          label="Failed samples"
          columns={COLUMNS}
          rows={undefined}
          error="The gateway cannot be reached."
          keyOf={keyOf}
          empty={null}
        />
      </Panel>
      <Panel title="Empty table" isFlush>
        <Table
          label="No samples"
          columns={COLUMNS}
          rows={[]}
          keyOf={keyOf}
          empty={
            <Empty title="No entries yet">
              <p>States the next step.</p>
              <Button variant="primary">Create</Button>
            </Empty>
          }
        />
      </Panel>
      {dialog === "dialog" && (
        <Dialog title="A dialog" onClose={close}>
          <Form submit="Fail" onCancel={close} onSubmit={async () => fail()}>
            <Field label="Field" value={text} onInput={setText} />
          </Form>
        </Dialog>
      )}
      {dialog === "confirm" && (
        <Confirm title="Confirm?" action="Confirm" onClose={close} onConfirm={async () => close()}>
          This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

const SAMPLE_PARTS = ["gpt-4o", "claude-sonnet", "gemini-flash", "a", "b", "c", "d", "e"];

/** Stacked bars with a range. Their bars lead to requests. */
function StackedSample() {
  const range = useRange();
  const isCompared = useComparison();
  const times = intervalTimes(range, range.interval);
  const amounts: Amount[] = times.flatMap((time, at) =>
    SAMPLE_PARTS.map((id, index) => ({
      ...{ time, id },
      value: (Math.sin(at / 2 + index) + 1.2) / (index + 1),
    })),
  );
  const before = { label: range.before.label, values: times.map((_, at) => 2 + Math.cos(at / 3)) };
  return (
    <Panel title="Stacked bars">
      <RangePicker range={range} hasComparison />
      <StackedChart
        label="Sample spend by model"
        unit="USD"
        times={times}
        parts={stackOf(amounts, times, (id) => id ?? "None")}
        before={isCompared ? before : undefined}
        format={usd}
        linkTo={(time, part) => ({
          page: "requests",
          query: {
            ...(time !== undefined && intervalQuery(range, range.interval, time)),
            model: part?.id ?? undefined,
          },
        })}
      />
    </Panel>
  );
}

function fail(): never {
  throw new ApiError(409, "name_taken", "This name already exists.", "name");
}
