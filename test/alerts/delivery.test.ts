import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { manage } from "../people/people.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY } from "../webhooks/receiver.ts";
import { addChannel, type Chat, emitAlerts, SAMPLE_BUDGET, startChat } from "./chats.ts";

let gateway: TestGateway;
const chats: Chat[] = [];
beforeAll(async () => {
  gateway = await startTestGateway({ environment: LOCAL_DELIVERY });
});
afterEach(async () => {
  for (const chat of chats.splice(0)) await chat.stop();
});
afterAll(() => gateway.stop());

function receive(): Chat {
  const chat = startChat();
  chats.push(chat);
  return chat;
}

/** An organization with one channel, so that tests do not get the alerts of others. */
async function withChannel(more?: Record<string, unknown>) {
  const { organization, managementKey } = await gateway.addOrganization();
  const chat = receive();
  const id = await addChannel(gateway, chat, more, managementKey);
  const read = async () =>
    (await manage(gateway, "GET", `alert_channels/${id}`, undefined, managementKey)).body;
  return {
    organizationId: organization.id,
    name: organization.name,
    managementKey,
    chat,
    id,
    read,
  };
}

const low = (balance: number) => ({ balance_usd: balance, threshold_usd: 1 });

test("an event of a chosen kind becomes a message, and others do not", async () => {
  const { organizationId, name, chat, read } = await withChannel({ alerts: ["budgets"] });
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.95)]);
  await emitAlerts(gateway, organizationId, "budget.threshold", [SAMPLE_BUDGET]);
  await until("a message", () => chat.bodies.length === 1);
  const line = "Key “Search” (key_1) has spent 80 % of its daily budget: $8.00 of $10.00.";
  expect(chat.bodies[0].text).toBe(`${name}: Budgets\n• ${line}`);
  expect(chat.bodies[0].blocks[1].text).toEqual({
    type: "plain_text",
    text: `• ${line}`,
    emoji: false,
  });
  const state = await until("the success is recorded", async () => {
    const body = await read();
    return body.last_sent_at !== null && body;
  });
  expect(state).toMatchObject({ enabled: true, last_error: null, host: new URL(chat.url).host });
  expect(JSON.stringify(state)).not.toContain("a-secret");
});

test("events of another organization, and those before the channel was created, are not sent", async () => {
  const other = await gateway.addOrganization();
  const { organizationId, chat, managementKey } = await withChannel();
  await emitAlerts(gateway, other.organization.id, "credits.low", [low(0.1)]);
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.5)]);
  await until("a message", () => chat.bodies.length === 1);
  const late = receive();
  await addChannel(gateway, late, {}, managementKey);
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.25)]);
  await until("both have it", () => chat.bodies.length === 2 && late.bodies.length === 1);
  expect(late.bodies[0].text).toContain("$0.25");
  expect(JSON.stringify(chat.bodies)).not.toContain("$0.10");
});

test("a storm of 10,000 events is at most ten messages in an hour, which count all of them", async () => {
  const { organizationId, chat, id } = await withChannel();
  const storm = Array.from({ length: 1_000 }, () => SAMPLE_BUDGET);
  for (let part = 0; part < 10; part++) {
    await emitAlerts(gateway, organizationId, "budget.exhausted", storm);
  }
  await until("all are sent, or wait for the hour", async () => {
    const [state] = await gateway.sql<{ is_settled: boolean }[]>`
      SELECT s.due_at IS NULL OR s.due_at > now() AS is_settled FROM alert_states s WHERE channel_id = ${id}
        AND NOT EXISTS (SELECT FROM alerts WHERE organization_id = ${organizationId} AND sequence IS NULL)`;
    return state?.is_settled;
  });
  expect(chat.bodies.length).toBeGreaterThan(0);
  expect(chat.bodies.length).toBeLessThanOrEqual(10);
  await gateway.sql`UPDATE alert_states SET hour_started_at = now() - interval '2 hours', due_at = now()
    WHERE channel_id = ${id}`;
  const covered = () =>
    chat.bodies.reduce((sum, { text }) => sum + Number(/: (\d+) alerts/.exec(text)?.[1] ?? 1), 0);
  await until("the rest came in one message more", () => covered() >= 10_000);
  expect(covered()).toBe(10_000);
  expect(chat.bodies.length).toBeLessThanOrEqual(11);
});

test("after ten messages in an hour the next alerts wait, and come together", async () => {
  const { organizationId, chat, id } = await withChannel();
  await gateway.sql`UPDATE alert_states SET hour_started_at = now(), hour_messages = 10 WHERE channel_id = ${id}`;
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.5), low(0.25)]);
  await until("the channel waits", async () => {
    const [state] = await gateway.sql`SELECT 1 FROM alert_states
      WHERE channel_id = ${id} AND due_at > now() + interval '50 minutes'`;
    return state !== undefined;
  });
  expect(chat.bodies).toEqual([]);
  await gateway.sql`UPDATE alert_states SET hour_started_at = now() - interval '61 minutes', due_at = now()
    WHERE channel_id = ${id}`;
  await until("one message", () => chat.bodies.length === 1);
  expect(chat.bodies[0].text).toContain("2 alerts");
  expect(chat.bodies[0].text).toContain("$0.25");
});

