import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { LeaseLostError, type Ownership } from "../../actors/runtime/ownership.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import { webhookActor } from "../../actors/webhook/actor.ts";
import { connectDatabase, type Database, LEDGER_SETTINGS } from "../../db/client.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import { deliveryEffect } from "../../db/queries/deliveries.ts";
import { systemClock } from "../../src/lib/clock.ts";
import type { AttemptRecord } from "../../src/lib/webhook-record.ts";
import { DeliveryWriter } from "../../src/webhooks/delivery-writer.ts";
import { SendSlots } from "../../src/webhooks/send-slots.ts";
import { WebhookDispatcher } from "../../src/webhooks/webhook-dispatcher.ts";
import { WebhookSecrets } from "../../src/webhooks/webhook-secrets.ts";
import { addOwner, age, type TestOwner } from "../ownership/instances.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { testKeyring } from "../support/master-key.ts";
import { openSemaphore } from "../support/open-semaphore.ts";
import { until } from "../support/until.ts";
import { addHook, addOrganization, emit, numberAll } from "./many-hooks.ts";

let database: OpenTestDatabase;
let sql: Database;
let deliveriesSql: Database;
beforeAll(async () => {
  database = await openTestDatabase(6);
  ({ sql } = database);
  deliveriesSql = connectDatabase(database, {
    poolSize: 1,
    applicationName: "test-deliveries",
    settings: LEDGER_SETTINGS,
  });
});
afterAll(async () => {
  await deliveriesSql.end({ timeout: 1 });
  await database.drop();
});

const PAST_LEASE_MS = 60_000;
const accepted: AttemptRecord = {
  at: "2026-01-01T00:00:00.000Z",
  status_code: 200,
  error: null,
  latency_ms: 1,
};

interface Instance {
  readonly owner: TestOwner;
  readonly deliveries: WebhookDispatcher;
  readonly sent: number[];
  readonly errors: unknown[];
  /** Claims and begins, as a sweep does. */
  takeOver(hook: string): Promise<Lease | undefined>;
}

/** One instance's deliveries, whose requests are answered by `answer`. */
async function addInstance(
  answer: (number: number) => AttemptRecord | Promise<AttemptRecord>,
  read: <Result>(run: () => Promise<Result>) => Promise<Result> = (run) => run(),
): Promise<Instance> {
  const owner = await addOwner(sql);
  const ownership: Ownership = owner.ownership;
  const sent: number[] = [];
  const errors: unknown[] = [];
  const writer = new DeliveryWriter({
    sql: deliveriesSql,
    instance: owner.instance,
    onLost: (lease) => ownership.noteLost(lease),
  });
  const deliveries: WebhookDispatcher = new WebhookDispatcher({
    sql,
    instance: owner.instance,
    actors: new ActorRegistry(webhookActor([10]), {
      clock: systemClock,
      context: turnContextOf(systemClock, Math.random),
      commit: (effects) => writer.submit(effects),
      read: (query) => read(() => query.run(sql)),
    }),
    ownership,
    loads: openSemaphore(4, 2),
    slots: new SendSlots(10, systemClock),
    secrets: new WebhookSecrets(await testKeyring(sql)),
    sendEvent: (_, event) => {
      const { number } = event.data as { number: number };
      sent.push(number);
      return Promise.resolve(answer(number));
    },
    clock: systemClock,
    unowned: { register() {}, sweep: async () => {} },
    wakes: undefined,
    onError: (error) => void errors.push(error),
  });
  return {
    owner,
    deliveries,
    sent,
    errors,
    async takeOver(hook) {
      const [lease] = await ownership.claim("webhook", [hook]);
      if (lease !== undefined) deliveries.start(lease);
      return lease;
    },
  };
}

const hookWith = async (numbers: readonly number[]): Promise<string> => {
  const organizationId = await addOrganization(sql);
  const hook = await addHook(sql, organizationId);
  await emit(sql, organizationId, numbers);
  await numberAll(sql);
  return hook;
};

async function statusesOf(hook: string): Promise<string[]> {
  const rows = await sql<{ status: string }[]>`
    SELECT status FROM deliveries WHERE webhook_id = ${hook} ORDER BY sequence`;
  return rows.map(({ status }) => status);
}

const untilDelivered = (hook: string, count: number) =>
  until("all are delivered", async () => {
    const statuses = await statusesOf(hook);
    return statuses.length === count && statuses.every((status) => status === "delivered");
  });

/** An instance that found itself past its lease when it had sent the first of three. */
async function stoppedPastItsLease(): Promise<{ instance: Instance; hook: string }> {
  const instance: Instance = await addInstance(() => {
    instance.owner.withinLease = false;
    return accepted;
  });
  const hook = await hookWith([1, 2, 3]);
  await instance.takeOver(hook);
  await until("it has stopped", () => instance.deliveries.size === 0);
  return { instance, hook };
}

