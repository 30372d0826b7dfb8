import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import { type DeliveryChange, deliveryEffect } from "../../db/queries/deliveries.ts";
import { DeliveryWriter } from "../../src/webhooks/delivery-writer.ts";
import { addOwner, type TestOwner } from "../ownership/instances.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { refuseRows } from "../support/unwilling-table.ts";
import { addHook, addOrganization, emit, numberAll } from "./many-hooks.ts";

let database: OpenTestDatabase;
let proxy: CuttingProxy;
let sql: Database;
let unreliable: Database;
let owner: TestOwner;
beforeAll(async () => {
  database = await openTestDatabase(2);
  proxy = await startCuttingProxy(database.url);
  ({ sql } = database);
  unreliable = connectDatabase({ url: proxy.url }, { poolSize: 1, applicationName: "writer" });
  owner = await addOwner(sql);
});
afterAll(async () => {
  await unreliable.end({ timeout: 1 });
  await proxy.stop();
  await database.drop();
});

const newWriter = () =>
  new DeliveryWriter({
    sql: unreliable,
    instance: owner.instance,
    onLost() {},
  });

async function ownedHook(events: readonly number[]): Promise<Lease> {
  const organizationId = await addOrganization(sql);
  const id = await addHook(sql, organizationId);
  await emit(sql, organizationId, events);
  await numberAll(sql);
  const [lease] = await owner.ownership.claim("webhook", [id]);
  return lease!;
}

/** A first attempt at a webhook's first delivery that is to be made again. */
async function failedAttempt(lease: Lease): Promise<DeliveryChange> {
  const [first] = await rowsOf(lease);
  return {
    kind: "attempt",
    lease,
    organizationId: "org",
    outboxId: first!.outbox_id,
    attemptCount: 0,
    status: "pending",
    attempt: { at: "2026-01-01T00:00:00.000Z", status_code: 500, error: "failed", latency_ms: 1 },
    delayMs: 60_000,
    disablesVersion: undefined,
  };
}

const rowsOf = ({ id }: Lease) => sql`
  SELECT outbox_id, sequence::int AS sequence, status, attempt_count,
    jsonb_array_length(attempts) AS kept FROM deliveries WHERE webhook_id = ${id} ORDER BY sequence`;

for (const trouble of [
  "cut before it arrives",
  "lose its reply",
  "cut while it runs",
] as Trouble[]) {
  test(`a commit whose connection breaks (${trouble}) is written, once`, async () => {
    const writer = newWriter();
    const lease = await ownedHook([1, 2]);
    proxy.arm(trouble, "commit_deliveries");
    await writer.submit([deliveryEffect(await failedAttempt(lease))]);
    proxy.disarm();
    const [row, other] = await rowsOf(lease);
    expect({ ...row }).toMatchObject({ status: "pending", attempt_count: 1, kept: 1 });
    expect({ ...other }).toMatchObject({ status: "pending", attempt_count: 0, kept: 0 });
    const [queue] = await sql`SELECT due_at > clock_timestamp() + interval '50 seconds' AS is_later
      FROM webhook_queues WHERE webhook_id = ${lease.id}`;
    expect(queue!.is_later).toBeTrue();
  });
}

test("a change that the database refuses for the moment is written once it does not", async () => {
  const writer = newWriter();
  const lease = await ownedHook([1]);
  const change = await failedAttempt(lease);
  const deliveries = await refuseRows(sql, "deliveries", "53100");
  const written = writer.submit([deliveryEffect(change)]);
  await until("it is refused", async () => (await deliveries.refusals()) > 0);
  await deliveries.relent();
  await written;
  expect((await rowsOf(lease))[0]!.attempt_count).toBe(1);
});

test("one change that cannot be written takes none of the others with it", async () => {
  const writer = newWriter();
  const [good, bad] = [await ownedHook([1]), await ownedHook([1])];
  const change = await failedAttempt(good);
  const broken = {
    kind: "attempt",
    lease: bad,
    outboxId: "no number",
  } as unknown as DeliveryChange;
  const written = writer.submit([deliveryEffect(change)]);
  const refused = writer.submit([deliveryEffect(broken)]).catch((error: unknown) => error);
  await written;
  expect(await refused).toBeInstanceOf(Error);
  expect((await rowsOf(good))[0]!.attempt_count).toBe(1);
});

test("a writer that is closed writes what it was given, and nothing after that", async () => {
  const writer = newWriter();
  const lease = await ownedHook([1, 2, 3]);
  const written = writer.submit([deliveryEffect(await failedAttempt(lease))]);
  await writer.close(5_000);
  await written;
  expect((await rowsOf(lease)).map((row) => row.attempt_count)).toEqual([1, 0, 0]);
  const rest = { kind: "rest" as const, lease, organizationId: "org" };
  await expect(writer.submit([deliveryEffect(rest)])).rejects.toThrow();
});

test("a batch that takes too long is written in smaller ones", async () => {
  const limited = connectDatabase(database, {
    poolSize: 1,
    applicationName: "limited",
    settings: { statement_timeout: "400" },
  });
  // Each attempt that is written takes a tenth of a second.
  await sql`CREATE FUNCTION slow_delivery() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END'`;
  await sql`CREATE TRIGGER slow_delivery BEFORE UPDATE ON deliveries
    FOR EACH ROW EXECUTE FUNCTION slow_delivery()`;
  try {
    const writer = new DeliveryWriter({ sql: limited, instance: owner.instance, onLost() {} });
    const leases = await Promise.all(Array.from({ length: 12 }, () => ownedHook([1])));
    const changes = await Promise.all(leases.map(failedAttempt));
    await Promise.all(changes.map((change) => writer.submit([deliveryEffect(change)])));
    for (const lease of leases) expect((await rowsOf(lease))[0]!.attempt_count).toBe(1);
  } finally {
    await sql`DROP FUNCTION slow_delivery CASCADE`;
    await limited.end({ timeout: 1 });
  }
});
