import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Link } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Meter, Notice, Panel, Skeleton, Time } from "../../components/display.tsx";
import { bytes, integer, usd } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { planTitle, type Subscription } from "./plans.ts";
import { SignIns } from "./sign-ins.tsx";

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
      <SignIns />
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
          <Plan plan={organization.plan} /> · <Link page="settings/billing">Plans and billing</Link>
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

/** With the day on which it ends. */
function Plan({ plan }: Pick<Organization, "plan">) {
  const { data } = useResource<Subscription>("v1/billing/subscription");
  if (!data?.next_plan) return <>{planTitle(plan)}</>;
  return (
    <>
      {planTitle(plan)} until <Time iso={data.current_period_end} form="date" />, then{" "}
      {planTitle(data.next_plan)}
    </>
  );
}

function creditLimitText(limitUsd: number | null): string {
  if (limitUsd === null) return "Without limit: requests are not refused for want of credit";
  if (limitUsd === 0) return "None: requests are paid from the balance";
  return `The balance may go to ${usd(-limitUsd)}`;
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
