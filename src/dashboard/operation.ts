import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import {
  type GatewayTotals,
  gatewayNames,
  gatewayOrganizations,
  gatewayTotals,
  isLargest,
  isMover,
  type NamedSums,
  type OrganizationSums,
} from "../../db/queries/gateway-figures.ts";
import { listInstances } from "../../db/queries/instances.ts";
import {
  listCircuitPeriods,
  listKeyFailures,
  unhealthyProviders,
} from "../../db/queries/provider-health.ts";
import { listWaitingPayments } from "../../db/queries/waiting-payments.ts";
import { intervalFields, invalidQuery } from "../billing/usage/interval-query.ts";
import { bringGatewayUpToDate } from "../billing/usage/usage.ts";
import { jsonResponse } from "../http/error-response.ts";
import { nullable, type RouteDefinition, route } from "../http/route.ts";
import type { Clock } from "../lib/clock.ts";
import { usdNumber } from "../lib/money.ts";
import { isoTime, parseIsoTime } from "../lib/utc-time.ts";

interface OperationDependencies {
  readonly sql: Database;
  readonly clock: Clock;
}

const DAY_MS = 86_400_000;
/** Longest range, in days. The pages of the dashboard have the same. */
const MAX_RANGE_DAYS = 400;

const sums = {
  requests: Type.Integer(),
  errors: Type.Integer(),
  cost_usd: Type.Number(),
  fee_usd: Type.Number(),
  provider_cost_usd: Type.Number(),
  p50_ms: nullable(Type.Integer()),
  p95_ms: nullable(Type.Integer()),
};
const named = { id: nullable(Type.String()), ...sums, before_usd: Type.Number() };
const organization = { ...named, id: Type.String(), name: Type.String() };

const figures = Type.Object({
  is_complete: Type.Boolean(),
  total: Type.Object(sums),
  before: Type.Object(sums),
  organizations: Type.Array(Type.Object(organization)),
  movers: Type.Array(Type.Object(organization)),
  providers: Type.Array(Type.Object(named)),
  models: Type.Array(Type.Object(named)),
});

const time = Type.String({ maxLength: 64 });
const failure = { failure_kind: nullable(Type.String()), failure_status: nullable(Type.Integer()) };

const state = Type.Object({
  payments: Type.Array(
    Type.Object({
      kind: Type.String(),
      state: Type.String(),
      organization_id: Type.String(),
      organization_name: Type.String(),
      amount_usd: Type.Number(),
      since: nullable(Type.String()),
    }),
  ),
  instances: Type.Array(
    Type.Object({
      id: Type.String(),
      version: nullable(Type.String()),
      started_at: Type.String(),
      draining_since: nullable(Type.String()),
    }),
  ),
  unhealthy: Type.Array(Type.Object({ provider: Type.String(), since: Type.String() })),
  circuits: Type.Array(
    Type.Object({
      provider: Type.String(),
      endpoint: Type.String(),
      instance_id: Type.String(),
      opened_at: Type.String(),
      last_open_at: Type.String(),
      openings: Type.Integer(),
      is_open: Type.Boolean(),
      ...failure,
    }),
  ),
  key_failures: Type.Array(
    Type.Object({
      provider: Type.String(),
      key: Type.Integer({ description: "Position of the key, from 1" }),
      endpoint: Type.String(),
      failed_at: Type.String(),
      ...failure,
    }),
  ),
});

