import { useState } from "preact/hooks";
import type { WireSettings } from "../../../lib/api-key-record.ts";
import { call, session } from "../api.ts";
import { Button, Choice, Field, Link } from "../components/controls.tsx";
import { Confirm, perform, toast } from "../components/dialog.tsx";
import { Badge, Empty, Notice, PageHead, Panel, Time } from "../components/display.tsx";
import { ActionMenu } from "../components/menu.tsx";
import { type Column, OffsetPager, Table } from "../components/table.tsx";
import { useResource } from "../resource.ts";
import { isSelfOnly, mayChange } from "../rights.ts";
import { useNewDialog } from "../router.ts";
import { KeyDialog } from "./key-dialog.tsx";
import { KeyRotation } from "./key-rotation.tsx";
import { useKeyTeams, useMembers } from "./people/names.ts";
import { rateLimits, spendCell } from "./spend.tsx";

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
  useNewDialog(() => setAction("new"));
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
  const teams = useKeyTeams();
  const members = useMembers().data?.data ?? [];
  const isSelf = isSelfOnly();
  const isTeamless = isSelf && teams.length === 0;
  const isFiltered = state !== "" || search !== "";
  return (
    <>
      <PageHead title={isSelf ? "My keys" : "Keys"}>
        <Button
          variant="primary"
          needs="keys:manage"
          isDisabled={isTeamless}
          onClick={() => setAction("new")}
        >
          Create key
        </Button>
      </PageHead>
      {isTeamless && (
        <Notice>
          You are in no team, so you cannot create keys. Ask an admin of your organization to add
          you to one.
        </Notice>
      )}
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
          columns={columns({ onAction: setAction, onToggle: toggle, teams, members })}
          rows={data?.data}
          error={error}
          keyOf={(key) => key.id}
          empty={
            isFiltered ? (
              <NoMatch />
            ) : (
              <NoKey onCreate={isTeamless ? undefined : () => setAction("new")} />
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

function NoKey({ onCreate }: { onCreate: (() => void) | undefined }) {
  return (
    <Empty title="No keys yet">
      <p>A program calls models with a secret key. Create one for each program or person.</p>
      {onCreate && (
        <Button needs="keys:manage" onClick={onCreate}>
          Create your first key
        </Button>
      )}
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

interface Named {
  readonly id: string;
  readonly name: string;
}

interface ColumnOptions extends Omit<ActionsProps, "listed"> {
  readonly teams: readonly Named[];
  readonly members: readonly Named[];
}

function columns({ teams, members, ...acts }: ColumnOptions): Column<ListedKey>[] {
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
    {
      title: "Team",
      isSecondary: true,
      isOptional: true,
      cell: (key) => ownerCell(key, teams, members),
    },
    {
      ...{ title: "Per minute", isNumber: true, isSecondary: true, isOptional: true },
      cell: rateLimits,
    },
    {
      ...{ title: "Models", isSecondary: true, isOptional: true, isHidden: true },
      cell: ({ allowed_models: models }) => models?.join(", ") ?? "All models",
    },
    {
      ...{ title: "Created", isSecondary: true, isOptional: true, isHidden: true },
      cell: (key) => <Time iso={key.created_at} form="date" />,
    },
    {
      title: "Last used",
      isSecondary: true,
      isOptional: true,
      cell: (key) => <Time iso={key.last_used_at} otherwise="Never" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (key) =>
        key.id === session.value?.key.id ? (
          <span class="quiet">Current sign-in</span>
        ) : (
          mayChange("keys:manage") && <Actions listed={key} {...acts} />
        ),
    },
  ];
}

/** The team and the owner of a key by their names. An id stands for one that is not listed. */
function ownerCell(
  { team_id: teamId, owner_id: ownerId }: ListedKey,
  teams: readonly Named[],
  members: readonly Named[],
) {
  const nameIn = (all: readonly Named[], id: string) =>
    all.find((one) => one.id === id)?.name ?? id;
  return (
    <span>
      {teamId === null ? <span class="quiet">No team</span> : nameIn(teams, teamId)}
      {ownerId !== null && !isSelfOnly() && <span class="sub">{nameIn(members, ownerId)}</span>}
    </span>
  );
}

interface ActionsProps {
  readonly listed: ListedKey;
  onAction(action: KeyAction): void;
  onToggle(key: ListedKey): void;
}

function Actions({ listed: key, onAction, onToggle }: ActionsProps) {
  return (
    <>
      <Button
        variant="quiet"
        label={`Edit ${key.name}`}
        onClick={() => onAction({ kind: "edit", key })}
      >
        Edit
      </Button>
      <Button
        variant="quiet"
        label={`Revoke ${key.name}`}
        onClick={() => onAction({ kind: "revoke", key })}
      >
        Revoke
      </Button>
      <ActionMenu
        label={`Actions for ${key.name}`}
        items={[
          ...(isManagement(key)
            ? []
            : [
                {
                  label: "Rotate",
                  icon: "rotate-cw",
                  onSelect: () => onAction({ kind: "rotate", key }),
                } as const,
              ]),
          {
            label: key.is_active ? "Switch off" : "Switch on",
            icon: "power",
            onSelect: () => onToggle(key),
          },
        ]}
      />
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
