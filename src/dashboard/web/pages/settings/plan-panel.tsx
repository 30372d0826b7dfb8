import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Link, OutsideLink } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { Badge, LoadFailure, Notice, Panel, Skeleton, Time } from "../../components/display.tsx";
import { bytes, date, usd } from "../../format.ts";
import { methodTitle, type PaymentMethod } from "./payment-methods.tsx";
import {
  isOperators,
  isPaidNow,
  type OfferedPlan,
  planTitle,
  priceText,
  type Subscription,
} from "./plans.ts";

interface PlanPanelProps {
  readonly subscription: Subscription | undefined;
  readonly plans: readonly OfferedPlan[] | undefined;
  readonly methods: readonly PaymentMethod[] | undefined;
  readonly error: string | undefined;
  onChanged(): void;
}

/** The current plan with its cost, and the other plans. */
export function PlanPanel({ subscription, plans, methods, error, onChanged }: PlanPanelProps) {
  const [chosenName, setChosen] = useState<string>();
  const chosen = plans?.find(({ plan }) => plan === chosenName);
  const isLoading = subscription === undefined || plans === undefined;
  return (
    <Panel title="Plan">
      {error !== undefined && <LoadFailure message={error} />}
      {isLoading ? (
        error === undefined && <Skeleton />
      ) : (
        <>
          <CurrentPlan subscription={subscription} />
          <ul class="plans">
            {plans.map((plan) => (
              <li key={plan.plan}>
                <PlanCard
                  plan={plan}
                  subscription={subscription}
                  onChoose={() => setChosen(plan.plan)}
                />
              </li>
            ))}
          </ul>
        </>
      )}
      {chosen !== undefined && subscription !== undefined && (
        <PlanDialog
          chosen={chosen}
          subscription={subscription}
          method={methods?.find(({ is_default: isDefault }) => isDefault)}
          onChanged={onChanged}
          onClose={() => setChosen(undefined)}
        />
      )}
    </Panel>
  );
}

function CurrentPlan({ subscription }: { readonly subscription: Subscription }) {
  const { plan, next_plan: nextPlan } = subscription;
  const { payment_url: paymentUrl, invoice_url: invoiceUrl } = subscription;
  return (
    <>
      <PlanPaymentNotice subscription={subscription} />
      <dl class="facts">
        <dt>Current plan</dt>
        <dd>
          <span class="strong">{planTitle(plan)}</span>
          {nextPlan !== null && (
            <>
              {" "}
              until <Time iso={subscription.current_period_end} form="date" />, then{" "}
              {planTitle(nextPlan)}
            </>
          )}
        </dd>
        <dt>Platform fee</dt>
        <dd>{subscription.platform_fee_percent}% on top of provider prices</dd>
        <dt>Period</dt>
        <dd>
          <Time iso={subscription.current_period_start} form="date" /> to{" "}
          <Time iso={subscription.current_period_end} form="date" />
        </dd>
        <dt>Charged this period</dt>
        <dd>{usd(subscription.usage_this_period_usd)}</dd>
        {invoiceUrl !== null && paymentUrl === null && (
          <>
            <dt>Invoice</dt>
            <dd>
              <OutsideLink href={invoiceUrl}>Latest invoice</OutsideLink>
            </dd>
          </>
        )}
      </dl>
      {isOperators(subscription) && (
        <p class="under-panel">
          The gateway's operator has set this plan. Only the operator can change it.
        </p>
      )}
    </>
  );
}

/** A notice about the payment of a paid plan, if there is one. */
function PlanPaymentNotice({ subscription }: { readonly subscription: Subscription }) {
  const { payment_status: status, payment_url: url, next_plan: nextPlan } = subscription;
  const invoice = url === null ? "its invoice" : <OutsideLink href={url}>its invoice</OutsideLink>;
  if (status === "pending") {
    return (
      <Notice tone="warn">
        The payment processor has not confirmed the payment for Pro yet. Pro takes effect after
        that.
      </Notice>
    );
  }
  if (status === "open") {
    return <Notice tone="warn">Pro takes effect once {invoice} is paid.</Notice>;
  }
  if (status === "unpaid") {
    return (
      <Notice tone="bad">
        The last payment for Pro failed. Until {invoice} is paid, the organization is on{" "}
        {planTitle(subscription.plan)}.
      </Notice>
    );
  }
  if (status === "ending") {
    return (
      <Notice>
        The gateway's operator has set {planTitle(subscription.plan)} for you. The payment processor
        has not ended the subscription to Pro yet. The gateway retries until it has.
      </Notice>
    );
  }
  if (nextPlan === null) return null;
  return (
    <Notice>
      Pro is paid until <Time iso={subscription.current_period_end} form="date" />. Then the
      organization changes to {planTitle(nextPlan)}.
    </Notice>
  );
}

interface PlanCardProps {
  readonly plan: OfferedPlan;
  readonly subscription: Subscription;
  onChoose(): void;
}