describe("an owner whose lease has passed on", () => {
  test("writes nothing of what it sent, and sends nothing more", async () => {
    const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
    const first = await addInstance(async () => {
      await mayAnswer;
      return { ...accepted, status_code: 410, error: "gone" };
    });
    const hook = await hookWith([1, 2, 3]);
    await first.takeOver(hook);
    await until("the first one is under way", () => first.sent.length === 1);
    await age(sql, first.owner, PAST_LEASE_MS);
    const { promise: mayAccept, resolve: accept } = Promise.withResolvers<AttemptRecord>();
    const second = await addInstance(() => mayAccept);
    const lease = await second.takeOver(hook);
    expect(lease?.epoch).toBe(2n);
    await until("the new owner has sent", () => second.sent.length === 1);
    answer();
    await until("the old one has heard of its loss", () => first.deliveries.size === 0);
    expect(first.sent).toEqual([1]);
    expect(first.owner.lost).toEqual([`webhook ${hook} 1`]);
    const [delivery] = await sql`SELECT status, attempt_count FROM deliveries
      WHERE webhook_id = ${hook} AND sequence = 1`;
    expect({ ...delivery }).toEqual({ status: "pending", attempt_count: 0 });
    accept(accepted);
    await untilDelivered(hook, 3);
    expect(second.sent).toEqual([1, 2, 3]);
    expect(first.errors).toEqual([]);
  });

  test("stops where its own clock says that it may have passed on, without asking anybody", async () => {
    const { instance } = await stoppedPastItsLease();
    expect(instance.sent).toEqual([1]);
  });

  test("gives it back where its lease goes on, so that somebody acts for the webhook again", async () => {
    const { instance, hook } = await stoppedPastItsLease();
    instance.owner.withinLease = true;
    const heir = await addInstance(() => accepted);
    heir.owner.judges = false;
    await until("the webhook is free", async () => (await heir.takeOver(hook)) !== undefined);
    await untilDelivered(hook, 3);
    expect(heir.sent).toEqual([2, 3]);
  });
});

test("a new owner begins with what was not durable, and goes on in order", async () => {
  const { promise: never } = Promise.withResolvers<AttemptRecord>();
  const dead = await addInstance((number) => (number < 3 ? accepted : never));
  const hook = await hookWith([1, 2, 3, 4, 5]);
  await dead.takeOver(hook);
  await until("the third one is under way", () => dead.sent.length === 3);
  await until(
    "two are written",
    async () => (await statusesOf(hook)).filter((status) => status === "delivered").length === 2,
  );
  await age(sql, dead.owner, PAST_LEASE_MS);
  const heir = await addInstance(() => accepted);
  await heir.takeOver(hook);
  await untilDelivered(hook, 5);
  expect(heir.sent).toEqual([3, 4, 5]);
});

test("an owner that could not read goes on where it was, once it takes the webhook up again", async () => {
  let isBroken = false;
  let calls = 0;
  const instance: Instance = await addInstance(
    () => {
      if (calls++ === 0) {
        // With an attempt under way it is told of a change, and cannot read what it is.
        isBroken = true;
        instance.deliveries.changed(hook);
      }
      return accepted;
    },
    (run) => (isBroken ? Promise.reject(new Error("out of reach")) : run()),
  );
  const hook = await hookWith([1, 2, 3]);
  await instance.takeOver(hook);
  await until("it has given up", () => instance.deliveries.size === 0);
  expect(instance.errors).toHaveLength(1);
  isBroken = false;
  await until("the webhook is free", async () => (await instance.takeOver(hook)) !== undefined);
  await untilDelivered(hook, 3);
  expect(instance.sent).toEqual([1, 1, 2, 3]);
});

test("a refusal of the guard is told as a lost lease, for that webhook alone", async () => {
  const { owner } = await addInstance(() => accepted);
  const [mine, foreign] = [await hookWith([1]), await hookWith([1])];
  const [lease] = await owner.ownership.claim("webhook", [mine]);
  const lost: Lease[] = [];
  const writer = new DeliveryWriter({
    sql: deliveriesSql,
    instance: owner.instance,
    onLost: (one) => void lost.push(one),
  });
  const change = (one: Lease) =>
    deliveryEffect({
      kind: "attempt",
      lease: one,
      organizationId: "org",
      outboxId: first!.outbox_id,
      attemptCount: 0,
      status: "delivered",
      attempt: accepted,
      delayMs: null,
      disablesVersion: undefined,
    });
  const stale = { kind: "webhook", id: foreign, epoch: 1n };
  const [first] = await sql`SELECT outbox_id FROM deliveries WHERE webhook_id = ${mine}`;
  const written = writer.submit([change(lease!)]);
  const refused = writer.submit([change(stale)]).catch((error: unknown) => error);
  await written;
  expect(await refused).toBeInstanceOf(LeaseLostError);
  expect(lost).toEqual([stale]);
  expect([await statusesOf(mine), await statusesOf(foreign)]).toEqual([["delivered"], ["pending"]]);
});
