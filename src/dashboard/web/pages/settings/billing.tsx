import { Notice } from "../../components/display.tsx";
import { useResource } from "../../resource.ts";
import { CreditsPanel } from "./credits.tsx";
import { type PaymentMethod, PaymentMethodsPanel } from "./payment-methods.tsx";
import { PaymentsPanel, usePayments } from "./payments.tsx";
import { PlanPanel } from "./plan-panel.tsx";
import type { ListedPlan, OfferedPlan, PlanPrice, Subscription } from "./plans.ts";
import { ReplenishPanel } from "./replenish.tsx";
import { type StatementList, StatementsPanel } from "./statements.tsx";

/** The payment processor. Null if the gateway accepts no payments. */
export type Processor = "stripe" | "test" | null;

/** The answer of GET /v1/credits. */
export interface Credits {
  readonly balance_usd: number;
  readonly lifetime_spend_usd: number;
  readonly auto_replenish: boolean;
  readonly replenish_amount_usd: number;
  readonly replenish_threshold_usd: number;
  readonly replenish_payment_method_id: string | null;
  readonly replenish_status: "off" | "active" | "retrying" | "stopped";
}

export interface PaymentBounds {
  readonly processor: Processor;
  readonly min_usd: number;
  readonly max_usd: number;
}

export function BillingSection() {
  const choices = useResource<{ payments: PaymentBounds }>("settings/choices");
  const listedPlans = useResource<{ data: ListedPlan[] }>("settings/plans");
  const plans = useOfferedPlans(listedPlans.data?.data);
  const subscription = useResource<Subscription>("v1/billing/subscription");
  const listed = useResource<{ data: PaymentMethod[] }>("v1/billing/payment_methods");
  const credits = useResource<Credits>("v1/credits", true);
  const statements = useResource<StatementList>("v1/billing/statements", true);
  const payments = usePayments();
  const bounds = choices.data?.payments;
  const methods = listed.data?.data;
  const reloadAll = () => {
    for (const resource of [subscription, listed, credits, statements, payments.listed])
      resource.reload();
  };
  return (
    <>
      {bounds?.processor === null && (
        <Notice>This gateway accepts no payments. Its operator adds credit to your balance.</Notice>
      )}
      <CreditsPanel
        statements={statements.data}
        error={statements.error ?? choices.error}
        bounds={bounds}
        methods={methods}
        onChanged={reloadAll}
      />
      <StatementsPanel listed={statements} />
      <PaymentsPanel {...payments} />
      {bounds?.processor !== null && (
        <>
          <ReplenishPanel
            credits={credits.data}
            error={credits.error ?? choices.error ?? listed.error}
            bounds={bounds}
            methods={methods}
            onChanged={reloadAll}
          />
          <PaymentMethodsPanel
            methods={methods}
            error={listed.error}
            processor={bounds?.processor ?? null}
            onChanged={reloadAll}
          />
        </>
      )}
      <PlanPanel
        subscription={subscription.data}
        plans={plans}
        methods={methods}
        error={subscription.error ?? listedPlans.error}
        onChanged={reloadAll}
      />
    </>
  );
}

/**
 * Returns the plans with their prices. The price of a paid plan follows when the payment processor has
 * answered.
 */
function useOfferedPlans(plans: readonly ListedPlan[] | undefined): OfferedPlan[] | undefined {
  const hasPaid = plans?.some(({ is_paid: isPaid }) => isPaid);
  const { data, error } = useResource<{ price: PlanPrice | null }>(
    hasPaid ? "settings/plan-price" : undefined,
  );
  const price = error === undefined ? data?.price : null;
  return plans?.map((plan) => ({ ...plan, price: plan.is_paid ? price : null }));
}
