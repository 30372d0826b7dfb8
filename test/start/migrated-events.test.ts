import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { openTestDatabase } from "../support/database.ts";
import { numberAll } from "../webhooks/many-hooks.ts";

const MIGRATIONS = join(import.meta.dir, "../../db/migrations");
const NUMBERING = "0013_event-numbering.sql";

/** As the migrator does it: everything in one transaction. */
function apply(sql: Database, files: readonly string[]) {
  return sql.begin(async (transaction) => {
    for (const file of files) {
      const text = readFileSync(join(MIGRATIONS, file), "utf8");
      for (const statement of text.split("--> statement-breakpoint")) {
        await transaction.unsafe(statement);
      }
    }
  });
}

const emit = (sql: Database, numbers: readonly number[], type = "key.updated") =>
  sql`INSERT INTO outbox (event_id, organization_id, type, data)
    SELECT 'evt_' || n, 'org_1', ${type}, '{}' FROM unnest(${sql.array([...numbers])}::int[]) AS n`;

test("events that the version before has not numbered are numbered once, behind those that it has", async () => {
  const { url, sql: admin, drop } = await openTestDatabase(1);
  const name = `before_${crypto.randomUUID().replaceAll("-", "")}`;
  await admin.unsafe(`CREATE DATABASE ${name} TEMPLATE template0`);
  const target = new URL(url);
  target.pathname = `/${name}`;
  const sql = connectDatabase({ url: target.href }, { poolSize: 2, applicationName: "test" });
  try {
    const files = readdirSync(MIGRATIONS)
      .filter((file) => file.endsWith(".sql"))
      .sort();
    await apply(sql, files.slice(0, files.indexOf(NUMBERING)));
    await sql`INSERT INTO organizations (id, name, plan) VALUES ('org_1', 'One', 'free')`;
    await emit(sql, [1]);
    await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
      VALUES ('whk_all', 'org_1', 'https://example.com', '{*}', true, '', now()),
        ('whk_narrow', 'org_1', 'https://example.com', '{cache.purged}', true, '', now())`;
    await sql`INSERT INTO webhook_queues (webhook_id) VALUES ('whk_all'), ('whk_narrow')`;
    await emit(sql, [2, 3]);
    await sql`SELECT number_deliveries('{whk_all}', '{key.updated,cache.purged}', 100)`;
    // One that was being written when the others were numbered, and two that came after.
    await emit(sql, [4]);
    await emit(sql, [5], "cache.purged");

    await apply(sql, files.slice(files.indexOf(NUMBERING)));
    const unnumbered = await sql`SELECT outbox_id::int AS id FROM unnumbered_events ORDER BY 1`;
    expect(unnumbered.map(({ id }) => id)).toEqual([4, 5]);
    // The instances of the version before go on, and make webhooks as they do.
    await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
      VALUES ('whk_new', 'org_1', 'https://example.com', '{*}', true, '', now())`;
    await sql`INSERT INTO webhook_queues (webhook_id) VALUES ('whk_new')`;
    await emit(sql, [6]);
    await numberAll(sql, 2);
    const rows = await sql<{ webhook_id: string; sequence: number; event_id: string }[]>`
      SELECT webhook_id, sequence::int AS sequence, event_id FROM deliveries ORDER BY webhook_id, sequence`;
    const eventsOf = (id: string) =>
      rows.filter((row) => row.webhook_id === id).map((row) => row.event_id);
    expect(eventsOf("whk_all")).toEqual(["evt_2", "evt_3", "evt_4", "evt_5", "evt_6"]);
    expect(eventsOf("whk_narrow")).toEqual(["evt_5"]);
    expect(eventsOf("whk_new")).toEqual(["evt_6"]);
    const [queue] =
      await sql`SELECT organization_id FROM webhook_queues WHERE webhook_id = 'whk_new'`;
    expect(queue!.organization_id).toBe("org_1");
    const plain =
      await sql`SELECT id, plain_delivery_ids_up_to::int AS last FROM webhooks ORDER BY id`;
    expect(plain.map(({ last }) => last)).toEqual([5, 5, 0]);
  } finally {
    await sql.end({ timeout: 1 });
    await admin.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
    await drop();
  }
}, 60_000);
