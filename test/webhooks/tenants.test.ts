import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { addHook, addOrganization, emit } from "./many-hooks.ts";
import { type OwnerProcess, startOwner } from "./owner-process.ts";
import { startReceiver } from "./receiver.ts";

/** GATEWAY_TEST_QUEUED_DELIVERIES=300000 is the full size. */
const QUEUED = Number(process.env.GATEWAY_TEST_QUEUED_DELIVERIES ?? 10_000);
const IS_FULL = QUEUED >= 300_000;
const ATTEMPT_TIMEOUT_MS = 10_000;
const MAX_WAIT_MS = 2_000;
/** How long events of the other organization are emitted, and how often. */
const WATCH_MS = IS_FULL ? 30_000 : 5_000;
const EMIT_EVERY_MS = 100;

interface Flood {
  readonly organizations: number;
  readonly hooksOfEach: number;
  readonly eventsOfEach: number;
}

let database: OpenTestDatabase;
let sql: Database;
let owner: OwnerProcess;
beforeEach(async () => {
  database = await openTestDatabase(4);
  ({ sql } = database);
  owner = await startOwner(database.url, ATTEMPT_TIMEOUT_MS);
});
afterEach(async () => {
  await owner.stop();
  await database.drop();
});

/** Webhooks and events by SQL: they come into sight in one moment. */
async function flood({ organizations, hooksOfEach, eventsOfEach }: Flood, url: string) {
  for (let i = 0; i < organizations; i++) {
    const organizationId = await addOrganization(sql);
    const hook = await addHook(sql, organizationId, url);
    await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
      SELECT id || '_' || n, organization_id, url, events, enabled, secret, created_at
      FROM webhooks, generate_series(2, ${hooksOfEach}) AS n WHERE id = ${hook}`;
    await sql`INSERT INTO webhook_queues (webhook_id)
      SELECT ${hook} || '_' || n FROM generate_series(2, ${hooksOfEach}) AS n`;
  }
  await sql`INSERT INTO outbox (event_id, organization_id, type, data)
    SELECT 'evt_' || o.id || n, o.id, 'key.updated', '{"number": 0}'
    FROM organizations o, generate_series(1, ${eventsOfEach}) AS n`;
}

const FLOODS: Readonly<Record<string, Flood>> = {
  "of one organization with 100 webhooks": {
    organizations: 1,
    hooksOfEach: 100,
    eventsOfEach: QUEUED / 100,
  },
  "of one organization with thousands of webhooks": {
    organizations: 1,
    hooksOfEach: QUEUED / 100,
    eventsOfEach: 100,
  },
  "of hundreds of organizations": {
    organizations: QUEUED / 1_000,
    hooksOfEach: 10,
    eventsOfEach: 100,
  },
};

for (const [name, size] of Object.entries(FLOODS)) {
  test(`another organization's event arrives within 2 s while ${QUEUED} deliveries ${name} wait`, async () => {
    const silent = startReceiver(() => new Promise<Response>(() => {}));
    const waitsMs: number[] = [];
    const numbers: number[] = [];
    const receiver = startReceiver(({ event }) => {
      waitsMs.push(Date.now() - Number(event.data.at));
      numbers.push(Number(event.data.number));
      return new Response();
    });
    try {
      await flood(size, silent.url);
      const beganMs = performance.now();
      const other = await addOrganization(sql);
      await addHook(sql, other, receiver.url);
      let emitted = 0;
      for (; performance.now() - beganMs < WATCH_MS; emitted++) {
        await emit(sql, other, [emitted]);
        await Bun.sleep(EMIT_EVERY_MS);
      }
      await until("all have arrived", () => numbers.length >= emitted, 300_000);
      expect(numbers).toEqual(Array.from({ length: emitted }, (_, number) => number));
      const [queued] = await sql`SELECT count(*)::int AS count FROM deliveries`;
      const sorted = waitsMs.toSorted((one, another) => one - another);
      console.log(
        `${name}: ${emitted} events, p50 ${sorted[emitted >> 1]} ms, max ${sorted.at(-1)} ms, ${queued!.count} deliveries in the table`,
      );
      expect(sorted.at(-1)).toBeLessThan(MAX_WAIT_MS);
      await until(
        "everything has a number",
        async () => {
          const [row] = await sql`SELECT count(*)::int AS count FROM deliveries`;
          return row!.count >= QUEUED + emitted;
        },
        240_000,
      );
    } finally {
      await receiver.stop();
      await silent.stop();
    }
  }, 600_000);
}
