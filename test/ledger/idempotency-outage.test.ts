import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import type { IdempotencyClaim } from "../../db/queries/idempotency.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { Idempotency } from "../../src/services/idempotency/idempotency.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
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
  });
});
afterAll(async () => {
  await idempotency.close();
  await sql.end({ timeout: 1 });
  await network.stop();
  await books.close();
});

const claimOf = (idempotencyKey: string): IdempotencyClaim => ({
  keyId: "key_one",
  idempotencyKey,
  bodyHash: "hash",
  requestId: newId("req"),
});
const NEVER = new AbortController().signal;

test.each<Trouble>(["cut before it arrives", "cut while it runs", "lose its reply"])(
  "a claim of unknown outcome leaves its key to the next call: %s",
  async (trouble) => {
    const key = `call ${trouble}`;
    network.arm(trouble, key);
    const refused = await idempotency.claim(claimOf(key), NEVER).catch((error: unknown) => error);
    expect((refused as { code?: string }).code).toBe("CONNECTION_CLOSED");
    await until("the key can be claimed", () =>
      idempotency.claim(claimOf(key), NEVER).then(
        () => true,
        () => false,
      ),
    );
  },
);

test("a claim of unknown outcome frees no key that another call holds", async () => {
  const held = claimOf("held by another");
  expect(await idempotency.claim(held, NEVER)).toBeUndefined();
  network.arm("lose its reply", held.idempotencyKey);
  await idempotency.claim(claimOf(held.idempotencyKey), NEVER).catch(() => {});
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
