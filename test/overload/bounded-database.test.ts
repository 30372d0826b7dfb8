import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  boundedDatabase,
  DatabaseDeadlineError,
  MAX_WAITING_QUERIES,
  QUERY_DEADLINE_MS,
} from "../../db/bounded-database.ts";
import { connectDatabase, type Database } from "../../db/client.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";
import type { GatewayError } from "../../src/lib/errors.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

let gateway: TestGateway;
let raw: Database;
beforeAll(async () => {
  gateway = await startTestGateway();
  raw = connectDatabase({ url: gateway.databaseUrl }, { poolSize: 2, applicationName: "bounded" });
  await raw`CREATE TABLE notes (text text)`;
});
afterAll(async () => {
  await raw.end({ timeout: 1 });
  await gateway.stop();
});

/** Keeps everyone from a table until the returned function is called. */
async function lockTable(table: string): Promise<() => Promise<unknown>> {
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  const { promise: isLocked, resolve: locked } = Promise.withResolvers<void>();
  const holding = gateway.sql.begin(async (transaction) => {
    await transaction`LOCK TABLE ${transaction(table)} IN ACCESS EXCLUSIVE MODE`;
    locked();
    await mayEnd;
  });
  await isLocked;
  return () => {
    end();
    return holding;
  };
}

const failure = (work: PromiseLike<unknown>) =>
  Promise.resolve(work).then(
    () => undefined,
    (error) => error as GatewayError & { ended?: Promise<void> },
  );

describe("a bounded database", () => {
  test("answers as the database does", async () => {
    const sql = boundedDatabase(raw, systemClock);
    const condition = sql`one = ${1}`;
    expect([
      ...(await sql`SELECT one FROM (VALUES (1), (2)) AS v (one) WHERE ${condition}`),
    ]).toEqual([{ one: 1 }]);
    expect(await sql.begin(async (transaction) => transaction`SELECT 1 AS one`)).toHaveLength(1);
    expect(await sql`SELECT ${sql.array(["a", "b"])}::text[] AS letters`).toEqual([
      { letters: ["a", "b"] },
    ] as never);
    expect(await failure(sql`SELECT nothing`)).toMatchObject({ code: "42703" });
    expect(await failure(sql.begin(() => Promise.reject(new Error("mine"))))).toMatchObject({
      message: "mine",
    });
  });

  test("gives up a query that takes too long, and knows when it has ended after all", async () => {
    const clock = new VirtualClock();
    const sql = boundedDatabase(raw, clock);
    const unlock = await lockTable("notes");
    const failing = failure(sql`INSERT INTO notes VALUES ('late')`);
    await until("it waits", () =>
      raw`SELECT 1 FROM pg_locks WHERE NOT granted`.then(([one]) => one),
    );
    clock.advance(QUERY_DEADLINE_MS);
    const error = await failing;
    expect(error).toBeInstanceOf(DatabaseDeadlineError);
    expect(error).toMatchObject({ code: "database_unavailable", retryAfterSeconds: 1 });
    await unlock();
    await error!.ended;
    expect(await raw`SELECT * FROM notes`).toHaveLength(1);
  });

  test("never begins a transaction that had to wait too long for its turn", async () => {
    const clock = new VirtualClock();
    const busy = connectDatabase(
      { url: gateway.databaseUrl },
      { poolSize: 1, applicationName: "one" },
    );
    const sql = boundedDatabase(busy, clock);
    const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
    const first = sql.begin(() => mayEnd as Promise<never>);
    await until("it has begun", () =>
      raw`SELECT 1 FROM pg_stat_activity WHERE application_name = 'one' AND state = 'idle in transaction'`.then(
        ([one]) => one,
      ),
    );
    let isBegun = false;
    const second = failure(
      sql.begin(async () => {
        isBegun = true;
      }),
    );
    clock.advance(QUERY_DEADLINE_MS);
    const error = await second;
    expect(error).toMatchObject({ code: "database_unavailable" });
    end();
    await first.catch(() => {});
    await error!.ended;
    expect(isBegun).toBeFalse();
    await busy.end({ timeout: 1 });
  });

  test("refuses at once what comes while too many wait, until they have ended", async () => {
    const clock = new VirtualClock();
    const sql = boundedDatabase(raw, clock);
    const unlock = await lockTable("notes");
    const waiting = Array.from({ length: MAX_WAITING_QUERIES }, () =>
      failure(sql`SELECT * FROM notes`),
    );
    expect(await failure(sql`SELECT 1`)).toMatchObject({ code: "overloaded" });
    // Given up, they still wait in the driver's queue.
    clock.advance(QUERY_DEADLINE_MS);
    const errors = await Promise.all(waiting);
    expect(new Set(errors.map((error) => error?.code))).toEqual(new Set(["database_unavailable"]));
    expect(await failure(sql`SELECT 1`)).toMatchObject({ code: "overloaded" });
    await unlock();
    await Promise.all(errors.map((error) => error!.ended));
    expect(await sql`SELECT 1 AS one`).toHaveLength(1);
  });
});

test("while the database is slow, look-ups of keys and lists are 503 with Retry-After in time, and what needs neither goes on", async () => {
  const hello = { model: "sandbox/chat", messages: [{ role: "user", content: "hello" }] };
  const post = (key: string) => gateway.request("POST", "/v1/chat/completions", hello, { key });
  expect((await post(gateway.secretKey)).status).toBe(200);
  expect(
    (await gateway.request("GET", "/v1/keys", undefined, { key: gateway.managementKey })).status,
  ).toBe(200);
  const unlock = await lockTable("api_keys");
  const startedMs = performance.now();
  const refused = await Promise.all([
    post(generateApiKey("secret").key),
    gateway.request("GET", "/v1/keys", undefined, { key: gateway.managementKey }),
  ]);
  const tookMs = performance.now() - startedMs;
  for (const response of refused) {
    await expectError(response, 503, "database_unavailable");
    expect(response.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
  }
  expect(tookMs).toBeLessThan(2_000 + 1_000);
  expect((await gateway.request("GET", "/healthz")).status).toBe(200);
  await unlock();
  await until("it serves again", async () => (await post(gateway.secretKey)).status === 200);
});
