import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { findReplenishment } from "../../db/queries/auto-replenish.ts";
import { findTroubles, type Troubles } from "../../db/queries/dashboard-figures.ts";
import { findObjectIssues, type ObjectIssue } from "../../db/queries/object-issues.ts";
import { findOperatedOrganization } from "../../db/queries/organizations.ts";
import { listUsage, type UsageInterval, type UsageRow } from "../../db/queries/usage.ts";
import { listLatencies } from "../../db/queries/usage-latency.ts";
import { replenishStatus } from "../billing/payments/auto-replenish.ts";
import { bringUsageUpToDate } from "../billing/usage/usage.ts";
import { jsonResponse } from "../http/error-response.ts";
import { nullable, type RouteDefinition } from "../http/route.ts";
import { type ApiKeyRecord, holdsScope, type Scope } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { usdNumber } from "../lib/money.ts";
import { isoTime } from "../lib/utc-time.ts";

interface OverviewDependencies {
  readonly sql: Database;
  readonly clock: Clock;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const SHOWN_HOURS = 24;
/** Number of days, including today, whose cost determines how long the balance lasts. */
const AVERAGED_DAYS = 7;
const MAX_INTERVALS = 100;

const milliseconds = nullable(Type.Integer());
const sums = { requests: Type.Integer(), errors: Type.Integer(), cost_usd: Type.Number() };

const overview = Type.Object({
  is_complete: Type.Boolean({
    description: "False while earlier requests are still being added to usage",
  }),
  today: Type.Object(sums),
  yesterday: Type.Object(sums),
  yesterday_so_far: Type.Object(sums, {
    description: "Yesterday until the hour of the day that is running today",
  }),
  month: Type.Object(sums),
  last_month_so_far: Type.Object(sums, {
    description: "The same days of the month before. The last one until the hour that is running",
  }),
  balance_usd: nullable(Type.Number({ description: "Null for a key without `billing:read`" })),
  forecast: nullable(
    Type.Object(
      {
        gone_at: nullable(
          Type.String({
            description:
              "Time at which balance and credit limit are used up. Null if that is more than a year away",
          }),
        ),
        usd_a_day: Type.Number(),
        pace_of: Type.Enum(["day", "week"], {
          description: "The period of the rate: the last 24 hours or 7 days",
        }),
      },
      {
        description:
          "At the higher of two spend rates. Null if nothing is spent, nothing is left, or the credit limit is unlimited",
      },
    ),
  ),
  replenishing: Type.Enum(["off", "active", "retrying", "stopped"]),
  hours: Type.Array(
    Type.Object({
      date: Type.String(),
      ...sums,
      p50_ms: milliseconds,
      p95_ms: milliseconds,
      first_token_p50_ms: milliseconds,
      first_token_p95_ms: milliseconds,
    }),
  ),
  troubles: Type.Object({
    failures: Type.Array(Type.Object({ error_code: Type.String(), count: Type.Integer() })),
    webhooks: Type.Array(
      Type.Object({
        id: Type.String(),
        url: Type.String(),
        attempts: Type.Integer({ description: "Failed attempts of the next event in the queue" }),
        next_attempt_at: nullable(Type.String({ description: "Null if the webhook was disabled" })),
      }),
    ),
    provider_keys: Type.Array(Type.Object({ provider: Type.String(), name: Type.String() })),
  }),
  object_issues: Type.Array(
    Type.Object(
      { kind: Type.Enum(["batch", "fine_tuning_job", "vector_store", "payment", "budget"]) },
      { additionalProperties: true },
    ),
    { description: "Failed jobs, files and payments of the last day, and used up budgets" },
  ),
});

/** Returns the route for the overview of an organization: its spend by UTC day, and its last 24 hours. */
export function overviewRoute(path: string, dependencies: OverviewDependencies): RouteDefinition {
  return {
    method: "GET",
    path,
    tag: "Dashboard",
    summary: "Get overview figures",
    access: { kind: "administration", scope: "usage:read" },
    responses: { 200: { description: "The figures", schema: overview } },
    async handle({ caller }) {
      return jsonResponse(await overviewOf(dependencies, caller.key));
    },
  };
}

/**
 * Returns the figures. Omits values that other routes show only to keys with other scopes than `usage:read`.
 */
async function overviewOf({ sql, clock }: OverviewDependencies, key: ApiKeyRecord) {
  const { organizationId } = key;
  const showsBalance = holdsScope(key, "billing:read");
  const nowMs = clock.nowMs();
  const todayMs = nowMs - (nowMs % DAY_MS);
  const monthMs = Date.UTC(new Date(nowMs).getUTCFullYear(), new Date(nowMs).getUTCMonth());
  const hourMs = nowMs - (nowMs % HOUR_MS);
  const firstHourMs = hourMs - (SHOWN_HOURS - 1) * HOUR_MS;
  const yesterdayMs = todayMs - DAY_MS;
  const lastMonthMs = Date.UTC(new Date(nowMs).getUTCFullYear(), new Date(nowMs).getUTCMonth() - 1);
  // The month before can have fewer days.
  const lastMonthEndMs = Math.min(lastMonthMs + hourMs + HOUR_MS - monthMs, monthMs);
  const isComplete = await bringUsageUpToDate(sql, organizationId);
  const usage = async (interval: UsageInterval, fromMs: number, beforeMs?: number) => {
    const listing = {
      organizationId,
      interval,
      groups: [],
      fromMs,
      limit: MAX_INTERVALS,
      offset: 0,
    };
    const unfiltered = { keyId: undefined, model: undefined };
    return (await listUsage(sql, { ...listing, ...unfiltered, beforeMs })).rows;
  };
  const [days, hours, yesterday, lastMonth, latencies, ...others] = await Promise.all([
    usage("day", Math.min(monthMs, todayMs - AVERAGED_DAYS * DAY_MS)),
    usage("hour", firstHourMs),
    usage("day", yesterdayMs, hourMs + HOUR_MS - DAY_MS),
    usage("month", lastMonthMs, lastMonthEndMs),
    listLatencies(sql, {
      ...{ organizationId, interval: "hour", fromMs: firstHourMs, beforeMs: undefined },
      ...{ limit: MAX_INTERVALS, offset: 0 },
    }),
    findOperatedOrganization(sql, organizationId),
    findReplenishment(sql, organizationId),
    findTroubles(sql, organizationId, nowMs - HOUR_MS),
    findObjectIssues(sql, organizationId, nowMs),
  ]);
  const [organization, replenishment, troubles, issues] = others;
  const between = (fromMs: number, beforeMs: number) =>
    days.filter(({ startMs }) => startMs >= fromMs && startMs < beforeMs);
  const { balanceNano, creditLimitNano, createdAtMs } = organization!;
  const weekMs = todayMs - (AVERAGED_DAYS - 1) * DAY_MS;
  return {
    is_complete: isComplete,
    today: sumOf(between(todayMs, todayMs + DAY_MS)),
    yesterday: sumOf(between(yesterdayMs, todayMs)),
    yesterday_so_far: sumOf(yesterday),
    month: sumOf(days.filter(({ startMs }) => startMs >= monthMs)),
    last_month_so_far: sumOf(lastMonth),
    balance_usd: showsBalance ? usdNumber(balanceNano) : null,
    forecast: showsBalance
      ? forecastOf({
          ...{ nowMs, leftNano: creditLimitNano === null ? null : balanceNano + creditLimitNano },
          day: { costNano: costOf(hours), overMs: nowMs - firstHourMs },
          week: {
            costNano: costOf(between(weekMs, todayMs + DAY_MS)),
            overMs: nowMs - Math.max(weekMs, createdAtMs),
          },
        })
      : null,
    replenishing:
      replenishment === undefined || !showsBalance ? "off" : replenishStatus(replenishment),
    hours: Array.from({ length: SHOWN_HOURS }, (_, hourIndex) => {
      const startMs = firstHourMs + hourIndex * HOUR_MS;
      const latency = latencies.rows.find((row) => row.startMs === startMs);
      return {
        date: isoTime(startMs),
        ...sumOf(hours.filter((row) => row.startMs === startMs)),
        p50_ms: latency?.total.p50Ms ?? null,
        p95_ms: latency?.total.p95Ms ?? null,
        first_token_p50_ms: latency?.firstToken?.p50Ms ?? null,
        first_token_p95_ms: latency?.firstToken?.p95Ms ?? null,
      };
    }),
    troubles: troublesShape(troubles, key),
    object_issues: issues
      .filter(({ kind }) => holdsScope(key, ISSUE_SCOPES[kind]))
      .map((issue) =>
        issue.kind === "payment"
          ? { kind: issue.kind, amount_usd: usdNumber(issue.amountNano), message: issue.message }
          : issue,
      ),
  };
}

/** Scopes of the routes that show the objects. */
const ISSUE_SCOPES: Readonly<Record<ObjectIssue["kind"], Scope>> = {
  batch: "files:read",
  fine_tuning_job: "fine_tuning",
  vector_store: "files:read",
  payment: "billing:read",
  budget: "keys:manage",
};

function sumOf(rows: readonly UsageRow[]) {
  return {
    requests: rows.reduce((sum, row) => sum + row.requests, 0),
    errors: rows.reduce((sum, row) => sum + row.errors, 0),
    cost_usd: usdNumber(costOf(rows)),
  };
}

function costOf(rows: readonly UsageRow[]): bigint {
  return rows.reduce((sum, row) => sum + row.costNano, 0n);
}

interface SpendRate {
  readonly costNano: bigint;
  readonly overMs: number;
}

interface Spending {
  readonly nowMs: number;
  /** Balance plus credit limit, in nano-USD. Null if unlimited. */
  readonly leftNano: bigint | null;
  readonly day: SpendRate;
  readonly week: SpendRate;
}

const MAX_FORECAST_MS = 365n * BigInt(DAY_MS);

/**
 * Returns when the balance is used up at the higher of two rates. A week that was quiet until today
 * underestimates the rate.
 */
export function forecastOf({ nowMs, leftNano, day, week }: Spending) {
  const dayNano = nanoADay(day);
  const weekNano = nanoADay(week);
  const fasterNano = dayNano > weekNano ? dayNano : weekNano;
  if (leftNano === null || leftNano <= 0n || fasterNano <= 0n) return null;
  const leftMs = (leftNano * BigInt(DAY_MS)) / fasterNano;
  return {
    gone_at: leftMs > MAX_FORECAST_MS ? null : isoTime(nowMs + Number(leftMs)),
    usd_a_day: usdNumber(fasterNano),
    pace_of: dayNano < weekNano ? "week" : "day",
  };
}

/** Returns the spend per day. The spend of less than a day is not extrapolated to a day. */
function nanoADay({ costNano, overMs }: SpendRate): bigint {
  return (costNano * BigInt(DAY_MS)) / BigInt(Math.max(Math.round(overMs), DAY_MS));
}

function troublesShape(troubles: Troubles, key: ApiKeyRecord) {
  const { failures } = troubles;
  const webhooks = holdsScope(key, "webhooks:manage") ? troubles.webhooks : [];
  const providerKeys = holdsScope(key, "provider_keys:manage") ? troubles.providerKeys : [];
  return {
    failures: failures.map(({ errorCode, count }) => ({ error_code: errorCode, count })),
    webhooks: webhooks.map(({ id, url, attempts, nextAttemptAtMs }) => ({
      ...{ id, url, attempts },
      next_attempt_at: nextAttemptAtMs === null ? null : isoTime(nextAttemptAtMs),
    })),
    provider_keys: providerKeys.map(({ providerId, name }) => ({ provider: providerId, name })),
  };
}