const PURPOSES: Readonly<Record<string, string>> = {
  free: "Pay for what you use, from your balance.",
  byok: "Calls use your own provider keys, and the providers bill you.",
  pro: "A lower fee and more file storage.",
};

function PlanCard({ plan, subscription, onChoose }: PlanCardProps) {
  const title = planTitle(plan.plan);
  const { next_plan: nextPlan } = subscription;
  const isCurrent = plan.plan === subscription.plan;
  const isNext = plan.plan === nextPlan;
  const canChoose = !isOperators(subscription) && !isNext && (!isCurrent || nextPlan !== null);
  const action = isCurrent ? `Keep ${title}` : `Choose ${title}`;
  return (
    <div class={isCurrent ? "plan current" : "plan"}>
      <h3>
        {title} {isCurrent && <Badge tone="good">Current</Badge>}
        {isNext && <Badge>From {date(subscription.current_period_end)}</Badge>}
      </h3>
      <p class="price">{priceOf(plan) ?? <Skeleton />}</p>
      <p class="quiet">{PURPOSES[plan.plan]}</p>
      <ul>
        <li>{plan.fee_percent}% fee on top of provider prices</li>
        <li>{bytes(plan.file_quota_bytes)} of file storage</li>
      </ul>
      {canChoose && (
        <Button needs="billing:write" onClick={onChoose}>
          {action}
        </Button>
      )}
    </div>
  );
}

/** Returns the price of a plan, or undefined while it is loading. */
function priceOf({ is_paid: isPaid, price }: OfferedPlan): string | undefined {
  if (!isPaid) return "$0 a month";
  return price === null ? "Price unavailable" : price && priceText(price);
}

interface PlanDialogProps {
  readonly chosen: OfferedPlan;
  readonly subscription: Subscription;
  readonly method: PaymentMethod | undefined;
  onChanged(): void;
  onClose(): void;
}

/** States the cost of the chosen plan and asks for confirmation. */
function PlanDialog({ chosen, subscription, method, onChanged, onClose }: PlanDialogProps) {
  const title = planTitle(chosen.plan);
  const isCurrent = chosen.plan === subscription.plan;
  const isPurchase = chosen.is_paid && !isCurrent;
  const obstacle = isPurchase ? obstacleOf(chosen, method) : undefined;
  const heading = isCurrent ? `Keep ${title}?` : `Change to ${title}?`;
  if (obstacle !== undefined) {
    return (
      <Dialog title={heading} onClose={onClose}>
        <Notice tone="warn">{obstacle}</Notice>
      </Dialog>
    );
  }
  const choose = async () => {
    try {
      await call("POST", "v1/billing/subscription", { body: { plan: chosen.plan } });
    } finally {
      // Shows an invoice that is now open.
      onChanged();
    }
    toast(
      isPaidNow(subscription) && !isCurrent ? "Pro ends with its period." : `Changed to ${title}.`,
    );
    onClose();
  };
  const payment = isPurchase && chosen.price ? priceText(chosen.price) : undefined;
  return (
    <Dialog title={heading} onClose={onClose}>
      <Form
        submit={payment === undefined ? heading.slice(0, -1) : `Pay ${payment}`}
        onCancel={onClose}
        onSubmit={choose}
      >
        <Consequences chosen={chosen} subscription={subscription} method={method} />
      </Form>
    </Dialog>
  );
}

function obstacleOf({ price }: OfferedPlan, method: PaymentMethod | undefined) {
  if (price === undefined) return "The price of the plan is loading.";
  if (price === null) {
    return "The payment processor has not returned the price of the plan. Try again later.";
  }
  return method === undefined
    ? "Add a payment method first: the plan is paid with the default one."
    : undefined;
}

function Consequences({
  chosen,
  subscription,
  method,
}: Omit<PlanDialogProps, "onChanged" | "onClose">) {
  const title = planTitle(chosen.plan);
  const end = date(subscription.current_period_end);
  const price = chosen.price && priceText(chosen.price);
  if (chosen.plan === subscription.plan) {
    return (
      <p>
        {title} continues after {end}
        {price && `, for ${price}`}. You pay nothing now.
      </p>
    );
  }
  const fee = (
    <p>
      The {title} plan has a platform fee of {chosen.fee_percent}%. Your current fee is{" "}
      {subscription.platform_fee_percent}%. If the gateway's operator has set an individual fee for
      your organization, that fee stays.
    </p>
  );
  if (chosen.is_paid) {
    return (
      <>
        <p>
          <b>{price}</b> is paid with {method && methodTitle(method)}: now, and again for each
          period until you choose another plan.
        </p>
        {fee}
      </>
    );
  }
  return (
    <>
      <p>
        {isPaidNow(subscription)
          ? `Pro is paid until ${end} and stays active until then, without a refund. After that there is no monthly price.`
          : "There is no monthly price. The next request pays the new fee."}
      </p>
      {fee}
      {chosen.plan === "byok" && (
        <Notice tone="warn">
          Every call needs your own key for the model's provider, and is rejected without one. See{" "}
          <Link page="settings/provider-keys">Provider keys</Link>.
        </Notice>
      )}
    </>
  );
}
