import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { listInstances, noteDraining } from "../../db/queries/instances.ts";
import { version } from "../../package.json";
import { HealthRecorder } from "../../src/inference/call/routing/health-recorder.ts";
import type { MeasuredEndpoint } from "../../src/inference/call/routing/provider-health.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import type { Json } from "../people/people.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";

let gateway: TestGateway;
let operator: DashboardBrowser;
beforeAll(async () => {
  gateway = await startTestGateway();
  operator = await signIn(gateway, await addOperator(gateway));
});
afterAll(() => gateway.stop());

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const todayMs = Math.floor(Date.now() / DAY_MS) * DAY_MS;

async function get(path: string): Promise<Json> {
  const response = await operator.call("GET", path);
  expect(response.status).toBe(200);
  return (await response.json()) as Json;
}

interface Charges {
  readonly organizationId: string;
  readonly atMs: number;
  readonly count: number;
  readonly first: number;
}

/** Charges of 1.04 USD each, of which 0.04 are the fee. */
async function charge({ organizationId, atMs, count, first }: Charges): Promise<void> {
  await gateway.sql`
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description,
      key_id, request_id, model, provider, status, prompt_tokens, latency_ms, fee_nano, created_at)
    SELECT ${organizationId}, i, ${organizationId} || i, 'usage', -1040000000, 0, '', 'key',
      ${organizationId} || '_' || i, 'test/' || i % 2, 'maker', CASE WHEN i % 10 = 0 THEN 499 ELSE 200 END, 1,
      i % 100 * 10, 40000000, ${new Date(atMs)}
    FROM generate_series(${first}::bigint, ${first + count - 1}::bigint) i`;
}

const span = (fromMs: number, beforeMs: number) =>
  new URLSearchParams({
    start_date: new Date(fromMs).toISOString(),
    end_date: new Date(beforeMs).toISOString(),
  });

describe("the figures of operators", () => {
  let large: string;
  let small: string;
  beforeAll(async () => {
    large = (await gateway.addOrganization({ creditUsd: 0 })).organization.id;
    small = (await gateway.addOrganization({ creditUsd: 0 })).organization.id;
    const yesterdayMs = todayMs - DAY_MS;
    await charge({ organizationId: large, atMs: yesterdayMs + 5 * HOUR_MS, count: 50, first: 1 });
    await charge({ organizationId: large, atMs: todayMs, count: 60, first: 51 });
    await charge({ organizationId: small, atMs: yesterdayMs + 5 * HOUR_MS, count: 40, first: 1 });
    await charge({ organizationId: small, atMs: todayMs, count: 10, first: 41 });
    await until("the charges are added", async () => {
      const { is_complete } = await get(`operation/figures?${span(todayMs, todayMs + DAY_MS)}`);
      return is_complete === true;
    });
  });

  test("sum spend, fees, provider cost and latency, and compare them to the period before", async () => {
    const { total, before } = await get(`operation/figures?${span(todayMs, todayMs + DAY_MS)}`);
    expect(total).toMatchObject({ requests: 70, errors: 7, cost_usd: 72.8, fee_usd: 2.8 });
    expect(total.provider_cost_usd).toBe(70);
    expect(total.p50_ms).toBeGreaterThan(300);
    expect(total.p95_ms).toBeGreaterThan(total.p50_ms);
    expect(before).toMatchObject({ requests: 90, cost_usd: 93.6 });
  });

  test("rank organizations, providers and models, and the largest changes", async () => {
    const { organizations, movers, providers, models } = await get(
      `operation/figures?${span(todayMs, todayMs + DAY_MS)}`,
    );
    expect(organizations.map(({ id }: Json) => id)).toEqual([large, small]);
    expect(organizations[0]).toMatchObject({ cost_usd: 62.4, before_usd: 52, requests: 60 });
    expect(organizations[0].p95_ms).toBeGreaterThan(0);
    expect(movers.map(({ id }: Json) => id)).toEqual([small, large]);
    expect(providers).toMatchObject([{ id: "maker", cost_usd: 72.8, before_usd: 93.6 }]);
    expect(models.map(({ id }: Json) => id).toSorted()).toEqual(["test/0", "test/1"]);
  });

  test("count whole days and the hours around them, each once", async () => {
    const whole = await get(
      `operation/figures?${span(todayMs - DAY_MS + 5 * HOUR_MS, todayMs + HOUR_MS)}`,
    );
    expect(whole.total.requests).toBe(160);
    const without = await get(
      `operation/figures?${span(todayMs - DAY_MS + 6 * HOUR_MS, todayMs + HOUR_MS)}`,
    );
    expect(without.total.requests).toBe(70);
    expect(without.organizations.map(({ requests }: Json) => requests)).toEqual([60, 10]);
  });

  test("reject times that are missing, in the wrong order or too far apart", async () => {
    for (const query of [
      "",
      span(todayMs, todayMs),
      span(todayMs, todayMs - DAY_MS),
      span(todayMs - 500 * DAY_MS, todayMs),
    ]) {
      expect((await operator.call("GET", `operation/figures?${query}`)).status).toBe(400);
    }
  });

  test("are for operators alone", async () => {
    const organization = await signIn(gateway, gateway.managementKey);
    for (const path of ["operation/state", `operation/figures?${span(todayMs, todayMs + 1)}`]) {
      expect((await organization.call("GET", path)).status).toBe(403);
    }
  });
});

