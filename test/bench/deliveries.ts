/*
 * How fast webhooks are delivered: one instance, 50 receivers in this process, a real Postgres.
 *
 *   bun test/bench/deliveries.ts            rate without faults, and waits with and without a dead receiver
 *   bun test/bench/deliveries.ts --idle     what 10,000 webhooks with nothing to do cost
 */
import "../support/preload.ts";
import { connectDatabase, type Database } from "../../db/client.ts";
import { createTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { addHook, addOrganization, emit } from "../webhooks/many-hooks.ts";
import { type OwnerProcess, startOwner } from "../webhooks/owner-process.ts";
import { startReceiver } from "../webhooks/receiver.ts";

const RECEIVERS = 50;
const ORGANIZATIONS = 5;
const RATE_DELIVERIES = 60_000;
const WAIT_SECONDS = 10;
const ATTEMPT_TIMEOUT_MS = 10_000;
const IDLE_WEBHOOKS = 10_000;
const IDLE_EVENTS = 1_000_000;
const IDLE_SECONDS = 10;
const SECRET = "0123456789abcdef";

interface Run {
  readonly sql: Database;
  readonly organizations: readonly string[];
  readonly owner: OwnerProcess;
  /** Milliseconds from the emission of each event to its receipt at a live receiver, in order. */
  readonly waitsMs: number[];
  stop(): Promise<void>;
}

async function begin(options: { readonly deadReceivers: number }): Promise<Run> {
  const database = await createTestDatabase();
  const sql = connectDatabase(database, { poolSize: ORGANIZATIONS, applicationName: "bench" });
  const waitsMs: number[] = [];
  const receivers = Array.from({ length: RECEIVERS }, (_, i) =>
    startReceiver(
      i < options.deadReceivers
        ? () => new Promise<Response>(() => {})
        : ({ event }) => {
            waitsMs.push(Date.now() - Number(event.data.at));
            return new Response();
          },
    ),
  );
  const organizations: string[] = [];
  for (let i = 0; i < ORGANIZATIONS; i++) organizations.push(await addOrganization(sql));
  for (const [i, { url }] of receivers.entries()) {
    await addHook(sql, organizations[i % ORGANIZATIONS]!, url, SECRET);
  }
  const owner = await startOwner(database.url, ATTEMPT_TIMEOUT_MS);
  return {
    sql,
    organizations,
    owner,
    waitsMs,
    async stop() {
      await owner.stop();
      await Promise.all(receivers.map((receiver) => receiver.stop()));
      await sql.end({ timeout: 1 });
      await database.drop();
    },
  };
}

async function measureRate(): Promise<void> {
  const run = await begin({ deadReceivers: 0 });
  const events = RATE_DELIVERIES / RECEIVERS;
  const numbers = Array.from({ length: events }, (_, number) => number);
  const cpuMs = await run.owner.cpuMs();
  const beganMs = performance.now();
  for (const organization of run.organizations) await emit(run.sql, organization, numbers);
  const emittedMs = performance.now();
  await until("all are received", () => run.waitsMs.length >= RATE_DELIVERIES, 120_000);
  const tookMs = performance.now() - beganMs;
  const ownMs = (await run.owner.cpuMs()) - cpuMs;
  console.log(
    `${RATE_DELIVERIES} deliveries to ${RECEIVERS} receivers: ${Math.round((RATE_DELIVERIES / tookMs) * 1_000)} a second (emitted within ${Math.round(emittedMs - beganMs)} ms), ${Math.round((ownMs / RATE_DELIVERIES) * 1_000)} µs of CPU of the instance each`,
  );
  await run.stop();
}

/** Events at a steady rate, far below what is possible. */
async function measureWaits(deadReceivers: number): Promise<void> {
  const run = await begin({ deadReceivers });
  const untilMs = performance.now() + WAIT_SECONDS * 1_000;
  for (let number = 0; performance.now() < untilMs; number++) {
    await emit(run.sql, run.organizations[number % ORGANIZATIONS]!, [number]);
    await Bun.sleep(10);
  }
  await Bun.sleep(1_500);
  const waits = [...run.waitsMs].sort((one, other) => one - other);
  const at = (share: number) => waits[Math.floor((waits.length - 1) * share)];
  console.log(
    `${deadReceivers} dead receivers: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, max ${waits.at(-1)} ms over ${waits.length} deliveries to the others`,
  );
  await run.stop();
}

async function measureIdle(): Promise<void> {
  const run = await begin({ deadReceivers: 0 });
  const { sql } = run;
  await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
    SELECT 'whk_' || i, ${run.organizations[0]!}, 'https://example.com/', '{cache.purged}', true, '', now()
    FROM generate_series(1, ${IDLE_WEBHOOKS}) AS i`;
  await sql`INSERT INTO webhook_queues (webhook_id) SELECT 'whk_' || i FROM generate_series(1, ${IDLE_WEBHOOKS}) AS i`;
  // Old events of another organization, which the queries must not scan.
  await sql`INSERT INTO outbox (event_id, organization_id, type, data)
    SELECT 'evt_' || i, 'org_' || i % 100, 'completion.success', '{}' FROM generate_series(1, ${IDLE_EVENTS}) AS i`;
  await sql`ANALYZE`;
  const idle = async (name: string) => {
    await Bun.sleep(2_000);
    const before = await databaseMs(sql);
    const cpuMs = await run.owner.cpuMs();
    await Bun.sleep(IDLE_SECONDS * 1_000);
    const ownMs = (await run.owner.cpuMs()) - cpuMs;
    const statements = (await databaseMs(sql)) - before;
    console.log(
      `${name}: ${(ownMs / IDLE_SECONDS).toFixed(1)} ms of CPU a second in the instance, ${statements / IDLE_SECONDS} transactions a second in the database`,
    );
  };
  await idle(`${IDLE_WEBHOOKS} idle webhooks, ${IDLE_EVENTS} old events`);
  await run.stop();
}

async function databaseMs(sql: Database): Promise<number> {
  const [row] = await sql<{ count: bigint }[]>`
    SELECT xact_commit AS count FROM pg_stat_database WHERE datname = current_database()`;
  return Number(row!.count);
}

if (process.argv.includes("--idle")) await measureIdle();
else {
  await measureRate();
  await measureWaits(0);
  await measureWaits(1);
}
process.exit(0);
