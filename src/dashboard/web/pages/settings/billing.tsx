import { useState } from "preact/hooks";
import { OutsideLink } from "../../components/controls.tsx";
import { Empty, Notice, Panel, Time } from "../../components/display.tsx";
import { type Column, Pager, Table } from "../../components/table.tsx";
import { usd } from "../../format.ts";
import { type Resource, useResource } from "../../resource.ts";
import { CreditsPanel } from "./credits.tsx";
import { type PaymentMethod, PaymentMethodsPanel } from "./payment-methods.tsx";
import { PlanPanel } from "./plan-panel.tsx";
import type { ListedPlan, OfferedPlan, PlanPrice, Subscription } from "./plans.ts";
import { ReplenishPanel } from "./replenish.tsx";

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

const PAGE_SIZE = 10;

interface TopUpList {
  readonly data: readonly TopUp[];
  readonly total: number;
  readonly has_more: boolean;
}

interface TopUp {
  readonly id: string;
  readonly amount_usd: number;
  readonly description: string;
  readonly receipt_url?: string;
  readonly created_at: string;
}

export function BillingSection() {
  const choices = useResource<{ payments: PaymentBounds }>("settings/choices");
  const listedPlans = useResource<{ data: ListedPlan[] }>("settings/plans");
  const plans = useOfferedPlans(listedPlans.data?.data);
  const subscription = useResource<Subscription>("v1/billing/subscription");
  const listed = useResource<{ data: PaymentMethod[] }>("v1/billing/payment_methods");
  const credits = useResource<Credits>("v1/credits", true);
  const [offset, setOffset] = useState(0);
  const topUps = useResource<TopUpList>(
    `v1/credits/transactions?type=topup&limit=${PAGE_SIZE}&offset=${offset}`,
    true,
  );
  const bounds = choices.data?.payments;
  const methods = listed.data?.data;
  const reloadAll = () => {
    for (const resource of [subscription, listed, credits, topUps]) resource.reload();
  };
  return (
    <>
      {bounds?.processor === null && (
        <Notice>This gateway accepts no payments. Its operator adds credit to your balance.</Notice>
      )}
      <CreditsPanel
        credits={credits.data}
        error={credits.error ?? choices.error}
        bounds={bounds}
        methods={methods}
        onChanged={reloadAll}
      />
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
      <TopUps listed={topUps} offset={offset} onTurn={setOffset} />
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

const COLUMNS: readonly Column<TopUp>[] = [
  { title: "Date", cell: ({ created_at: at }) => <Time iso={at} form="exact" /> },
  { title: "Payment", cell: ({ description }) => description },
  {
    title: "Receipt",
    cell: ({ receipt_url: url }) =>
      url === undefined ? (
        <span class="quiet">None</span>
      ) : (
        <OutsideLink href={url}>Receipt</OutsideLink>
      ),
  },
  {
    title: "Amount",
    isNumber: true,
    isCorner: true,
    cell: ({ amount_usd: amount }) => usd(amount),
  },
];

interface TopUpsProps {
  readonly listed: Resource<TopUpList>;
  readonly offset: number;
  onTurn(offset: number): void;
}

function TopUps({ listed: { data, error }, offset, onTurn }: TopUpsProps) {
  return (
    <Panel title="Top-ups" isFlush>
      <Table
        label="Top-ups"
        columns={COLUMNS}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No payments yet">
            <p>Top-ups are listed here with their receipts.</p>
          </Empty>
        }
      />
      {data !== undefined && (
        <Pager
          first={offset}
          count={data.data.length}
          total={data.total}
          hasMore={data.has_more}
          onPrevious={offset === 0 ? undefined : () => onTurn(Math.max(0, offset - PAGE_SIZE))}
          onNext={() => onTurn(offset + PAGE_SIZE)}
        />
      )}
    </Panel>
  );
}
