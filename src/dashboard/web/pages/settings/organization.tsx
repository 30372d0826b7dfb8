import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Link } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { LoadFailure, Meter, Notice, Panel, Skeleton, Time } from "../../components/display.tsx";
import { bytes, integer, usd } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { grantableRoles, isSelfOnly, mayChange, mayRead } from "../../rights.ts";
import { planTitle, type Subscription } from "./plans.ts";
import { ScimTokens } from "./scim.tsx";
import { SignIns } from "./sign-ins.tsx";

/** The answer of GET /v1/organization. */
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
        {error !== undefined && <LoadFailure message={error} />}
        {data?.suspended && (
          <Notice tone="bad">
            The organization is suspended, and its requests are rejected. Contact the gateway's
            operator.
          </Notice>
        )}
        {data === undefined ? error === undefined && <Skeleton /> : <Terms organization={data} />}
      </Panel>
      {mayRead("keys:manage") && !isSelfOnly() && (
        <>
          <SignIns />
          {grantableRoles().includes("owner") && <ScimTokens />}
        </>
      )}
      {mayChange("cache:manage") && <ResponseCache />}
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
          {mayRead("billing:read") ? (
            <>
              <Plan plan={organization.plan} /> ·{" "}
              <Link page="settings/billing">Plans and billing</Link>
            </>
          ) : (
            planTitle(organization.plan)
          )}
        </dd>
        <dt>Platform fee</dt>
        <dd>{organization.fee_percent}% on top of provider prices</dd>
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
        <dd>Up to {integer(organization.max_webhooks)}</dd>
        <dt>Computer use</dt>
        <dd>{organization.computer_use ? "Allowed" : "Not allowed"}</dd>
        <dt>Created</dt>
        <dd>
          <Time iso={organization.created_at} form="date" />
        </dd>
      </dl>
      <p class="under-panel">The gateway's operator sets the name and the limits.</p>
    </>
  );
}

/** The plan and, if it ends, the day on which it does. */
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
  if (limitUsd === null) return "Unlimited: requests are never rejected for insufficient credit";
  if (limitUsd === 0) return "None: requests are paid from the balance";
  return `The balance can go down to ${usd(-limitUsd)}`;
}

function ResponseCache() {
  const [isConfirming, setConfirming] = useState(false);
  const close = () => setConfirming(false);
  const purge = async () => {
    const { purged } = await call<{ purged: number }>("DELETE", "v1/cache");
    toast(purged === 1 ? "Cleared 1 answer." : `Cleared ${integer(purged)} answers.`);
    close();
  };
  return (
    <Panel
      title="Response cache"
      aside={<Button onClick={() => setConfirming(true)}>Clear cache</Button>}
    >
      <p class="quiet">
        Requests with the header <code>X-Gateway-Cache: on</code> get the cached answer of an
        identical request at no cost. Clear the cache if its answers are outdated.
      </p>
      {isConfirming && (
        <Confirm
          title="Clear the response cache?"
          action="Clear cache"
          onClose={close}
          onConfirm={purge}
        >
          Requests are sent to a provider again, and charged, until their answers are cached.
        </Confirm>
      )}
    </Panel>
  );
}
