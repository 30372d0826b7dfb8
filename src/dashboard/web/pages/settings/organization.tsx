import { useState } from "preact/hooks";
import { call, session } from "../../api.ts";
import { Button, Link } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Meter, Notice, Panel, Skeleton, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { bytes, integer, usd } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { planTitle } from "./plans.ts";

/** The organization as GET /v1/organization shows it. */
interface Organization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly fee_percent: number;
  readonly file_quota_bytes: number;
  readonly file_used_bytes: number;
  readonly max_keys: number;
  readonly max_webhooks: number;
  readonly credit_limit_usd: number | null;
  readonly computer_use: boolean;
  readonly suspended: boolean;
  readonly key_count: number;
  readonly created_at: string;
}

interface SignInKey {
  readonly id: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly is_active: boolean;
  readonly expires_at: string | null;
  readonly created_at: string;
  readonly sessions: number;
  readonly last_seen_at: string | null;
}

export function OrganizationSection() {
  const { data, error } = useResource<Organization>("v1/organization");
  return (
    <>
      <Panel title="Organization">
        {error !== undefined && <Notice tone="bad">{error}</Notice>}
        {data?.suspended && (
          <Notice tone="bad">
            The organization is suspended: its requests are refused. Ask the gateway's operator.
          </Notice>
        )}
        {data === undefined ? error === undefined && <Skeleton /> : <Terms organization={data} />}
      </Panel>
      <SignInKeys />
      <ResponseCache />
    </>
  );
}

function Terms({ organization }: { readonly organization: Organization }) {
  const { file_used_bytes: used, file_quota_bytes: quota, key_count: keys } = organization;
  const { max_keys: maxKeys, credit_limit_usd: creditLimit } = organization;
  return (
    <>
      <dl class="facts">
        <dt>Name</dt>
        <dd class="strong">{organization.name}</dd>
        <dt>Id</dt>
        <dd class="code">{organization.id}</dd>
        <dt>Plan</dt>
        <dd>
          {planTitle(organization.plan)} · <Link page="settings/billing">Plans and billing</Link>
        </dd>
        <dt>Platform fee</dt>
        <dd>{organization.fee_percent}% on top of what providers cost</dd>
        <dt>Credit limit</dt>
        <dd>{creditLimitText(creditLimit)}</dd>
        <dt>Stored files</dt>
        <dd>
          <Meter
            label="Stored files"
            share={quota === 0 ? 1 : used / quota}
            text={`${bytes(used)} of ${bytes(quota)}`}
          />
        </dd>
        <dt>Keys</dt>
        <dd>
          <Meter
            label="Keys"
            share={maxKeys === 0 ? 1 : keys / maxKeys}
            text={`${integer(keys)} of ${integer(maxKeys)}`}
          />
        </dd>
        <dt>Webhooks</dt>
        <dd>At most {integer(organization.max_webhooks)}</dd>
        <dt>Computer tools</dt>
        <dd>
          {organization.computer_use
            ? "Requests may offer models tools that operate a computer"
            : "Not allowed"}
        </dd>
        <dt>Created</dt>
        <dd>
          <Time iso={organization.created_at} form="date" />
        </dd>
      </dl>
      <p class="under-panel">The gateway's operator sets the name and the limits.</p>
    </>
  );
}

function creditLimitText(limitUsd: number | null): string {
  if (limitUsd === null) return "Without limit: requests are not refused for want of credit";
  if (limitUsd === 0) return "None: requests are paid from the balance";
  return `The balance may go to ${usd(-limitUsd)}`;
}

const SIGN_IN_COLUMNS: readonly Column<SignInKey>[] = [
  {
    title: "Management key",
    cell: ({ id, name, key_prefix: prefix }) => (
      <span>
        <span class="strong">{name}</span>{" "}
        {id === session.value?.key.id && <Badge tone="good">You</Badge>}
        <span class="sub code">{prefix}</span>
      </span>
    ),
  },
  { title: "State", isCorner: true, cell: stateOf },
  {
    title: "Open sessions",
    cell: ({ sessions }) => (sessions === 0 ? <span class="quiet">None</span> : integer(sessions)),
  },
  {
    title: "Last seen",
    cell: ({ last_seen_at: at }) => <Time iso={at} otherwise="Not signed in" />,
  },
  {
    title: "Created",
    isSecondary: true,
    cell: ({ created_at: at }) => <Time iso={at} form="date" />,
  },
];

function stateOf({ is_active: isActive, expires_at: expiresAt }: SignInKey) {
  if (!isActive) return <Badge>Off</Badge>;
  const isExpired = expiresAt !== null && Date.parse(expiresAt) <= Date.now();
  return isExpired ? <Badge tone="bad">Expired</Badge> : <Badge tone="good">On</Badge>;
}

function SignInKeys() {
  const { data, error } = useResource<{ data: SignInKey[] }>("settings/sign-in-keys");
  return (
    <Panel title="Who signs in" isFlush>
      <p class="panel-lead">
        Everyone who has one of these keys can sign in here. To end their sessions, revoke the key
        on the page <Link page="keys">Keys</Link>. The gateway's operator makes new ones.
      </p>
      <Table
        label="Keys that can sign in"
        columns={SIGN_IN_COLUMNS}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No management key can sign in." />}
      />
    </Panel>
  );
}

function ResponseCache() {
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  const purge = async () => {
    const { purged } = await call<{ purged: number }>("DELETE", "v1/cache");
    toast(purged === 1 ? "Removed 1 answer." : `Removed ${integer(purged)} answers.`);
    close();
  };
  return (
    <Panel
      title="Response cache"
      aside={<Button onClick={() => setAsking(true)}>Remove all answers</Button>}
    >
      <p class="quiet">
        Requests with the header <code>X-Gateway-Cache: on</code> get the answer of an equal request
        again, for nothing. Remove the answers where they have become wrong.
      </p>
      {isAsking && (
        <Confirm
          title="Remove all kept answers?"
          action="Remove answers"
          onClose={close}
          onConfirm={purge}
        >
          The next request of each kind is sent to a provider again, and charged.
        </Confirm>
      )}
    </Panel>
  );
}