/** Returns the routes of the operators' first page: figures over all organizations, and the state of the gateway. */
export function operationRoutes(
  path: string,
  dependencies: OperationDependencies,
): RouteDefinition[] {
  const { sql, clock } = dependencies;
  const common = { method: "GET", tag: "Dashboard", access: { kind: "operator" } } as const;
  return [
    route({
      ...common,
      path: `${path}/figures`,
      summary: "Get figures over all organizations",
      query: Type.Object(
        {
          start_date: intervalFields.start_date,
          end_date: intervalFields.end_date,
          before_start: Type.Optional(time),
          before_end: Type.Optional(time),
        },
        { additionalProperties: false },
      ),
      responses: { 200: { description: "The figures", schema: figures } },
      async handle({ query }) {
        const period = periodOf(query.start_date, query.end_date, "start_date");
        const lengthMs = period.beforeMs - period.fromMs;
        const before =
          query.before_start === undefined
            ? { fromMs: period.fromMs - lengthMs, beforeMs: period.fromMs }
            : periodOf(query.before_start, query.before_end, "before_start");
        const isComplete = await bringGatewayUpToDate(sql);
        const [total, totalBefore, organizations, providers, models] = await Promise.all([
          gatewayTotals(sql, period),
          gatewayTotals(sql, before),
          gatewayOrganizations(sql, period, before),
          gatewayNames(sql, "provider", period, before),
          gatewayNames(sql, "model", period, before),
        ]);
        return jsonResponse({
          is_complete: isComplete,
          total: totalsShape(total),
          before: totalsShape(totalBefore),
          organizations: organizations.filter(isLargest).map(organizationShape),
          movers: organizations
            .filter(isMover)
            .toSorted((one, other) => one.changeRank - other.changeRank)
            .map(organizationShape),
          providers: providers.map(namedShape),
          models: models.map(namedShape),
        });
      },
    }),
    route({
      ...common,
      path: `${path}/state`,
      summary: "Get waiting payments, instances and the health of providers",
      responses: { 200: { description: "The state", schema: state } },
      async handle() {
        const [payments, instances, unhealthy, circuits, failures] = await Promise.all([
          listWaitingPayments(sql),
          listInstances(sql),
          unhealthyProviders(sql),
          listCircuitPeriods(sql, clock.nowMs() - DAY_MS),
          listKeyFailures(sql),
        ]);
        return jsonResponse({
          payments: payments.map((one) => ({
            ...{ kind: one.kind, state: one.state, organization_id: one.organizationId },
            organization_name: one.organizationName,
            amount_usd: usdNumber(one.amountNano),
            since: timeOrNull(one.sinceMs),
          })),
          instances: instances.map((one) => ({
            ...{ id: one.id, version: one.version, started_at: isoTime(one.startedAtMs) },
            draining_since: timeOrNull(one.drainingSinceMs),
          })),
          unhealthy: unhealthy.map(({ providerId, sinceMs }) => ({
            provider: providerId,
            since: isoTime(sinceMs),
          })),
          circuits: circuits.map((one) => ({
            ...{ provider: one.providerId, endpoint: one.endpointId, instance_id: one.instanceId },
            ...{ opened_at: isoTime(one.openedAtMs), last_open_at: isoTime(one.lastOpenAtMs) },
            ...{ openings: one.openings, is_open: one.isOpen },
            ...{ failure_kind: one.failureKind, failure_status: one.failureStatus },
          })),
          key_failures: failures.map((one) => ({
            ...{ provider: one.providerId, key: one.keyPosition, endpoint: one.endpointId },
            failed_at: isoTime(one.failedAtMs),
            ...{ failure_kind: one.failureKind, failure_status: one.failureStatus },
          })),
        });
      },
    }),
  ];
}

/** Returns a period. Throws 400 if it has no start or end, is empty, or is too long. */
function periodOf(start: string | undefined, end: string | undefined, param: string) {
  const from = start === undefined ? undefined : parseIsoTime(start);
  const before = end === undefined ? undefined : parseIsoTime(end);
  if (from === undefined || before === undefined) {
    throw invalidQuery(param, "and its end must be ISO 8601 dates or times");
  }
  const { fromMs, beforeMs } = { fromMs: from.ms, beforeMs: before.ms };
  if (fromMs >= beforeMs || beforeMs - fromMs > MAX_RANGE_DAYS * DAY_MS) {
    throw invalidQuery(param, `must be before its end, by at most ${MAX_RANGE_DAYS} days`);
  }
  return { fromMs, beforeMs };
}

function totalsShape({ costNano, feeNano, providerCostNano, latency, ...counts }: GatewayTotals) {
  return {
    ...{ requests: counts.requests, errors: counts.errors },
    cost_usd: usdNumber(costNano),
    fee_usd: usdNumber(feeNano),
    provider_cost_usd: usdNumber(providerCostNano),
    p50_ms: latency?.p50Ms ?? null,
    p95_ms: latency?.p95Ms ?? null,
  };
}

function namedShape(one: NamedSums) {
  return { id: one.id || null, ...totalsShape(one), before_usd: usdNumber(one.beforeNano) };
}

function organizationShape(one: OrganizationSums) {
  return { ...namedShape(one), id: one.id, name: one.name };
}

function timeOrNull(ms: number | null): string | null {
  return ms === null ? null : isoTime(ms);
}
