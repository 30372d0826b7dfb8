import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { connectDatabase, type Database, LEDGER_SETTINGS } from "../../db/client.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import { commitDeliveries, type DeliveryChange } from "../../db/queries/deliveries.ts";
import { sequenceEvents } from "../../db/queries/outbox.ts";
import { loadWebhook } from "../../db/queries/webhooks.ts";
import { WEBHOOK_SETTINGS } from "../../src/main/compose/base.ts";
import { addOwner, type TestOwner } from "../ownership/instances.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { countRowsRead } from "../support/rows-read.ts";
import { addHook, addOrganization, emit } from "./many-hooks.ts";

const STORM_EVENTS = 2_000;
const STORM_HOOKS = 10;
const TURN_ROWS = 512;
const LOADED = 20;
/** Rows of tables and entries of indexes that one row of a batch may cost. */
const MOST_READ_A_ROW = 40;

let database: OpenTestDatabase;
/** Sessions that live as long as an instance: plans that were made in the quiet are kept in the storm. */
let numbering: Database;
let delivering: Database;
let reading: Database;
let owner: TestOwner;
beforeEach(async () => {
  database = await openTestDatabase(2);
  const session = (settings: Record<string, string>): Database =>
    connectDatabase(database, { poolSize: 1, applicationName: "session", settings });
  numbering = session(WEBHOOK_SETTINGS);
  reading = session(WEBHOOK_SETTINGS);
  delivering = session({ ...LEDGER_SETTINGS, ...WEBHOOK_SETTINGS });
  owner = await addOwner(database.sql);
  // The storm is quicker than autovacuum.
  for (const table of ["outbox", "unnumbered_events", "deliveries", "webhook_queues", "webhooks"])
    await database.sql`ALTER TABLE ${database.sql(table)} SET (autovacuum_enabled = false)`;
});
afterEach(async () => {
  await Promise.all([numbering, delivering, reading].map((sql) => sql.end({ timeout: 1 })));
  await database.drop();
});

/** The first pending delivery of each of these webhooks, delivered. */
async function successes(leases: readonly Lease[]): Promise<DeliveryChange[]> {
  const changes: DeliveryChange[] = [];
  for (const lease of leases) {
    const { pending } = await loadWebhook(lease.id, 1).run(reading);
    for (const { outboxId, attemptCount } of pending) {
      changes.push({
        kind: "attempt",
        lease,
        organizationId: "org",
        outboxId,
        attemptCount,
        status: "delivered",
        attempt: { at: "2026-01-01T00:00:00.000Z", status_code: 200, error: null, latency_ms: 1 },
        delayMs: null,
        disablesVersion: undefined,
      });
    }
    changes.push({ kind: "rest", lease, organizationId: "org" });
  }
  return changes;
}

const number = (sql: Database) =>
  sequenceEvents(sql, owner.instance, "", { maxOrganizations: 64, maxRows: TURN_ROWS });

/** Events one after the other, each numbered and delivered, then ANALYZE, three times: then all plans are made. */
async function spendQuietMinute(events: number): Promise<void> {
  const organizationId = await addOrganization(database.sql);
  const leases = await owner.ownership.claim("webhook", [
    await addHook(database.sql, organizationId),
  ]);
  const deliverOne = async () => {
    await emit(database.sql, organizationId, [1]);
    await number(numbering);
    await commitDeliveries(delivering, owner.instance, await successes(leases));
  };
  for (let round = 0; round < 3; round++) {
    for (let event = 0; event < events; event++) await deliverOne();
    await database.sql`ANALYZE`;
  }
  await deliverOne();
}

/** Returns the webhooks of an organization that emits all of its events in one moment. */
async function beginStorm(): Promise<string[]> {
  const organizationId = await addOrganization(database.sql);
  const hooks: string[] = [];
  for (let hook = 0; hook < STORM_HOOKS; hook++)
    hooks.push(await addHook(database.sql, organizationId));
  await emit(
    database.sql,
    organizationId,
    Array.from({ length: STORM_EVENTS }, (_, event) => event),
  );
  return hooks;
}

async function numberAll(): Promise<void> {
  while ((await number(numbering)).isMore);
}

for (const events of [1, 20]) {
  describe(`in a storm after a quiet minute whose ANALYZE saw ${events} events a time`, () => {
    let hooks: string[];
    beforeEach(async () => {
      await spendQuietMinute(events);
      hooks = await beginStorm();
    });

    test("a turn of numbering reads no more than the rows that it numbers", async () => {
      let isMore = true;
      while (isMore) {
        const { result, rowsRead } = await countRowsRead(numbering, number);
        expect(rowsRead).toBeLessThan(TURN_ROWS * MOST_READ_A_ROW);
        ({ isMore } = result);
      }
      const [row] = await database.sql`SELECT count(*)::int AS count FROM deliveries
        WHERE webhook_id IN ${database.sql(hooks)}`;
      expect(row!.count).toBe(STORM_EVENTS * STORM_HOOKS);
    }, 60_000);

    test("an owner that loads a webhook reads no more than the deliveries that it loads", async () => {
      await numberAll();
      const { result, rowsRead } = await countRowsRead(reading, (sql) =>
        loadWebhook(hooks[0]!, LOADED).run(sql),
      );
      expect(result.pending).toHaveLength(LOADED);
      expect(rowsRead).toBeLessThan(LOADED * MOST_READ_A_ROW);
    }, 60_000);

    test("a commit of deliveries reads no more than the rows that it writes", async () => {
      await numberAll();
      const batch = await successes(await owner.ownership.claim("webhook", hooks));
      const { rowsRead } = await countRowsRead(delivering, (sql) =>
        commitDeliveries(sql, owner.instance, batch),
      );
      expect(rowsRead).toBeLessThan(batch.length * MOST_READ_A_ROW);
      const [row] = await database.sql`SELECT count(*)::int AS count FROM deliveries
        WHERE webhook_id IN ${database.sql(hooks)} AND status = 'delivered'`;
      expect(row!.count).toBe(STORM_HOOKS);
    }, 60_000);
  });
}
