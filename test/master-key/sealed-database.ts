import { afterEach, beforeEach } from "bun:test";
import { randomBytes } from "node:crypto";
import { connectDatabase, type Database } from "../../db/client.ts";
import { readSealedValues } from "../../db/queries/sealed-values.ts";
import { newId } from "../../src/lib/ids.ts";
import { seal, unseal } from "../../src/lib/keyring.ts";
import { createTestDatabase } from "../support/database.ts";
import { addOrganization } from "../webhooks/many-hooks.ts";

export const newKey = (): Buffer => randomBytes(32);
export const base64 = (key: Uint8Array): string => Buffer.from(key).toString("base64");

export interface SealedDatabase {
  readonly url: string;
  readonly sql: Database;
  drop(): Promise<void>;
}

/** Gives each test of a file a database of its own. */
export function beforeEachOnDatabase(
  prepare: (database: SealedDatabase) => void | Promise<void>,
): void {
  let database: SealedDatabase;
  beforeEach(async () => {
    database = await openSealedDatabase();
    await prepare(database);
  });
  afterEach(() => database.drop());
}

async function openSealedDatabase(): Promise<SealedDatabase> {
  const database = await createTestDatabase();
  const sql = connectDatabase(database, { poolSize: 3, applicationName: "test" });
  return {
    url: database.url,
    sql,
    async drop() {
      await sql.end({ timeout: 1 });
      await database.drop();
    },
  };
}

/** Webhooks as an earlier version wrote them: every third with a secret before. Returns their ids, in order. */
export async function addSealedWebhooks(
  sql: Database,
  key: Uint8Array,
  count: number,
): Promise<string[]> {
  const organizationId = await addOrganization(sql);
  const ids = Array.from({ length: count }, () => newId("whk")).sort();
  for (const [n, id] of ids.entries()) {
    const secret = seal(key, Buffer.from(`secret of ${id}`)) as Buffer;
    const previous = n % 3 === 0 ? (seal(key, Buffer.from(`before ${id}`)) as Buffer) : null;
    await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, previous_secret, created_at)
      VALUES (${id}, ${organizationId}, 'https://example.com/', '{key.created}', true, ${secret}, ${previous}, now())`;
    await sql`INSERT INTO webhook_queues (webhook_id) VALUES (${id})`;
  }
  return ids;
}

/** Stored results; the key of a call is chosen by its caller, so it may be anything. */
export async function addSealedResults(
  sql: Database,
  key: Uint8Array,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    const body = seal(key, Buffer.from(`result of ${name}`)) as Buffer;
    await sql`INSERT INTO idempotency_records
      (key_id, idempotency_key, body_hash, request_id, instance_id, epoch, status, headers, body)
      VALUES ('key_1', ${name}, 'hash', ${newId("req")}, 'ins_1', 1, 200, '{}', ${body})`;
  }
}

/** How many sealed values each of these keys opens, and how many none. */
export async function openedBy(
  sql: Database,
  ...keys: readonly Uint8Array[]
): Promise<{ opened: number[]; lost: number }> {
  const opened = keys.map(() => 0);
  let lost = 0;
  for await (const value of readSealedValues(sql)) {
    const place = keys.findIndex((key) => opens(key, value));
    if (place < 0) lost++;
    else opened[place]!++;
  }
  return { opened, lost };
}

export function opens(key: Uint8Array, sealed: Uint8Array): boolean {
  try {
    unseal(key, sealed);
    return true;
  } catch {
    return false;
  }
}
