import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import { type DeliveryChange, deliveryEffect } from "../../db/queries/delivery-commit.ts";
import { DeliveryWriter } from "../../src/services/webhooks/delivery-writer.ts";
import { addOwner, type TestOwner } from "../ownership/instances.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { refuseRows } from "../support/unwilling-table.ts";
import { addHook, addOrganization, emit } from "./many-hooks.ts";

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
    onNumbered() {},
    onLost() {},
  });

async function ownedHook(events: readonly number[]): Promise<Lease> {
  const organizationId = await addOrganization(sql);
  const id = await addHook(sql, organizationId);
  await emit(sql, organizationId, events);
  const [lease] = await owner.ownership.claim("webhook", [id]);
  return lease!;
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
    await writer.submit([deliveryEffect({ kind: "number", lease })]);
    const [first, second] = await rowsOf(lease);
    expect([first!.sequence, second!.sequence]).toEqual([1, 2]);
    const failed: DeliveryChange = {
      kind: "attempt",
      lease,
      outboxId: first!.outbox_id,
      attemptCount: 0,
      status: "pending",
      attempt: { at: "2026-01-01T00:00:00.000Z", status_code: 500, error: "failed", latency_ms: 1 },
      delayMs: 60_000,
      disablesVersion: undefined,
    };
    proxy.arm(trouble, "commit_deliveries");
    await writer.submit([deliveryEffect(failed)]);
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
  const deliveries = await refuseRows(sql, "deliveries", "53100");
  const written = writer.submit([deliveryEffect({ kind: "number", lease })]);
  await until("it is refused", async () => (await deliveries.refusals()) > 0);
  await deliveries.relent();
  await written;
  expect(await rowsOf(lease)).toHaveLength(1);
});

test("one change that cannot be written takes none of the others with it", async () => {
  const writer = newWriter();
  const [good, bad] = [await ownedHook([1]), await ownedHook([1])];
  const broken = {
    kind: "attempt",
    lease: bad,
    outboxId: "no number",
  } as unknown as DeliveryChange;
  const written = writer.submit([deliveryEffect({ kind: "number", lease: good })]);
  const refused = writer.submit([deliveryEffect(broken)]).catch((error: unknown) => error);
  await written;
  expect(await refused).toBeInstanceOf(Error);
  expect(await rowsOf(good)).toHaveLength(1);
});

test("a writer that is closed writes what it was given, and nothing after that", async () => {
  const writer = newWriter();
  const lease = await ownedHook([1, 2, 3]);
  const written = writer.submit([deliveryEffect({ kind: "number", lease })]);
  await writer.close(5_000);
  await written;
  expect(await rowsOf(lease)).toHaveLength(3);
  await expect(writer.submit([deliveryEffect({ kind: "rest", lease })])).rejects.toThrow();
});
