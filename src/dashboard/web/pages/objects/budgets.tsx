import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Choice, Field, Link } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { Empty, PageHead, Panel, Time } from "../../components/display.tsx";
import { ActionMenu } from "../../components/menu.tsx";
import { type Column, OffsetPager, Table } from "../../components/table.tsx";
import { titled } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { changeQuery, query } from "../../router.ts";
import { spendCell } from "../spend.tsx";
import { useConfirmedCall } from "./object-list.tsx";

/** A budget in the answer of GET /v1/budgets. */
interface Budget {
  readonly id: string;
  readonly subject: { readonly type: string; readonly value: string };
  readonly daily_budget_usd: number | null;
  readonly monthly_budget_usd: number | null;
  readonly usage_today_usd: number;
  readonly usage_month_usd: number;
  readonly created_at: string;
}

const PAGE_SIZE = 25;

/** Budgets of end users and tags. */
export function BudgetsPage() {
  const [offset, setOffset] = useState(0);
  const [edited, setEdited] = useState<Budget | "new">();
  const { ask, dialog } = useConfirmedCall();
  const type = query.value.get("type") ?? "";
  const value = query.value.get("value") ?? "";
  const filter = (name: string) => (text: string) => {
    setOffset(0);
    changeQuery({ [name]: text });
  };
  const parameters = new URLSearchParams({ limit: String(PAGE_SIZE), offset: String(offset) });
  if (type !== "") parameters.set("type", type);
  if (value !== "") parameters.set("value", value);
  const { data, error, reload } = useResource<{ data: Budget[]; total: number }>(
    `v1/budgets?${parameters}`,
    true,
  );
  const remove = ({ id, subject }: Budget) =>
    ask({
      ...{ title: "Delete this budget?", action: "Delete budget", done: "Deleted the budget." },
      ...{ method: "DELETE", path: `v1/budgets/${id}`, onDone: reload },
      children: (
        <>
          Requests of the {subject.type} <b>{subject.value}</b> are no longer limited by it.
        </>
      ),
    });
  const columns: Column<Budget>[] = [
    {
      title: "Subject",
      cell: ({ subject }) => (
        <span>
          <b class="strong">{subject.value}</b>
          <span class="sub">{titled(subject.type)}</span>
        </span>
      ),
    },
    {
      title: "Today",
      isNumber: true,
      cell: (budget) =>
        spendCell(
          budget.usage_today_usd,
          budget.daily_budget_usd,
          `${budget.subject.value}, today`,
        ),
    },
    {
      title: "This month",
      isNumber: true,
      cell: (budget) =>
        spendCell(
          budget.usage_month_usd,
          budget.monthly_budget_usd,
          `${budget.subject.value}, this month`,
        ),
    },
    { title: "Created", isSecondary: true, cell: ({ created_at: at }) => <Time iso={at} /> },
    {
      title: "Actions",
      isAction: true,
      cell: (budget) => (
        <ActionMenu
          label={`Actions for ${budget.subject.value}`}
          items={[
            {
              ...{ label: "Change", icon: "pencil", needs: "keys:manage" },
              onSelect: () => setEdited(budget),
            },
            {
              ...{ label: "Delete", icon: "trash-2", isDanger: true, needs: "keys:manage" },
              onSelect: () => remove(budget),
            },
          ]}
        />
      ),
    },
  ];
  const isFiltered = type !== "" || value !== "";
  return (
    <>
      <PageHead title="Budgets">
        <Button variant="primary" needs="keys:manage" onClick={() => setEdited("new")}>
          Create budget
        </Button>
      </PageHead>
      <div class="filters">
        <Choice
          label="Type"
          value={type}
          options={[
            ["", "Users and tags"],
            ["user", "Users"],
            ["tag", "Tags"],
          ]}
          onChange={filter("type")}
        />
        <Field
          label="User or tag"
          type="search"
          value={value}
          placeholder="Exact name"
          onInput={filter("value")}
        />
      </div>
      <Panel isFlush>
        <Table
          label="Budgets"
          columns={columns}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            isFiltered ? (
              <Empty title="No matching budgets">
                <p>Choose another type, or clear the name.</p>
              </Empty>
            ) : (
              <Empty title="No budgets of users and tags yet">
                <p>
                  A budget limits the spend of one end user or tag that requests name. Budgets of
                  keys are on the page <Link page="keys">Keys</Link>, of teams on{" "}
                  <Link page="teams">Teams</Link>.
                </p>
                <Button needs="keys:manage" onClick={() => setEdited("new")}>
                  Create your first budget
                </Button>
              </Empty>
            )
          }
        />
        <OffsetPager
          listed={data}
          total={data?.total}
          offset={offset}
          pageSize={PAGE_SIZE}
          onTurn={setOffset}
        />
      </Panel>
      {edited !== undefined && (
        <BudgetDialog
          edited={edited === "new" ? undefined : edited}
          onClose={() => setEdited(undefined)}
          onSaved={reload}
        />
      )}
      {dialog}
    </>
  );
}

interface BudgetDialogProps {
  readonly edited: Budget | undefined;
  onClose(): void;
  onSaved(): void;
}

const amountText = (amount: number | null | undefined) => (amount == null ? "" : String(amount));
const amountOf = (text: string) => (text.trim() === "" ? null : Number(text));

function BudgetDialog({ edited, onClose, onSaved }: BudgetDialogProps) {
  const [type, setType] = useState("user");
  const [value, setValue] = useState("");
  const [daily, setDaily] = useState(amountText(edited?.daily_budget_usd));
  const [monthly, setMonthly] = useState(amountText(edited?.monthly_budget_usd));
  const save = async () => {
    const limits = { daily_budget_usd: amountOf(daily), monthly_budget_usd: amountOf(monthly) };
    if (edited === undefined) {
      await call("POST", "v1/budgets", { body: { subject: { type, value }, ...limits } });
    } else {
      await call("PATCH", `v1/budgets/${edited.id}`, { body: limits });
    }
    toast("Saved the budget.");
    onSaved();
    onClose();
  };
  const isUnlimited = daily.trim() === "" && monthly.trim() === "";
  return (
    <Dialog
      title={edited === undefined ? "Create budget" : `Budget of ${edited.subject.value}`}
      onClose={onClose}
    >
      <Form
        submit={edited === undefined ? "Create" : "Save"}
        needs="keys:manage"
        isDisabled={(edited === undefined && value === "") || isUnlimited}
        onCancel={onClose}
        onSubmit={save}
      >
        {edited === undefined && (
          <>
            <Choice
              label="Type"
              value={type}
              options={[
                ["user", "User"],
                ["tag", "Tag"],
              ]}
              hint="The field user of requests, or an entry of metadata.tags."
              onChange={setType}
            />
            <Field label="Name" value={value} isRequired onInput={setValue} />
          </>
        )}
        <Field
          label="Daily budget (USD)"
          value={daily}
          inputMode="decimal"
          hint="Per UTC day. Empty: no limit."
          onInput={setDaily}
        />
        <Field
          label="Monthly budget (USD)"
          value={monthly}
          inputMode="decimal"
          hint="Per UTC month. Empty: no limit."
          onInput={setMonthly}
        />
      </Form>
    </Dialog>
  );
}
