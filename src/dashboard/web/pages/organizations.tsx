import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button } from "../components/controls.tsx";
import { Confirm, toast } from "../components/dialog.tsx";
import { Badge, Empty, PageHead, Panel, ShortId, Time } from "../components/display.tsx";
import { ActionMenu } from "../components/menu.tsx";
import { type Column, OffsetPager, Table } from "../components/table.tsx";
import { integer, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { OrganizationButton } from "../view.tsx";
import { AdjustmentDialog, OrganizationDialog } from "./organization-dialogs.tsx";
import { planTitle } from "./settings/plans.ts";

/** An organization in the answer of GET /v1/admin/organizations. */
export interface Organization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly fee_percent: number;
  readonly file_quota_bytes: number;
  readonly max_keys: number;
  readonly max_webhooks: number;
  readonly credit_limit_usd: number | null;
  readonly computer_use: boolean;
  /** Fields with an individual value. */
  readonly overrides: readonly string[];
  readonly balance_usd: number;
  readonly key_count: number;
  readonly suspended: boolean;
  readonly created_at: string;
}

const PAGE_SIZE = 50;

type OrganizationAction = {
  readonly kind: "edit" | "adjust" | "suspend";
  readonly organization: Organization;
};

/** All organizations of the gateway, for operators. */
export function OrganizationsPage() {
  const [offset, setOffset] = useState(0);
  const [action, setAction] = useState<OrganizationAction | "new">();
  const { data, error, reload } = useResource<{ data: Organization[]; total: number }>(
    `v1/admin/organizations?limit=${PAGE_SIZE}&offset=${offset}`,
  );
  return (
    <>
      <PageHead title="Organizations">
        <Button onClick={reload}>Refresh</Button>
        <Button needs="operator" variant="primary" onClick={() => setAction("new")}>
          Create organization
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Organizations"
          columns={columns(setAction)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No organizations yet">
              <p>
                Each organization has its own keys and balance, and cannot see other organizations.
              </p>
            </Empty>
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
      <ActionDialog action={action} onChanged={reload} onClose={() => setAction(undefined)} />
    </>
  );
}

interface ActionDialogProps {
  readonly action: OrganizationAction | "new" | undefined;
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ action, onChanged, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action === "new")
    return <OrganizationDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, organization } = action;
  if (kind === "edit") {
    return <OrganizationDialog edited={organization} {...{ onChanged, onClose }} />;
  }
  if (kind === "adjust") {
    return <AdjustmentDialog {...{ organization, onChanged, onClose }} />;
  }
  const { id, name, suspended } = organization;
  return (
    <Confirm
      title={suspended ? "Reinstate this organization?" : "Suspend this organization?"}
      action={suspended ? "Reinstate" : "Suspend"}
      onClose={onClose}
      onConfirm={async () => {
        const body = { suspended: !suspended };
        await call("PATCH", `v1/admin/organizations/${id}`, { body });
        toast(`Updated ${name}.`);
        onClose();
        onChanged();
      }}
    >
      {suspended
        ? `The keys of ${name} can be used again.`
        : `Requests with keys of ${name} are rejected immediately. Running requests finish and are charged.`}
    </Confirm>
  );
}

function columns(onAction: (action: OrganizationAction) => void): Column<Organization>[] {
  return [
    {
      title: "Name",
      cell: ({ id, name }) => (
        <span>
          <OrganizationButton organization={{ id, name }} />
          <ShortId id={id} isSub />
        </span>
      ),
    },
    {
      title: "State",
      isCorner: true,
      cell: ({ suspended }) =>
        suspended ? <Badge tone="bad">Suspended</Badge> : <Badge tone="good">Active</Badge>,
    },
    {
      title: "Plan",
      cell: ({ plan, fee_percent: fee }) => (
        <span>
          {planTitle(plan)}
          <span class="sub">{fee}% fee</span>
        </span>
      ),
    },
    {
      title: "Balance",
      isNumber: true,
      cell: ({ balance_usd: balance, credit_limit_usd: limit }) => (
        <span>
          <span class={balance < 0 ? "bad" : undefined}>{usd(balance)}</span>
          {limit !== 0 && (
            <span class="sub">{limit === null ? "unlimited credit" : `${usd(limit)} credit`}</span>
          )}
        </span>
      ),
    },
    {
      title: "Keys",
      isNumber: true,
      isSecondary: true,
      cell: ({ key_count: keys }) => integer(keys),
    },
    {
      title: "Created",
      isSecondary: true,
      isOptional: true,
      cell: ({ created_at: at }) => <Time iso={at} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (organization) => <Actions organization={organization} onAction={onAction} />,
    },
  ];
}

interface ActionsProps {
  readonly organization: Organization;
  onAction(action: OrganizationAction): void;
}

function Actions({ organization, onAction }: ActionsProps) {
  const { name, suspended } = organization;
  return (
    <>
      <Button
        needs="operator"
        variant="quiet"
        label={`Edit ${name}`}
        onClick={() => onAction({ kind: "edit", organization })}
      >
        Edit
      </Button>
      <ActionMenu
        label={`Actions for ${name}`}
        items={[
          {
            ...{ label: "Adjust balance", icon: "wallet", needs: "operator" },
            onSelect: () => onAction({ kind: "adjust", organization }),
          },
          {
            ...{ label: suspended ? "Reinstate" : "Suspend", icon: "power", needs: "operator" },
            isDanger: !suspended,
            onSelect: () => onAction({ kind: "suspend", organization }),
          },
        ]}
      />
    </>
  );
}
