import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../components/dialog.tsx";
import { Badge, Empty, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, usd } from "../format.ts";
import { useResource } from "../resource.ts";
import { numberIn } from "./key-dialog.tsx";

/** An organization as GET /v1/admin/organizations lists it. */
interface Organization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly fee_percent: number;
  readonly balance_usd: number;
  readonly key_count: number;
  readonly suspended: boolean;
  readonly created_at: string;
}

const PAGE = 50;

/** Every organization of the gateway, for its operators. */
export function OrganizationsPage() {
  const [offset, setOffset] = useState(0);
  const [adjusted, setAdjusted] = useState<Organization>();
  const [switched, setSwitched] = useState<Organization>();
  const { data, error, reload } = useResource<{ data: Organization[]; total: number }>(
    `v1/admin/organizations?limit=${PAGE}&offset=${offset}`,
  );
  return (
    <>
      <PageHead title="Organizations" />
      <Panel isFlush>
        <Table
          label="Organizations"
          columns={columns(setAdjusted, setSwitched)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={<Empty title="There is no organization." />}
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
      {adjusted !== undefined && (
        <AdjustmentDialog
          organization={adjusted}
          onChanged={reload}
          onClose={() => setAdjusted(undefined)}
        />
      )}
      {switched !== undefined && (
        <Confirm
          title={
            switched.suspended ? "Let this organization in again?" : "Suspend this organization?"
          }
          action={switched.suspended ? "Let in" : "Suspend"}
          onClose={() => setSwitched(undefined)}
          onConfirm={async () => {
            const body = { suspended: !switched.suspended };
            await call("PATCH", `v1/admin/organizations/${switched.id}`, { body });
            toast(`Changed ${switched.name}.`);
            setSwitched(undefined);
            reload();
          }}
        >
          {switched.suspended
            ? `The keys of ${switched.name} can be used again.`
            : `Every request with a key of ${switched.name} is refused from now on.`}
        </Confirm>
      )}
    </>
  );
}

function columns(
  onAdjust: (organization: Organization) => void,
  onSwitch: (organization: Organization) => void,
): Column<Organization>[] {
  return [
    {
      title: "Name",
      cell: ({ id, name }) => (
        <span>
          <span class="strong">{name}</span>
          <span class="sub code">{id}</span>
        </span>
      ),
    },
    {
      title: "State",
      cell: ({ suspended }) =>
        suspended ? <Badge tone="bad">Suspended</Badge> : <Badge tone="good">Active</Badge>,
    },
    { title: "Plan", cell: ({ plan, fee_percent: fee }) => `${plan}, ${fee} % fee` },
    { title: "Balance", isNumber: true, cell: ({ balance_usd: balance }) => usd(balance) },
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
      cell: (organization) => (
        <>
          <Button
            variant="quiet"
            label={`Adjust the balance of ${organization.name}`}
            onClick={() => onAdjust(organization)}
          >
            Adjust
          </Button>
          <Button
            variant="quiet"
            label={`${organization.suspended ? "Let in" : "Suspend"} ${organization.name}`}
            onClick={() => onSwitch(organization)}
          >
            {organization.suspended ? "Let in" : "Suspend"}
          </Button>
        </>
      ),
    },
  ];
}

interface AdjustmentProps {
  readonly organization: Organization;
  onChanged(): void;
  onClose(): void;
}

function AdjustmentDialog({ organization, onChanged, onClose }: AdjustmentProps) {
  const [amount, setAmount] = useState("");
  const [description, setDescription] = useState("");
  /** The same for every attempt: an adjustment whose answer was lost is not made twice. */
  const [idempotencyKey] = useState(() => crypto.randomUUID());
  const adjust = async () => {
    const body = { amount_usd: numberIn(amount, "Amount"), description };
    const headers = { "idempotency-key": idempotencyKey };
    await call("POST", `v1/admin/organizations/${organization.id}/adjustments`, { body, headers });
    toast(`Adjusted the balance of ${organization.name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog title={`Adjust the balance of ${organization.name}`} onClose={onClose}>
      <Form submit="Adjust" onCancel={onClose} onSubmit={adjust}>
        <Field
          label="Amount"
          value={amount}
          onInput={setAmount}
          inputMode="decimal"
          isRequired
          hint={`USD; a negative amount takes away. The balance is ${usd(organization.balance_usd)}.`}
        />
        <Field label="Description" value={description} onInput={setDescription} isRequired />
      </Form>
    </Dialog>
  );
}
