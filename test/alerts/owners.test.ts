import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { insertAlertChannel } from "../../db/queries/alert-channels.ts";
import { sampleErrorRates } from "../../db/queries/error-rates.ts";
import { AlertUrls } from "../../src/alerts/alert-channels.ts";
import { AlertDispatcher } from "../../src/alerts/alert-dispatcher.ts";
import type { SendAlert } from "../../src/alerts/send-alerts.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { requestsErrorRate } from "../../src/lib/events/requests-error-rate.ts";
import { newId } from "../../src/lib/ids.ts";
import { SendSlots } from "../../src/webhooks/send-slots.ts";
import { addOwner, age } from "../ownership/instances.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { addOrganization } from "../webhooks/many-hooks.ts";
import { emitAlerts, SAMPLE_BUDGET } from "./chats.ts";

let database: OpenTestDatabase;
let sql: Database;
beforeAll(async () => {
  database = await openTestDatabase(8);
  ({ sql } = database);
});
afterAll(() => database.drop());

const PAST_LEASE_MS = 60_000;
const accepted = { error: null, statusCode: 200, latencyMs: 1, isReceiverFault: false };

async function addChannel(): Promise<{ organizationId: string; id: string }> {
  const organizationId = await addOrganization(sql);
  const id = newId("alc");
  const url = new AlertUrls(await testKeyring(sql)).sealing("https://hooks.example.com/x");
  const settings = { type: "slack", name: "A", alerts: ["budgets"], enabled: true } as const;
  await insertAlertChannel(
    sql,
    { ...settings, id, organizationId, host: "hooks.example.com", url },
    10,
  );
  return { organizationId, id };
}

/** An instance that sends alerts. `sweep` claims and starts as UnownedWork does. */
async function addInstance(sendAlert: SendAlert) {
  const owner = await addOwner(sql);
  const errors: unknown[] = [];
  const dispatcher = new AlertDispatcher({
    ...{ sql, sendAlert, clock: systemClock, instance: owner.instance, ownership: owner.ownership },
    slots: new SendSlots(8, systemClock),
    urls: new AlertUrls(await testKeyring(sql)),
    ...{ canMail: false, retryDelaysMs: [1], publicUrl: undefined },
    onError: (error) => void errors.push(error),
  });
  const sweep = async () => {
    const found = await dispatcher.findWork(100);
    const leases = await owner.ownership.claim(dispatcher.kind, [...found.keys()]);
    for (const lease of leases) dispatcher.start(lease, found.get(lease.id));
    return leases.length;
  };
  return { owner, dispatcher, errors, sweep };
}

const isDone = async (id: string) => {
  const [row] = await sql`SELECT 1 FROM alert_states WHERE channel_id = ${id} AND due_at IS NULL
    AND last_sent_at IS NOT NULL`;
  return row !== undefined;
};

test("two instances that look at the same time send an alert once", async () => {
  const { organizationId, id } = await addChannel();
  const sent: string[] = [];
  const send: SendAlert = async (_, message) => {
    sent.push(message.id);
    return accepted;
  };
  const [one, other] = [await addInstance(send), await addInstance(send)];
  await emitAlerts({ sql }, organizationId, "budget.threshold", [SAMPLE_BUDGET]);
  await until("it is sent", async () => {
    await Promise.all([one.sweep(), other.sweep()]);
    return isDone(id);
  });
  expect(sent.length).toBe(1);
  expect([...one.errors, ...other.errors]).toEqual([]);
  await Promise.all([one.dispatcher.stop(1_000), other.dispatcher.stop(1_000)]);
});

test("an alert whose owner dies before it writes the success is sent again, under the same id", async () => {
  const { organizationId, id } = await addChannel();
  const sent: string[] = [];
  const { promise, resolve } = Promise.withResolvers<typeof accepted>();
  const dying = await addInstance((_, message) => {
    sent.push(message.id);
    return promise;
  });
  await emitAlerts({ sql }, organizationId, "budget.threshold", [SAMPLE_BUDGET]);
  await until("the first owner sends", async () => {
    await dying.sweep();
    return sent.length === 1;
  });
  await age(sql, dying.owner, PAST_LEASE_MS);
  const heir = await addInstance(async (_, message) => {
    sent.push(message.id);
    return accepted;
  });
  await until("the next owner has sent it", async () => {
    await heir.sweep();
    return isDone(id);
  });
  expect(sent).toEqual([sent[0]!, sent[0]!]);
  const written = () => sql`SELECT * FROM alert_states WHERE channel_id = ${id}`;
  const before = await written();
  resolve(accepted);
  await until("the dead owner's write is rejected", () =>
    dying.owner.lost.some((lease) => lease.includes(id)),
  );
  expect(await written()).toEqual(before);
  await dying.dispatcher.stop(1_000);
  await heir.dispatcher.stop(1_000);
});

test("a high error rate is reported once, until it was low, and by one of two instances", async () => {
  const { organizationId } = await addChannel();
  await sql`UPDATE alert_channels SET alerts = '{requests}' WHERE organization_id = ${organizationId}`;
  const count = (requests: number, errors: number) => sql`
    INSERT INTO usage_totals (organization_id, kind, starts_at, value, requests, errors, prompt_tokens,
      completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms, cost_nano)
    VALUES (${organizationId}, 'hour', date_trunc('hour', now(), 'UTC'), '', ${requests}, ${errors}, 0, 0, 0, 0, 0, 0, 0, 0)
    ON CONFLICT (organization_id, kind, starts_at, value) DO UPDATE
      SET requests = usage_totals.requests + excluded.requests, errors = usage_totals.errors + excluded.errors`;
  const reported: number[] = [];
  const sample = () =>
    sampleErrorRates(sql, "", ({ organizationId: id, requests, errors, sinceMs, untilMs }) => {
      reported.push(errors);
      return requestsErrorRate.build(newId("evt"), id, {
        ...{ requests, errors, error_percent: Math.round((errors / requests) * 100) },
        period_start: new Date(sinceMs).toISOString(),
        period_end: new Date(untilMs).toISOString(),
      });
    });
  const pass = async () => {
    await sql`UPDATE error_rates SET sampled_at = sampled_at - interval '6 minutes'`;
    await Promise.all([sample(), sample()]);
  };
  await count(1_000, 900);
  await sample();
  expect(reported).toEqual([]);
  await count(10, 10);
  await pass();
  expect(reported).toEqual([]);
  await count(100, 30);
  await pass();
  await count(100, 30);
  await pass();
  expect(reported).toEqual([30]);
  await count(100, 5);
  await pass();
  await count(100, 40);
  await pass();
  expect(reported).toEqual([30, 40]);
  const events = await sql`SELECT 1 FROM alerts WHERE organization_id = ${organizationId}`;
  expect(events.length).toBe(2);
});
