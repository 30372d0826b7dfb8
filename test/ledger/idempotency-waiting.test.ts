import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { type IdempotencyClaim, runningIdempotencyKeys } from "../../db/queries/idempotency.ts";
import { Idempotency } from "../../src/inference/call/idempotency/idempotency.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { claimOf } from "../support/idempotency-claim.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { type Books, openBooks } from "./books.ts";

const WAITING = 300;
const STATEMENT = /^\s*(?:INSERT|SELECT|UPDATE|DELETE|WITH)\b/;

let books: Books;
let sql: Database;
let idempotency: Idempotency;
let statements = 0;
let isAborting = false;
const clock = new VirtualClock();
beforeAll(async () => {
  books = await openBooks();
  sql = connectDatabase({ url: books.url }, { poolSize: 4, applicationName: "claims" });
  const counted = new Proxy(sql, {
    apply(target, self, [first, ...rest]) {
      // Parts of statements come the same way.
      const isStatement = Array.isArray(first) && "raw" in first && STATEMENT.test(first[0]);
      if (isStatement) statements++;
      return Reflect.apply(target as never, self, [first, ...rest]);
    },
  });
  idempotency = new Idempotency({
    sql: counted,
    instance: books.instance,
    keyring: await testKeyring(books.sql),
    clock,
    maxWaitMs: Number.MAX_SAFE_INTEGER,
    isAborting: () => isAborting,
  });
});
afterAll(async () => {
  await idempotency.close();
  await sql.end({ timeout: 1 });
  await books.close();
});

const NEVER = new AbortController().signal;

test("however many calls wait for a running one, the database is asked about it one question at a time", async () => {
  const first = claimOf("waited for");
  await idempotency.claim(first, NEVER);
  const leaving = new AbortController();
  statements = 0;
  const calls = Array.from({ length: WAITING }, () =>
    idempotency.claim(claimOf(first.idempotencyKey), leaving.signal).then(
      () => "claimed",
      (error: { code?: string }) => error.code,
    ),
  );
  // Each has asked for itself once.
  await until("all have come", () => statements >= 2 * WAITING);
  for (let look = 1; look <= 20; look++) {
    const before = statements;
    await until("it looks again", () => {
      clock.advance(50);
      return statements > before;
    });
    expect(statements - before).toBe(1);
  }
  leaving.abort();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(["client_closed_request"]));
  await idempotency.free(first);
});

test("one of those that wait takes the key when the running call has failed", async () => {
  const first = claimOf("given free");
  await idempotency.claim(first, NEVER);
  const leaving = new AbortController();
  statements = 0;
  const taken: IdempotencyClaim[] = [];
  const calls = Array.from({ length: 20 }, () => claimOf(first.idempotencyKey)).map((claim) =>
    idempotency.claim(claim, leaving.signal).then(
      () => void taken.push(claim),
      () => {},
    ),
  );
  await until("all have come", () => statements >= 2 * calls.length);
  expect(taken).toEqual([]);
  for (let next = first, n = 1; n <= 3; n++) {
    await idempotency.free(next);
    await until("another one has it", () => {
      clock.advance(50);
      return taken.length === n;
    });
    next = taken[n - 1]!;
  }
  leaving.abort();
  await Promise.all(calls);
  expect(taken).toHaveLength(3);
});

test("who waits is told that the gateway stops, though the other call runs on", async () => {
  const first = claimOf("runs on");
  await idempotency.claim(first, NEVER);
  statements = 0;
  const refused = idempotency.claim(claimOf(first.idempotencyKey), NEVER).then(
    () => "claimed",
    (error: { code?: string }) => error.code,
  );
  await until("it waits", () => statements >= 2);
  isAborting = true;
  await until("it looks again", () => {
    clock.advance(50);
    return statements >= 3;
  });
  expect(await refused).toBe("overloaded");
  isAborting = false;
  await idempotency.free(first);
});

test("of several keys those are told under which a call runs", async () => {
  const running = [claimOf("a"), claimOf("c")];
  for (const claim of running) await idempotency.claim(claim, NEVER);
  const asked = ["a", "b", "c", "d"].map((key) => claimOf(key));
  expect([...(await runningIdempotencyKeys(sql, asked))].sort()).toEqual([0, 2]);
  expect((await runningIdempotencyKeys(sql, [])).size).toBe(0);
});
