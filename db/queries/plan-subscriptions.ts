import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { planSubscriptions } from "../schema/plan-subscriptions.ts";
import { changeOrganization } from "./organizations.ts";

const storedSubscription = recordReader(planSubscriptions, "nextLookAt", "author");
type SubscriptionRow = RowOf<typeof planSubscriptions>;

export type PlanSubscription = ReturnType<typeof subscriptionOf>;
export type SubscriptionState = PlanSubscription["state"];
export type NewPlanSubscription = Pick<
  PlanSubscription,
  "organizationId" | "id" | "processor" | "plan" | "customer" | "method"
>;

/** State of a subscription at the processor. */
export interface SubscriptionStanding {
  readonly state: Exclude<SubscriptionState, "pending" | "ending">;
  readonly reference?: string | undefined;
  readonly invoiceUrl?: string | undefined;
  readonly periodStartMs?: number | undefined;
  readonly periodEndMs?: number | undefined;
}

const ANSWER_SECONDS = 60;
/**
 * A subscription that has been due for longer is not looked up: no gateway is set up for its processor.
 */
const ABANDONED_SECONDS = 300;
const RETRY_SECONDS = 30;
/** Longest delay until the gateway finds a change that the processor does not report. */
const LOOK_SECONDS = 21_600;

/**
 * Returns false, and writes nothing, if the organization has a subscription that has not ended, or is on a plan that it
 * cannot leave by itself.
 */
export function insertPlanSubscription(
  sql: Database,
  order: NewPlanSubscription,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const written = await transaction`
    INSERT INTO plan_subscriptions AS s (organization_id, id, processor, plan, customer, method,
      next_look_at)
    SELECT o.id, ${order.id}, ${order.processor}, ${order.plan}, ${order.customer ?? null},
      ${order.method}, clock_timestamp() + make_interval(secs => ${ANSWER_SECONDS})
    FROM organizations o WHERE o.id = ${order.organizationId} AND o.plan IN ('free', 'byok')
    FOR NO KEY UPDATE OF o
    ON CONFLICT (organization_id) DO UPDATE SET id = excluded.id, processor = excluded.processor,
      plan = excluded.plan, customer = excluded.customer, method = excluded.method,
      next_plan = NULL, reference = NULL, state = 'pending', invoice_url = NULL, period_start = NULL,
      period_end = NULL, version = s.version + 1, next_look_at = excluded.next_look_at,
      created_at = clock_timestamp(), author = excluded.author
    WHERE s.state = 'ended'`;
    return written.count > 0;
  });
}

/** Finds the organization's subscription that has not ended. */
export async function findPlanSubscription(
  sql: Database,
  organizationId: string,
): Promise<PlanSubscription | undefined> {
  const [row] = await sql<SubscriptionRow[]>`SELECT * FROM plan_subscriptions
    WHERE organization_id = ${organizationId} AND state <> 'ended'`;
  return row && subscriptionOf(row);
}

export async function findSubscriptionByReference(
  sql: Database,
  processor: string,
  reference: string,
): Promise<PlanSubscription | undefined> {
  const [row] = await sql<SubscriptionRow[]>`SELECT * FROM plan_subscriptions
    WHERE processor = ${processor} AND reference = ${reference}`;
  return row && subscriptionOf(row);
}

/** Claims the subscriptions that are due for a look-up. A subscription whose look-up fails is due again soon. */
export async function claimSubscriptions(
  sql: Database,
  processor: string,
  limit: number,
): Promise<PlanSubscription[]> {
  const rows = await sql<SubscriptionRow[]>`
    UPDATE plan_subscriptions
    SET next_look_at = clock_timestamp() + make_interval(secs => ${RETRY_SECONDS})
    WHERE organization_id IN (
      SELECT organization_id FROM plan_subscriptions
      WHERE processor = ${processor} AND next_look_at <= clock_timestamp()
      ORDER BY next_look_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING *`;
  return rows.map(subscriptionOf);
}

/** Sets the following plan. Returns false if the subscription has changed in the meantime. */
export function setNextPlan(
  sql: Database,
  { organizationId, id, version }: PlanSubscription,
  nextPlan: string | null,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const written = await transaction`UPDATE plan_subscriptions
    SET next_plan = ${nextPlan}, version = version + 1,
      author = nullif(current_setting('gateway.author', true), '')::jsonb
    WHERE organization_id = ${organizationId} AND id = ${id} AND version = ${version.toString()}::bigint`;
    return written.count > 0;
  });
}

