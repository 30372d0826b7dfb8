import { useState } from "preact/hooks";
import type { WireSettings } from "../../../lib/api-key-record.ts";
import { call, session } from "../api.ts";
import { Button, Choice, Field, Link } from "../components/controls.tsx";
import { Confirm, perform, toast } from "../components/dialog.tsx";
import { Badge, Empty, Meter, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, short, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { KeyDialog } from "./key-dialog.tsx";
import { KeyRotation } from "./key-rotation.tsx";

/** An API key in the answer of GET /v1/keys. */
export interface ListedKey extends WireSettings {
  readonly id: string;
  readonly key_prefix: string;
  readonly created_at: string;
  readonly last_used_at: string | null;
  readonly usage_today_usd: number;
  readonly usage_month_usd: number;
}

const PAGE_SIZE = 25;

type KeyAction = { readonly kind: "edit" | "rotate" | "revoke"; readonly key: ListedKey };

export function KeysPage() {
  const [offset, setOffset] = useState(0);
  const [state, setState] = useState("");
  const [search, setSearch] = useState("");
  const [action, setAction] = useState<KeyAction | "new">();
  const close = () => setAction(undefined);
  const parameters = new URLSearchParams({ limit: String(PAGE_SIZE), offset: String(offset) });
  if (state !== "") parameters.set("active", state);
  if (search !== "") parameters.set("search", search);
  const { data, error, reload } = useResource<{ data: ListedKey[]; total: number }>(
    `v1/keys?${parameters}`,
    true,
  );
  const fromFirstPage = (set: (value: string) => void) => (value: string) => {
    set(value);
    setOffset(0);
  };
  const toggle = (key: ListedKey) =>
    perform(key.is_active ? `Switched ${key.name} off.` : `Switched ${key.name} on.`, async () => {
      await call("PATCH", `v1/keys/${key.id}`, { body: { is_active: !key.is_active } });
      reload();
    });
  const isFiltered = state !== "" || search !== "";
  return (
    <>
      <PageHead title="Keys">
        <Button variant="primary" onClick={() => setAction("new")}>
          Create key
        </Button>
      </PageHead>
      <div class="filters">
        <Field
          label="Search"
          type="search"
          value={search}
          onInput={fromFirstPage(setSearch)}
          placeholder="Name or key prefix"
        />
        <Choice
          label="State"
          value={state}
          options={[
            ["", "All keys"],
            ["true", "Switched on"],
            ["false", "Switched off"],
          ]}
          onChange={fromFirstPage(setState)}
        />
      </div>
      <Panel isFlush>
        <Table
          label="API keys"
          columns={columns(setAction, toggle)}
          rows={data?.data}
          error={error}
          keyOf={(key) => key.id}
          empty={isFiltered ? <NoMatch /> : <NoKey onCreate={() => setAction("new")} />}
        />
        {data !== undefined && (
          <Pager
            first={offset}
            count={data.data.length}
            total={data.total}
            hasMore={offset + data.data.length < data.total}
            onPrevious={offset === 0 ? undefined : () => setOffset(Math.max(0, offset - PAGE_SIZE))}
            onNext={() => setOffset(offset + PAGE_SIZE)}
          />
        )}
      </Panel>
      <ActionDialog action={action} onChanged={reload} onClose={close} />
    </>
  );
}

function NoMatch() {
  return (
    <Empty title="No matching keys">
      <p>Search for a part of the name or for the beginning of the key, such as gateway_sk_Ab3d.</p>
    </Empty>
  );
}

function NoKey({ onCreate }: { onCreate(): void }) {
  return (
    <Empty title="No keys yet">
      <p>A program calls models with a secret key. Create one for each program or person.</p>
      <Button onClick={onCreate}>Create your first key</Button>
    </Empty>
  );
}

interface ActionDialogProps {
  readonly action: KeyAction | "new" | undefined;
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ action, onChanged, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action === "new") return <KeyDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, key } = action;
  if (kind === "edit") return <KeyDialog edited={key} {...{ onChanged, onClose }} />;
  if (kind === "rotate") return <KeyRotation rotated={key} {...{ onChanged, onClose }} />;
  return (
    <Confirm
      title="Revoke this key?"
      action="Revoke key"
      onClose={onClose}
      onConfirm={async () => {
        await call("DELETE", `v1/keys/${key.id}`);
        toast(`Revoked ${key.name}.`);
        onClose();
        onChanged();
      }}
    >
      Requests with <b>{key.name}</b> are rejected immediately. This cannot be undone. To block the
      key temporarily, switch it off.
    </Confirm>
  );
}