test("a channel whose receiver fails is tried six times, then disabled with its error", async () => {
  const { organizationId, managementKey, chat, id, read } = await withChannel();
  chat.answer = () => 500;
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.5)]);
  const failed = await until("it is disabled", async () => {
    const body = await read();
    return !body.enabled && body;
  });
  expect(failed).toMatchObject({
    disabled_by: "failures",
    last_error: "the receiver answered 500",
  });
  expect(chat.bodies.length).toBe(6);
  chat.answer = () => 200;
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.25)]);
  await manage(gateway, "PATCH", `alert_channels/${id}`, { enabled: true }, managementKey);
  await until("the alert that waited arrives", () => chat.bodies.length === 7);
  expect(chat.bodies[6].text).toContain("$0.50");
  expect(await read()).toMatchObject({ enabled: true, disabled_by: null });
});

test("a webhook that the service has deleted is disabled after one attempt", async () => {
  const { organizationId, chat, read } = await withChannel({ type: "discord" });
  chat.answer = () => 404;
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.5)]);
  await until("it is disabled", async () => !(await read()).enabled);
  expect(chat.bodies.length).toBe(1);
});

test("an alert that arrives during an attempt is sent after it, in order", async () => {
  const { organizationId, chat } = await withChannel();
  const { promise, resolve } = Promise.withResolvers<number>();
  chat.answer = () => promise;
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.5)]);
  await until("the attempt runs", () => chat.bodies.length === 1);
  await emitAlerts(gateway, organizationId, "credits.low", [low(0.25)]);
  resolve(200);
  await until("the second message", () => chat.bodies.length === 2);
  expect(chat.bodies.map(({ text }) => /\$0\.\d+/.exec(text)![0])).toEqual(["$0.50", "$0.25"]);
});

test("a test is sent immediately, also to a disabled channel, and once in ten seconds", async () => {
  const { managementKey, chat, id } = await withChannel({ enabled: false, type: "teams" });
  const path = `alert_channels/${id}/test`;
  const tested = await manage(gateway, "POST", path, undefined, managementKey);
  expect(tested.body).toMatchObject({ delivered: true, status_code: 200, error: null });
  expect(JSON.stringify(chat.bodies[0])).toContain("This is a test");
  const again = await manage(gateway, "POST", path, undefined, managementKey);
  expect(again).toMatchObject({ status: 429, body: { error: { code: "rate_limit_exceeded" } } });
});

test("bad settings are 400 with their field, and a private address is one of them", async () => {
  const good = { name: "A", type: "slack", url: "https://hooks.slack.com/x", alerts: ["budgets"] };
  const post = (change: object) =>
    manage(gateway, "POST", "alert_channels", { ...good, ...change });
  const faults: [string, object][] = [
    ["url", { url: "https://10.0.0.1/x" }],
    ["url", { url: "https://169.254.169.254/latest" }],
    ["url", { url: "not a url" }],
    ["url", { url: "https://user:password@example.com/" }],
    ["name", { name: "" }],
    ["name", { name: "a\nb" }],
    ["type", { type: "email" }],
    ["alerts", { alerts: [] }],
    ["alerts.0", { alerts: ["everything"] }],
  ];
  for (const [param, change] of faults) {
    const { status, body } = await post(change);
    expect({ status, param: body.error?.param }).toEqual({ status: 400, param });
  }
});

test("an organization has at most 100 channels", async () => {
  const { managementKey } = await gateway.addOrganization();
  const body = { name: "A", type: "slack", url: "https://hooks.slack.com/x", alerts: ["budgets"] };
  const statuses = await Promise.all(
    Array.from(
      { length: 103 },
      async () => (await manage(gateway, "POST", "alert_channels", body, managementKey)).status,
    ),
  );
  expect(statuses.filter((status) => status === 201).length).toBe(100);
  expect(statuses.filter((status) => status === 403).length).toBe(3);
});

test("a failing webhook that is disabled becomes an alert that names its host only", async () => {
  const { organizationId, managementKey, chat } = await withChannel({ alerts: ["webhooks"] });
  const url = "https://receiver.invalid/a-path?token=hidden";
  const hook = await manage(
    gateway,
    "POST",
    "webhooks",
    { url, events: ["key.created"] },
    managementKey,
  );
  await manage(gateway, "POST", "keys", { name: "A", scopes: ["models:read"] }, managementKey);
  await until("the alert", () => chat.bodies.length === 1);
  const text = JSON.stringify(chat.bodies);
  expect(text).toContain(`receiver.invalid (${hook.body.id})`);
  expect(text).not.toContain("hidden");
  expect(text).not.toContain("a-path");
  expect(organizationId).not.toBe("");
});
