import { afterAll, beforeAll, expect, test } from "bun:test";
import { claimIdempotencyKey } from "../../db/queries/idempotency.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { Cleaning } from "../../src/platform/cluster/clean-up.ts";
import { type Books, openBooks } from "../ledger/books.ts";
import { untilWaiting } from "../ledger/standing-in-the-way.ts";
import { claimOf } from "../support/idempotency-claim.ts";
import { until } from "../support/until.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

test("a claim that meets the burial of its instance leaves nothing behind", async () => {
  const instance = await books.addInstance();
  const claim = claimOf(crypto.randomUUID());
  const { promise: seen, resolve: goOn } = Promise.withResolvers<void>();
  const burial = books.sql.begin(async (transaction) => {
    await transaction`UPDATE instances SET alive = false WHERE id IN (
      SELECT id FROM instances WHERE id = ${instance.id} FOR UPDATE)`;
    await seen;
  });
  await until("it is being buried", async () => {
    const [row] = await books.sql`SELECT 1 FROM pg_locks WHERE granted AND mode = 'RowExclusiveLock'
      AND relation = 'instances'::regclass`;
    return row !== undefined;
  });
  const claimed = claimIdempotencyKey(books.sql, instance, claim);
  await untilWaiting(books.sql);
  goOn();
  await burial;
  expect((await claimed).kind).toBe("running");
  const rows =
    await books.sql`SELECT 1 FROM idempotency_records WHERE request_id = ${claim.requestId}`;
  expect(rows).toHaveLength(0);
});

test("one clean-up removes all that is old, however much it is", async () => {
  await books.sql`INSERT INTO idempotency_records
      (key_id, idempotency_key, body_hash, request_id, instance_id, epoch, status, created_at)
    SELECT 'key_old', n::text, 'hash', 'req_' || n, 'ins_old', 1, 200, clock_timestamp() - interval '25 hours'
    FROM generate_series(1, 2500) AS n`;
  await books.sql`INSERT INTO idempotency_records
      (key_id, idempotency_key, body_hash, request_id, instance_id, epoch, status)
    VALUES ('key_old', 'young', 'hash', 'req_young', 'ins_old', 1, 200)`;
  // A line of a batch that every instance stood still for: it was charged, and is still to be written.
  const batches = [newId("batch"), newId("batch")];
  const [running, resting] = batches;
  const { organizationId } = await books.addOrganization(0n);
  for (const id of batches) {
    await books.sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, created_at,
        expires_at, due_at)
      VALUES (${id}, ${organizationId}, 'key_old', '/v1/chat/completions', 'file_1', 'in_progress',
        clock_timestamp() - interval '26 hours', clock_timestamp() - interval '2 hours',
        ${id === resting ? null : new Date()})`;
    await books.sql`INSERT INTO idempotency_records
        (key_id, idempotency_key, body_hash, request_id, instance_id, epoch, status, created_at)
      VALUES (${id}, '1', 'hash', ${`req_${id}`}, 'ins_old', 1, 200,
        clock_timestamp() - interval '25 hours')`;
  }
  const clock = new VirtualClock();
  const errors: unknown[] = [];
  let cleaned = 0;
  const cleaning = new Cleaning({
    sql: books.sql,
    clock,
    tasks: [async () => void cleaned++],
    isOurTurn: () => true,
    onError: (error) => errors.push(error),
  });
  cleaning.start();
  clock.advance(60_000);
  await until("it is over", () => cleaned === 1);
  cleaning.stop();
  const left = await books.sql`SELECT idempotency_key, key_id FROM idempotency_records
      WHERE key_id = 'key_old' OR key_id = ANY (${books.sql.array(batches)}::text[])`;
  expect(left.map((row) => `${row.key_id} ${row.idempotency_key}`).sort()).toEqual([
    `${running} 1`,
    "key_old young",
  ]);
  expect(errors).toEqual([]);
});
