import { Link } from "../../components/controls.tsx";
import { Badge, Empty, Notice, Panel, ShortId, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { integer, usd } from "../../format.ts";
import type { Resource } from "../../resource.ts";
import { OrganizationButton } from "../../view.tsx";
import {
  type CircuitPeriod,
  failureText,
  type GatewayState,
  type Instance,
  type WaitingPayment,
} from "./answers.ts";

interface StateProps {
  readonly state: Resource<GatewayState>;
}

/** Open incidents: providers that do not answer, open circuits, disputes and stopped replenishments. */
export function Attention({ state: { data } }: StateProps) {
  if (data === undefined) return null;
  const open = new Set(
    data.circuits
      .filter((one) => one.is_open)
      .map(({ provider, endpoint }) => `${provider} ${endpoint}`),
  );
  const disputes = data.payments.filter(({ kind }) => kind === "dispute").length;
  const stopped = data.payments.filter(
    ({ kind, state }) => kind === "replenishment" && state === "stopped",
  ).length;
  const versions = new Set(data.instances.map(({ version }) => version ?? "an earlier version"));
  const incidents = [
    ...data.unhealthy.map(({ provider, since }) => (
      <>
        {provider} fails its health checks since <Time iso={since} />
      </>
    )),
    ...(open.size > 0 ? [`${countOf(open.size, "circuit")} open`] : []),
    ...(disputes > 0 ? [countOf(disputes, "disputed payment")] : []),
    ...(stopped > 0 ? [`${countOf(stopped, "automatic top-up")} stopped after declines`] : []),
    ...(versions.size > 1 ? [`Instances run ${[...versions].join(" and ")}`] : []),
  ];
  if (incidents.length === 0) return null;
  return (
    <div class="view-banner">
      <Notice tone="warn">
        <ul class="plain">
          {incidents.map((incident, at) => (
            <li key={at}>{incident}</li>
          ))}
        </ul>
        <Link page="providers">Providers</Link>
      </Notice>
    </div>
  );
}

function countOf(count: number, noun: string): string {
  return `${integer(count)} ${noun}${count === 1 ? "" : "s"}`;
}

const KINDS = {
  topup: "Top-up",
  replenishment: "Automatic top-up",
  refund: "Refund to a card",
  dispute: "Dispute",
} as const;

const STATES: Readonly<Record<string, readonly ["warn" | "bad", string]>> = {
  pending: ["warn", "Pending"],
  requires_action: ["warn", "Payer must confirm"],
  retrying: ["warn", "Declined, retrying"],
  stopped: ["bad", "Stopped after declines"],
  ordered: ["warn", "Ordered"],
  open: ["bad", "Open"],
};

/** Payments that wait for their payer, their processor or an operator. */
export function WaitingPayments({ state: { data, error } }: StateProps) {
  return (
    <Panel title="Waiting payments" isFlush>
      <Table
        label="Waiting payments"
        columns={PAYMENTS}
        rows={data?.payments}
        error={error}
        keyOf={(row) => `${row.kind} ${row.organization_id} ${row.since}`}
        empty={
          <Empty title="No waiting payments">
            <p>Payments that wait for their payer, their processor or an operator appear here.</p>
          </Empty>
        }
      />
    </Panel>
  );
}

const PAYMENTS: Column<WaitingPayment>[] = [
  {
    title: "Organization",
    cell: ({ organization_id: id, organization_name: name }) => (
      <OrganizationButton organization={{ id, name }} page="settings/billing" />
    ),
  },
  { title: "Payment", cell: ({ kind }) => KINDS[kind] },
  {
    title: "State",
    isCorner: true,
    cell: ({ state }) => {
      const [tone, text] = STATES[state] ?? ["warn", state];
      return <Badge tone={tone}>{text}</Badge>;
    },
  },
  { title: "Amount", isNumber: true, cell: ({ amount_usd: amount }) => usd(amount) },
  { title: "Since", cell: ({ since }) => (since === null ? "—" : <Time iso={since} />) },
];

interface CircuitHistoryProps extends StateProps {
  /** Only the circuits of this provider. */
  readonly provider?: string;
}

/** Circuits that were open in the last 24 hours. */
export function CircuitHistory({ state: { data, error }, provider }: CircuitHistoryProps) {
  const rows = data?.circuits.filter((one) => provider === undefined || one.provider === provider);
  return (
    <Panel
      title="Circuit openings"
      aside={<span class="quiet">Last 24 hours, all instances</span>}
      isFlush
    >
      <Table
        label="Circuit openings"
        columns={CIRCUITS}
        rows={rows}
        error={error}
        keyOf={(row) => `${row.endpoint} ${row.instance_id} ${row.opened_at}`}
        empty={
          <Empty title="No circuit has opened">
            <p>A circuit opens when an endpoint fails repeatedly. Requests then use others.</p>
          </Empty>
        }
      />
    </Panel>
  );
}

const CIRCUITS: Column<CircuitPeriod>[] = [
  { title: "Endpoint", cell: ({ endpoint }) => <span class="code">{endpoint}</span> },
  {
    title: "State",
    isCorner: true,
    cell: ({ is_open: isOpen }) =>
      isOpen ? <Badge tone="bad">Open</Badge> : <Badge tone="good">Closed</Badge>,
  },
  { title: "Last failure", cell: (row) => failureText(row) },
  { title: "Opened", cell: ({ opened_at: at }) => <Time iso={at} /> },
  { title: "Last open", cell: ({ last_open_at: at }) => <Time iso={at} /> },
  { title: "Openings", isNumber: true, isSecondary: true, cell: (row) => integer(row.openings) },
  {
    title: "Instance",
    isSecondary: true,
    cell: ({ instance_id: id }) => <ShortId id={id} />,
  },
];

/** The live instances. */
export function Instances({ state: { data, error } }: StateProps) {
  return (
    <Panel title="Instances" isFlush>
      <Table
        label="Instances"
        columns={INSTANCES}
        rows={data?.instances}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No instance has sent a heartbeat in the last 3 seconds" />}
      />
    </Panel>
  );
}

const INSTANCES: Column<Instance>[] = [
  { title: "Instance", cell: ({ id }) => <ShortId id={id} /> },
  {
    title: "State",
    isCorner: true,
    cell: ({ draining_since: since }) =>
      since === null ? <Badge tone="good">Serving</Badge> : <Badge tone="warn">Draining</Badge>,
  },
  { title: "Version", cell: ({ version }) => version ?? "Not stated" },
  { title: "Started", cell: ({ started_at: at }) => <Time iso={at} /> },
];