describe("the state of the gateway", () => {
  test("has each instance with its version, and whether it drains", async () => {
    const { instances } = await get("operation/state");
    expect(instances).toMatchObject([{ version, draining_since: null }]);
    const [instance] = await gateway.sql<{ id: string; epoch: bigint }[]>`
      SELECT id, epoch FROM instances WHERE id = ${instances[0].id}`;
    await noteDraining(gateway.sql, instance!);
    expect((await listInstances(gateway.sql))[0]!.drainingSinceMs).toBeNumber();
    const after = await get("operation/state");
    expect(after.instances[0].draining_since).toBeString();
  });

  test("has payments that wait, with the organization", async () => {
    const { organizationId: id, sql } = gateway;
    await sql`INSERT INTO auto_replenish (organization_id, is_enabled, amount_nano, declines)
      VALUES (${id}, true, 5000000000, 3)`;
    const intent = (intentId: string, state: string) => sql`
      INSERT INTO payment_intents (id, organization_id, purpose, amount_nano, description, processor, method, state,
        instance_id, busy_until, next_look_at)
      VALUES (${intentId}, ${id}, 'topup', 7000000000, '', 'test', 'm', ${state}, 'ins', now() + interval '1 day',
        now() + interval '1 day')`;
    await intent("pay_open", "requires_action");
    await intent("pay_done", "succeeded");
    await sql`INSERT INTO payment_reversals (id, organization_id, intent_id, kind, amount_nano, state, is_settled)
      VALUES ('dp_1', ${id}, 'pay_done', 'dispute', 3000000000, 'open', true)`;
    const { payments } = await get("operation/state");
    const shown = payments.map(({ kind, state, amount_usd }: Json) => [kind, state, amount_usd]);
    expect(shown.toSorted()).toEqual([
      ["dispute", "open", 3],
      ["replenishment", "stopped", 5],
      ["topup", "requires_action", 7],
    ]);
    expect(payments[0].organization_name).toStartWith("Organization ");
  });
});

describe("the record of circuits", () => {
  const endpoint = (over: Partial<MeasuredEndpoint> = {}): MeasuredEndpoint => ({
    ...{ providerId: "maker", keyPosition: 2, endpointId: "maker/large#2", circuit: "open" },
    ...{ latencyMs: 0, answeredMs: 0, tokensPerSecond: 0, running: 0, openings: 1 },
    lastFailure: { kind: "rate_limited", status: 429, atMs: Date.now() },
    ...over,
  });
  const recorderOf = (measured: () => MeasuredEndpoint[], instanceId = newId("ins")) =>
    new HealthRecorder({
      health: { measured },
      ...{ background: gateway.sql, instanceId, clock: systemClock },
      onError: (error) => {
        throw error;
      },
    });

  test("has one period for openings in a row, with the last failure of the key", async () => {
    let now = [endpoint()];
    const recorder = recorderOf(() => now);
    await recorder.record();
    now = [endpoint({ circuit: "closed" })];
    await recorder.record();
    now = [
      endpoint({
        openings: 3,
        lastFailure: { kind: "timeout", status: undefined, atMs: Date.now() + 5 },
      }),
    ];
    await recorder.record();
    const { circuits, key_failures } = await get("operation/state");
    expect(circuits).toMatchObject([
      {
        ...{ provider: "maker", endpoint: "maker/large#2", openings: 3, is_open: true },
        ...{ failure_kind: "timeout", failure_status: null },
      },
    ]);
    expect(key_failures).toMatchObject([{ provider: "maker", key: 2, failure_kind: "timeout" }]);
    // Another instance whose failure is older changes nothing.
    const old = { kind: "unavailable", status: 503, atMs: Date.now() - HOUR_MS };
    await recorderOf(() => [
      endpoint({ circuit: "closed", openings: 0, lastFailure: old }),
    ]).record();
    expect((await get("operation/state")).key_failures).toMatchObject([
      { failure_kind: "timeout" },
    ]);
  });

  test("begins another period after a minute, and forgets periods after a week", async () => {
    const instanceId = newId("ins");
    const again = () => recorderOf(() => [endpoint({ endpointId: "maker/other#2" })], instanceId);
    await again().record();
    await gateway.sql`UPDATE circuit_openings SET opened_at = opened_at - interval '2 minutes',
      last_open_at = last_open_at - interval '2 minutes' WHERE instance_id = ${instanceId}`;
    await again().record();
    const periods = async () =>
      (await gateway.sql`SELECT 1 FROM circuit_openings WHERE instance_id = ${instanceId}`).length;
    expect(await periods()).toBe(2);
    await gateway.sql`UPDATE circuit_openings SET last_open_at = now() - interval '8 days'
      WHERE instance_id = ${instanceId} AND last_open_at < now() - interval '1 minute'`;
    await again().record();
    expect(await periods()).toBe(1);
  });
});
