import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button } from "../components/controls.tsx";
import { Confirm, toast } from "../components/dialog.tsx";
import { Badge, Empty, PageHead, Panel, ShortId, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { AdjustmentDialog, OrganizationDialog } from "./organization-dialogs.tsx";
import { planTitle } from "./settings/plans.ts";

/** An organization as GET /v1/admin/organizations lists it. */
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
  /** Fields that are set for it alone. */
  readonly overrides: readonly string[];
  readonly balance_usd: number;
  readonly key_count: number;
  readonly suspended: boolean;
  readonly created_at: string;
}

const PAGE = 50;

type Asked = {
  readonly kind: "edit" | "adjust" | "suspend";
  readonly organization: Organization;
};

/** Every organization of the gateway, for its operators. */
export function OrganizationsPage() {
  const [offset, setOffset] = useState(0);
  const [asked, setAsked] = useState<Asked | "new">();
  const { data, error, reload } = useResource<{ data: Organization[]; total: number }>(
    `v1/admin/organizations?limit=${PAGE}&offset=${offset}`,
  );
  return (
    <>
      <PageHead title="Organizations">
        <Button onClick={reload}>Refresh</Button>
        <Button variant="primary" onClick={() => setAsked("new")}>
          Create organization
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Organizations"
          columns={columns(setAsked)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="There is no organization.">
              <p>An organization has keys and a balance of its own, and sees nothing of others.</p>
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
      <Asking asked={asked} onChanged={reload} onClose={() => setAsked(undefined)} />
    </>
  );
}

interface AskingProps {
  readonly asked: Asked | "new" | undefined;
  onChanged(): void;
  onClose(): void;
}

function Asking({ asked, onChanged, onClose }: AskingProps) {
  if (asked === undefined) return null;
  if (asked === "new") return <OrganizationDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, organization } = asked;
  if (kind === "edit") {
    return <OrganizationDialog edited={organization} {...{ onChanged, onClose }} />;
  }
  if (kind === "adjust") {
    return <AdjustmentDialog {...{ organization, onChanged, onClose }} />;
  }
  const { id, name, suspended } = organization;
  return (
    <Confirm
      title={suspended ? "Let this organization in again?" : "Suspend this organization?"}
      action={suspended ? "Let in" : "Suspend"}
      onClose={onClose}
      onConfirm={async () => {
        const body = { suspended: !suspended };
        await call("PATCH", `v1/admin/organizations/${id}`, { body });
        toast(`Changed ${name}.`);
        onClose();
        onChanged();
      }}
    >
      {suspended
        ? `The keys of ${name} can be used again.`
        : `Every request with a key of ${name} is refused from now on; what runs goes on and is charged.`}
    </Confirm>
  );
}

function columns(onAsk: (asked: Asked) => void): Column<Organization>[] {
  return [
    {
      title: "Name",
      cell: ({ id, name }) => (
        <span>
          <span class="strong">{name}</span>
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
            <span class="sub">
              {limit === null ? "credit without limit" : `${usd(limit)} credit`}
            </span>
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
      cell: ({ created_at: at }) => <Time iso={at} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (organization) => <Actions organization={organization} onAsk={onAsk} />,
    },
  ];
}

interface ActionsProps {
  readonly organization: Organization;
  onAsk(asked: Asked): void;
}

function Actions({ organization, onAsk }: ActionsProps) {
  const { name, suspended } = organization;
  const suspend = suspended ? "Let in" : "Suspend";
  return (
    <>
      <Button
        variant="quiet"
        label={`Edit ${name}`}
        onClick={() => onAsk({ kind: "edit", organization })}
      >
        Edit
      </Button>
      <Button
        variant="quiet"
        label={`Adjust the balance of ${name}`}
        onClick={() => onAsk({ kind: "adjust", organization })}
      >
        Adjust
      </Button>
      <Button
        variant="quiet"
        label={`${suspend} ${name}`}
        onClick={() => onAsk({ kind: "suspend", organization })}
      >
        {suspend}
      </Button>
    </>
  );
}
