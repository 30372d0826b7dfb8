import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database, isOutcomeUnknown } from "../../db/client.ts";
import { Idempotency } from "../../src/inference/call/idempotency/idempotency.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { claimOf } from "../support/idempotency-claim.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { type Books, openBooks } from "./books.ts";

let books: Books;
let network: CuttingProxy;
let sql: Database;
let idempotency: Idempotency;
beforeAll(async () => {
  books = await openBooks();
  network = await startCuttingProxy(books.url);
  sql = connectDatabase({ url: network.url }, { poolSize: 1, applicationName: "claims" });
  idempotency = new Idempotency({
    sql,
    instance: books.instance,
    keyring: await testKeyring(books.sql),
    clock: systemClock,
    maxWaitMs: 0,
    isAborting: () => false,
  });
});
afterAll(async () => {
  await idempotency.close();
  await sql.end({ timeout: 1 });
  await network.stop();
  await books.close();
});

const NEVER = new AbortController().signal;

const TROUBLES: Trouble[] = ["cut before it arrives", "cut while it runs", "lose its reply"];

test.each(TROUBLES)(
  "a claim whose connection breaks is made again, and stands once: %s",
  async (trouble) => {
    const claim = claimOf(`call ${trouble}`);
    const { cuts } = network;
    network.arm(trouble, claim.idempotencyKey);
    expect(await idempotency.claim(claim, NEVER)).toBeUndefined();
    expect(network.cuts).toBe(cuts + 1);
    const rows = await books.sql`SELECT request_id FROM idempotency_records
      WHERE idempotency_key = ${claim.idempotencyKey}`;
    expect([...rows]).toEqual([{ request_id: claim.requestId }]);
  },
);

test("a claim is given up after a second without the database, and leaves its key to the next call", async () => {
  const key = "out of reach";
  const beganMs = performance.now();
  network.breakDown();
  const refused = await idempotency.claim(claimOf(key), NEVER).catch((error: unknown) => error);
  expect(isOutcomeUnknown(refused)).toBeTrue();
  expect(performance.now() - beganMs).toBeGreaterThan(950);
  network.restore();
  await until("the key can be claimed", () =>
    idempotency.claim(claimOf(key), NEVER).then(
      () => true,
      () => false,
    ),
  );
});

test("a claim whose client has left is not made again", async () => {
  const key = "left behind";
  network.arm("lose its reply", key);
  const gone = AbortSignal.abort();
  await expect(idempotency.claim(claimOf(key), gone)).rejects.toThrow("CONNECTION_CLOSED");
  await until("the key can be claimed", () =>
    idempotency.claim(claimOf(key), NEVER).then(
      () => true,
      () => false,
    ),
  );
});

test("a claim of unknown outcome frees no key that another call holds", async () => {
  const held = claimOf("held by another");
  expect(await idempotency.claim(held, NEVER)).toBeUndefined();
  network.arm("lose its reply", held.idempotencyKey);
  const gone = AbortSignal.abort();
  await idempotency.claim(claimOf(held.idempotencyKey), gone).catch(() => {});
  await idempotency.close();
  const rows = await books.sql`SELECT request_id FROM idempotency_records
    WHERE idempotency_key = ${held.idempotencyKey}`;
  expect([...rows]).toEqual([{ request_id: held.requestId }]);
});

test("a call that comes while its key is being freed waits for it, whatever its body is", async () => {
  // Its bound never comes, however slow this machine is.
  const clock = { nowMs: () => 0, after: systemClock.after };
  const slow = new Idempotency({
    sql,
    instance: books.instance,
    keyring: await testKeyring(books.sql),
    clock,
    maxWaitMs: 0,
    isAborting: () => false,
  });
  const failed = claimOf("being freed");
  expect(await slow.claim(failed, NEVER)).toBeUndefined();
  const { cuts } = network;
  network.arm("cut before it arrives", failed.idempotencyKey);
  slow.free(failed);
  await until("it could not be freed at once", () => network.cuts > cuts);
  const next = { ...claimOf(failed.idempotencyKey), bodyHash: "another" };
  expect(await slow.claim(next, NEVER)).toBeUndefined();
  await slow.close();
});
