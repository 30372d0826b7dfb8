import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { creditTotals } from "../../db/queries/credit-list.ts";
import { latencyByHour, type Troubles, troublesOf } from "../../db/queries/dashboard-figures.ts";
import { listUsage, type UsageInterval, type UsageRow } from "../../db/queries/usage.ts";
import { jsonResponse } from "../http/error-response.ts";
import { nullable, type RouteDefinition } from "../http/route.ts";
import type { Clock } from "../lib/clock.ts";
import { usdNumber } from "../lib/money.ts";
import { isoTime } from "../lib/utc-time.ts";
import { bringUsageUpToDate } from "../usage/usage.ts";

interface OverviewDependencies {
  readonly sql: Database;
  readonly clock: Clock;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const SHOWN_HOURS = 24;
/** Whole days whose cost says how long the balance lasts. */
const AVERAGED_DAYS = 7;
const MAX_INTERVALS = 100;

const sums = { requests: Type.Integer(), errors: Type.Integer(), cost_usd: Type.Number() };

const overview = Type.Object({
  today: Type.Object(sums),
  yesterday: Type.Object(sums),
  month: Type.Object(sums),
  balance_usd: Type.Number(),
  lasts_until: nullable(
    Type.String({ description: "When the balance is gone if it goes on as in the last 7 days" }),
  ),
  hours: Type.Array(
    Type.Object({
      date: Type.String(),
      ...sums,
      p50_ms: nullable(Type.Integer()),
      p95_ms: nullable(Type.Integer()),
    }),
  ),
  troubles: Type.Object({
    failures: Type.Array(Type.Object({ error_code: Type.String(), count: Type.Integer() })),
    webhooks: Type.Array(Type.Object({ id: Type.String(), url: Type.String() })),
    provider_keys: Type.Array(Type.Object({ provider: Type.String(), name: Type.String() })),
  }),
});

/** What the first page shows of an organization: its spend by UTC days, and its last 24 hours. */
export function overviewRoute(path: string, dependencies: OverviewDependencies): RouteDefinition {
  return {
    method: "GET",
    path,
    tag: "Dashboard",
    summary: "Figures of the first page",
    access: { kind: "administration", scope: "usage:read" },
    responses: { 200: { description: "The figures", schema: overview } },
    async handle({ caller }) {
      return jsonResponse(await overviewOf(dependencies, caller.key.organizationId));
    },
  };
}

async function overviewOf({ sql, clock }: OverviewDependencies, organizationId: string) {
  const nowMs = clock.nowMs();
  const todayMs = nowMs - (nowMs % DAY_MS);
  const monthMs = Date.UTC(new Date(nowMs).getUTCFullYear(), new Date(nowMs).getUTCMonth());
  const hourMs = nowMs - (nowMs % HOUR_MS);
  const firstHourMs = hourMs - (SHOWN_HOURS - 1) * HOUR_MS;
  await bringUsageUpToDate(sql, organizationId);
  const usage = async (interval: UsageInterval, fromMs: number) => {
    const listing = {
      organizationId,
      interval,
      groups: [],
      fromMs,
      limit: MAX_INTERVALS,
      offset: 0,
    };
    const open = { keyId: undefined, model: undefined, beforeMs: undefined };
    return (await listUsage(sql, { ...listing, ...open })).rows;
  };
  const [days, hours, latencies, totals, troubles] = await Promise.all([
    usage("day", Math.min(monthMs, todayMs - AVERAGED_DAYS * DAY_MS)),
    usage("hour", firstHourMs),
    latencyByHour(sql, organizationId, firstHourMs, hourMs + HOUR_MS),
    creditTotals(sql, organizationId),
    troublesOf(sql, organizationId, nowMs - HOUR_MS),
  ]);
  const between = (fromMs: number, beforeMs: number) =>
    days.filter(({ startMs }) => startMs >= fromMs && startMs < beforeMs);
  const balanceNano = totals?.balanceNano ?? 0n;
  const averaged = between(todayMs - AVERAGED_DAYS * DAY_MS, todayMs);
  return {
    today: sumOf(between(todayMs, todayMs + DAY_MS)),
    yesterday: sumOf(between(todayMs - DAY_MS, todayMs)),
    month: sumOf(days.filter(({ startMs }) => startMs >= monthMs)),
    balance_usd: usdNumber(balanceNano),
    lasts_until: lastsUntil(balanceNano, costOf(averaged), nowMs),
    hours: Array.from({ length: SHOWN_HOURS }, (_, at) => {
      const startMs = firstHourMs + at * HOUR_MS;
      const latency = latencies.find((one) => one.startMs === startMs);
      return {
        date: isoTime(startMs),
        ...sumOf(hours.filter((one) => one.startMs === startMs)),
        p50_ms: latency?.p50Ms ?? null,
        p95_ms: latency?.p95Ms ?? null,
      };
    }),
    troubles: troublesShape(troubles),
  };
}

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

/** Further away it says nothing. */
const MAX_LASTING_MS = 365n * BigInt(DAY_MS);

/** @param costNano of the averaged days together */
function lastsUntil(balanceNano: bigint, costNano: bigint, nowMs: number): string | null {
  if (costNano <= 0n || balanceNano <= 0n) return null;
  const leftMs = (balanceNano * BigInt(AVERAGED_DAYS * DAY_MS)) / costNano;
  return leftMs > MAX_LASTING_MS ? null : isoTime(nowMs + Number(leftMs));
}

function troublesShape({ failures, webhooks, providerKeys }: Troubles) {
  return {
    failures: failures.map(({ errorCode, count }) => ({ error_code: errorCode, count })),
    webhooks: webhooks.map(({ id, url }) => ({ id, url })),
    provider_keys: providerKeys.map(({ providerId, name }) => ({ provider: providerId, name })),
  };
}