/**
 * Returns true while the processor is being called for a new subscription. Then no subscription is known that could be
 * ended.
 */
export async function isSubscribing(
  sql: Database | DatabaseTransaction,
  organizationId: string,
): Promise<boolean> {
  const rows = await sql`SELECT 1 FROM plan_subscriptions
    WHERE organization_id = ${organizationId} AND state = 'pending'
      AND next_look_at > clock_timestamp() - make_interval(secs => ${ABANDONED_SECONDS})`;
  return rows.length > 0;
}

/**
 * Puts the organization on a plan for an operator. The change makes it durable that the processor has to end a
 * subscription to another plan. Only a paid subscription to that plan continues. Returns false while `isSubscribing`. A
 * subscription that no gateway orders is looked up at the processor before it is ended, once a gateway is set up for
 * that again.
 */
export async function endSubscriptionOf(
  sql: DatabaseTransaction,
  organizationId: string,
  plan: string,
): Promise<boolean> {
  const [row] = await sql<{ state: SubscriptionState }[]>`
    SELECT state FROM plan_subscriptions
    WHERE organization_id = ${organizationId} AND state <> 'ended'
      AND NOT (plan = ${plan} AND state = 'active') FOR UPDATE`;
  if (row?.state === "pending" && (await isSubscribing(sql, organizationId))) return false;
  if (row !== undefined) {
    await sql`UPDATE plan_subscriptions
      SET state = 'ending', next_look_at = clock_timestamp(), version = version + 1
      WHERE organization_id = ${organizationId}`;
  }
  return true;
}

/**
 * Writes the state of a subscription, and moves the organization to the paid plan, or back. An enterprise plan, which
 * only operators set, stays, and so does the plan for which a subscription was to end. The change has the author of the
 * order, unless the transaction has an author. Returns false, and writes nothing, if the subscription has changed since
 * it was read.
 */
export function noteStanding(
  sql: Database,
  { organizationId, id, version, plan, nextPlan, state: stateBefore }: PlanSubscription,
  standing: SubscriptionStanding,
): Promise<boolean> {
  const { state, reference = null, invoiceUrl = null, periodStartMs, periodEndMs } = standing;
  const end = timeOf(periodEndMs);
  return sql.begin(async (transaction) => {
    const [organization] = await transaction<{ plan: string }[]>`
      SELECT plan FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
    const written = await transaction`UPDATE plan_subscriptions
      SET state = ${state}, reference = coalesce(${reference}, reference), invoice_url = ${invoiceUrl},
        period_start = coalesce(${timeOf(periodStartMs)}, period_start),
        period_end = coalesce(${end}, period_end), version = version + 1,
        next_look_at = CASE WHEN ${state === "ended"} THEN NULL
          ELSE least(clock_timestamp() + make_interval(secs => ${LOOK_SECONDS}),
            greatest(${end}, clock_timestamp()) + make_interval(secs => ${RETRY_SECONDS})) END
      WHERE organization_id = ${organizationId} AND id = ${id}
        AND version = ${version.toString()}::bigint`;
    if (written.count === 0) return false;
    const before = organization!.plan;
    const isPaid = state === "active";
    if (isPaid && (before === "free" || before === "byok")) {
      await setAuthorOf(transaction, organizationId);
      await changeOrganization(transaction, organizationId, { plan });
    } else if (!isPaid && before === plan && stateBefore !== "ending") {
      if (nextPlan !== undefined) await setAuthorOf(transaction, organizationId);
      await changeOrganization(transaction, organizationId, { plan: nextPlan ?? "free" });
    }
    return true;
  });
}

async function setAuthorOf(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  await sql`SELECT set_config('gateway.author', author::text, true) FROM plan_subscriptions
    WHERE organization_id = ${organizationId} AND author IS NOT NULL
      AND coalesce(current_setting('gateway.author', true), '') = ''`;
}

function timeOf(ms: number | undefined): Date | null {
  return ms === undefined ? null : new Date(ms);
}

function subscriptionOf(row: SubscriptionRow) {
  const subscription = storedSubscription(row);
  return {
    ...subscription,
    nextPlan: subscription.nextPlan ?? undefined,
    reference: subscription.reference ?? undefined,
    customer: subscription.customer ?? undefined,
    invoiceUrl: subscription.invoiceUrl ?? undefined,
    periodStartMs: subscription.periodStartMs ?? undefined,
    periodEndMs: subscription.periodEndMs ?? undefined,
  };
}
