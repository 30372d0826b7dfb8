import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Choice, Link } from "../components/controls.tsx";
import { Confirm, perform, toast } from "../components/dialog.tsx";
import { Badge, Empty, Meter, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { KeyDialog } from "./key-dialog.tsx";

/** An API key as GET /v1/keys lists it. */
export interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly scopes: readonly string[];
  readonly rate_limit_rpm: number | null;
  readonly daily_budget_usd: number | null;
  readonly monthly_budget_usd: number | null;
  readonly allowed_models: readonly string[] | null;
  readonly is_active: boolean;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
  readonly usage_today_usd: number;
  readonly usage_month_usd: number;
}

const PAGE = 50;

export function KeysPage() {
  const [offset, setOffset] = useState(0);
  const [state, setState] = useState("");
  const [edited, setEdited] = useState<ListedKey | "new">();
  const [revoked, setRevoked] = useState<ListedKey>();
  const filter = state === "" ? "" : `&active=${state}`;
  const { data, error, reload } = useResource<{ data: ListedKey[]; total: number }>(
    `v1/keys?limit=${PAGE}&offset=${offset}${filter}`,
    true,
  );
  const toggle = (key: ListedKey) =>
    perform(key.is_active ? `Switched ${key.name} off.` : `Switched ${key.name} on.`, async () => {
      await call("PATCH", `v1/keys/${key.id}`, { body: { is_active: !key.is_active } });
      reload();
    });
  return (
    <>
      <PageHead title="Keys">
        <Button variant="primary" onClick={() => setEdited("new")}>
          Create key
        </Button>
      </PageHead>
      <div class="filters">
        <Choice
          label="State"
          value={state}
          options={[
            ["", "All keys"],
            ["true", "Switched on"],
            ["false", "Switched off"],
          ]}
          onChange={(value) => {
            setState(value);
            setOffset(0);
          }}
        />
      </div>
      <Panel isFlush>
        <Table
          label="API keys"
          columns={columns({ onEdit: setEdited, onRevoke: setRevoked, onToggle: toggle })}
          rows={data?.data}
          error={error}
          keyOf={(key) => key.id}
          empty={
            <Empty title={state === "" ? "There is no key yet." : "No key is in this state."}>
              <p>
                A program calls models with a secret key. Create one for each program or person.
              </p>
            </Empty>
          }
        />
        {data !== undefined && (
          <Pager
            first={offset}
            count={data.data.length}
            total={data.total}
            hasMore={offset + data.data.length < data.total}
            onPrevious={offset === 0 ? undefined : () => setOffset(Math.max(0, offset - PAGE))}
            onNext={() => setOffset(offset + PAGE)}
          />
        )}
      </Panel>
      {edited !== undefined && (
        <KeyDialog
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {revoked !== undefined && (
        <Confirm
          title="Revoke this key?"
          action="Revoke key"
          onClose={() => setRevoked(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/keys/${revoked.id}`);
            toast(`Revoked ${revoked.name}.`);
            setRevoked(undefined);
            reload();
          }}
        >
          Requests with <b>{revoked.name}</b> are refused from now on. This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

interface RowActions {
  onEdit(key: ListedKey): void;
  onRevoke(key: ListedKey): void;
  onToggle(key: ListedKey): void;
}

function columns({ onEdit, onRevoke, onToggle }: RowActions): Column<ListedKey>[] {
  return [
    {
      title: "Name",
      cell: (key) => (
        <span>
          <Link page="requests" query={{ key_id: key.id }} class="strong">
            {key.name}
          </Link>
          <span class="sub code">{key.key_prefix}</span>
        </span>
      ),
    },
    { title: "State", cell: stateBadge },
    {
      title: "Today",
      isNumber: true,
      cell: (key) => spent(key.usage_today_usd, key.daily_budget_usd, `${key.name}, today`),
    },
    {
      title: "This month",
      isNumber: true,
      cell: (key) => spent(key.usage_month_usd, key.monthly_budget_usd, `${key.name}, this month`),
    },
    {
      title: "Requests per minute",
      isNumber: true,
      isSecondary: true,
      cell: (key) =>
        key.rate_limit_rpm === null ? (
          <span class="quiet">No limit</span>
        ) : (
          integer(key.rate_limit_rpm)
        ),
    },
    {
      title: "Last used",
      isSecondary: true,
      cell: (key) => <Time iso={key.last_used_at} otherwise="Never" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (key) => (
        <>
          <Button variant="quiet" label={`Edit ${key.name}`} onClick={() => onEdit(key)}>
            Edit
          </Button>
          <Button
            variant="quiet"
            label={`${key.is_active ? "Switch off" : "Switch on"} ${key.name}`}
            onClick={() => onToggle(key)}
          >
            {key.is_active ? "Switch off" : "Switch on"}
          </Button>
          <Button variant="quiet" onClick={() => onRevoke(key)}>
            Revoke
          </Button>
        </>
      ),
    },
  ];
}

function stateBadge(key: ListedKey) {
  if (!key.is_active) return <Badge>Off</Badge>;
  const isExpired = key.expires_at !== null && Date.parse(key.expires_at) <= Date.now();
  return isExpired ? <Badge tone="bad">Expired</Badge> : <Badge tone="good">On</Badge>;
}

function spent(amountUsd: number, budgetUsd: number | null, what: string) {
  if (budgetUsd === null) return usd(amountUsd);
  const share = budgetUsd === 0 ? 1 : amountUsd / budgetUsd;
  const label = `Budget of ${what}`;
  return <Meter label={label} share={share} text={`${usd(amountUsd)} of ${usd(budgetUsd)}`} />;
}