function columns(
  onAction: (action: KeyAction) => void,
  onToggle: (key: ListedKey) => void,
): Column<ListedKey>[] {
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
    { title: "State", isCorner: true, cell: stateBadge },
    {
      title: "Today",
      isNumber: true,
      cell: (key) => spendCell(key.usage_today_usd, key.daily_budget_usd, `${key.name}, today`),
    },
    {
      title: "This month",
      isNumber: true,
      cell: (key) =>
        spendCell(key.usage_month_usd, key.monthly_budget_usd, `${key.name}, this month`),
    },
    { title: "Per minute", isNumber: true, isSecondary: true, cell: limits },
    {
      title: "Last used",
      isSecondary: true,
      cell: (key) => <Time iso={key.last_used_at} otherwise="Never" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (key) =>
        key.id === session.value?.key.id ? (
          <span class="quiet">Current sign-in</span>
        ) : (
          <Actions listed={key} onAction={onAction} onToggle={onToggle} />
        ),
    },
  ];
}

interface ActionsProps {
  readonly listed: ListedKey;
  onAction(action: KeyAction): void;
  onToggle(key: ListedKey): void;
}

function Actions({ listed: key, onAction, onToggle }: ActionsProps) {
  const toggle = key.is_active ? "Switch off" : "Switch on";
  return (
    <>
      <Button
        variant="quiet"
        label={`Edit ${key.name}`}
        onClick={() => onAction({ kind: "edit", key })}
      >
        Edit
      </Button>
      {!isManagement(key) && (
        <Button
          variant="quiet"
          label={`Rotate ${key.name}`}
          onClick={() => onAction({ kind: "rotate", key })}
        >
          Rotate
        </Button>
      )}
      <Button variant="quiet" label={`${toggle} ${key.name}`} onClick={() => onToggle(key)}>
        {toggle}
      </Button>
      <Button
        variant="quiet"
        label={`Revoke ${key.name}`}
        onClick={() => onAction({ kind: "revoke", key })}
      >
        Revoke
      </Button>
    </>
  );
}

/** Returns true for a management key. The API cannot create one, so only the command line can replace it. */
const isManagement = ({ key_prefix: prefix }: ListedKey) => prefix.startsWith("gateway_mgmt_");

const DAY_MS = 86_400_000;
const SOON_DAYS = 7;

function stateBadge(key: ListedKey) {
  if (!key.is_active) return <Badge>Off</Badge>;
  if (key.expires_at === null) return <Badge tone="good">On</Badge>;
  const leftMs = Date.parse(key.expires_at) - Date.now();
  if (leftMs <= 0) return <Badge tone="bad">Expired</Badge>;
  return (
    <span class="stacked">
      <Badge tone={leftMs < SOON_DAYS * DAY_MS ? "warn" : "good"}>On</Badge>
      <span class="sub">
        expires <Time iso={key.expires_at} />
      </span>
    </span>
  );
}

function limits({ rate_limit_rpm: rpm, rate_limit_tpm: tpm }: ListedKey) {
  if (rpm === null && tpm === null) return <span class="quiet">No limit</span>;
  return (
    <span>
      {rpm !== null && <span title="Requests per minute">{integer(rpm)}</span>}
      {tpm !== null && <span class="sub">{short(tpm)} tokens</span>}
    </span>
  );
}

function spendCell(amountUsd: number, budgetUsd: number | null, subject: string) {
  if (budgetUsd === null) return usd(amountUsd);
  const share = budgetUsd === 0 ? 1 : amountUsd / budgetUsd;
  const label = `Budget of ${subject}`;
  return <Meter label={label} share={share} text={`${usd(amountUsd)} of ${usd(budgetUsd)}`} />;
}
