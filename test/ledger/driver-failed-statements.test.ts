import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer, type Socket } from "node:net";
import { connectDatabase, type Database } from "../../db/client.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

/*
 * A statement that fails leaves nothing on its connection that a later statement could take for its own.
 * The driver does so only with its patch in db/patches.
 */

let database: TestDatabase;
let sql: Database;
let other: Database;
beforeAll(async () => {
  database = await createTestDatabase();
  sql = connectDatabase(database, { poolSize: 1, applicationName: "driver" });
  other = connectDatabase(database, { poolSize: 1, applicationName: "other" });
  await sql`CREATE TABLE entries (id int PRIMARY KEY, name text NOT NULL)`;
  await sql`INSERT INTO entries SELECT n, 'entry ' || n FROM generate_series(1, 3) n`;
});
afterAll(async () => {
  await Promise.all([sql.end({ timeout: 1 }), other.end({ timeout: 1 })]);
  await database.drop();
});

async function codeOf(query: PromiseLike<unknown>): Promise<unknown> {
  try {
    await query;
    return "no error";
  } catch (error) {
    return (error as { code?: unknown }).code;
  }
}

/** What every later statement must see: its own rows, from the first one on. */
async function expectWholeResults(): Promise<void> {
  const [one] = await sql<{ name: string }[]>`SELECT name FROM entries WHERE id = ${2}`;
  expect(one).toEqual({ name: "entry 2" });
  expect(await sql<{ id: number }[]>`SELECT id FROM entries ORDER BY id`).toHaveLength(3);
  expect(await sql`SELECT id FROM entries WHERE id = 9`).toHaveLength(0);
}

test.each([
  [
    "that fails after its first row",
    () => codeOf(sql`SELECT 1 / (n - 3) FROM generate_series(1, 5) n`),
    "22012",
  ],
  [
    "with parameters that fails after its first row",
    () => codeOf(sql`SELECT 1 / (n - ${3}::int) FROM generate_series(1, 5) n`),
    "22012",
  ],
  [
    "of the simple protocol that fails in its second result",
    () => codeOf(sql.unsafe("SELECT 1 AS a; SELECT 1 / (n - 3) FROM generate_series(1, 5) n")),
    "22012",
  ],
])("a statement %s takes no row from the next one", async (_, fail, code) => {
  expect(await fail()).toBe(code);
  await expectWholeResults();
});

/** Rows leave the server in pieces of 8 KiB: some are sent before the one that takes long. */
const rowsThenWait = (connection: Database) =>
  connection`SELECT repeat('x', 4096), CASE WHEN n > 40 THEN pg_sleep(5) END
    FROM generate_series(1, 50) n`;

test("a statement that its timeout ends in the middle of its rows takes no row from the next one", async () => {
  const settings = { statement_timeout: "200" };
  const timed = connectDatabase(database, { poolSize: 1, applicationName: "timed", settings });
  try {
    expect(await codeOf(rowsThenWait(timed))).toBe("57014");
    const [one] = await timed`SELECT name FROM entries WHERE id = ${2}`;
    expect(one).toEqual({ name: "entry 2" });
  } finally {
    await timed.end({ timeout: 1 });
  }
});

test("a statement that an operator cancels in the middle of its rows takes no row from the next one", async () => {
  const [{ pid }] = await sql<[{ pid: number }]>`SELECT pg_backend_pid() AS pid`;
  const cancelled = codeOf(rowsThenWait(sql));
  await until("the statement has sent rows and waits", async () => {
    const [row] = await other`SELECT 1 FROM pg_stat_activity
      WHERE pid = ${pid} AND wait_event = 'PgSleep'`;
    return row !== undefined;
  });
  await other`SELECT pg_cancel_backend(${pid})`;
  expect(await cancelled).toBe("57014");
  await expectWholeResults();
});

test("a statement that cannot be sent fails alone, and the one before it gets its own answer", async () => {
  await sql
    .begin(async (transaction) => {
      const before = transaction`SELECT pg_sleep(0.05), 'before' AS name`;
      const failed = transaction`SELECT ${undefined as unknown as string}::text AS name`;
      const after = transaction`SELECT 'after' AS name`;
      const outcomes = await Promise.race([
        Promise.allSettled([before, failed, after]),
        Bun.sleep(2_000),
      ]);
      expect(outcomes).toMatchObject([
        { value: [{ name: "before" }] },
        { reason: { code: "UNDEFINED_VALUE" } },
        { value: [{ name: "after" }] },
      ]);
      // The driver ends the transaction with the first error of its statements.
    })
    .then(
      () => expect.unreachable(),
      (error) => expect(error).toHaveProperty("code", "UNDEFINED_VALUE"),
    );
  await expectWholeResults();
  expect(await codeOf(sql`SELECT ${new Date(Number.NaN)}::timestamptz AS at`)).toBeUndefined();
  await expectWholeResults();
});

test("a statement that is prepared anew after a change of its table sends its values as they were given", async () => {
  await other`CREATE TABLE values_kept (id int, flag boolean, bytes bytea, data jsonb, at timestamptz)`;
  const at = new Date("2026-03-04T05:06:07.089Z");
  const insert = (id: number) =>
    sql`INSERT INTO values_kept VALUES
      (${id}, ${true}, ${Buffer.from([0, 1, 255])}, ${sql.json({ kept: true })}, ${at}) RETURNING *`;
  const [first] = await insert(1);
  await other`ALTER TABLE values_kept ADD COLUMN added int`;
  const [second] = await insert(2);
  expect(second).toEqual({ ...first!, id: 2, added: null });
  await expectWholeResults();
});

/** AuthenticationOk, then ReadyForQuery (PostgreSQL documentation, 54.7). */
const WELCOME = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);
const CANCELLED = Buffer.from("SERROR\0C57014\0Mcanceling statement\0\0");

function message(tag: string, body: Buffer | string): Buffer {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(5);
  head.write(tag);
  head.writeUInt32BE(bytes.length + 4, 1);
  return Buffer.concat([head, bytes]);
}

/** A server that answers everything without rows, but for statements that a test has it cancel. */
function scriptedServer(isCancelled: (statement: string) => boolean) {
  const statements: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let isStarted = false;
    let state = "I";
    socket.on("error", () => {});
    socket.on("data", (data: Buffer) => {
      if (!isStarted) {
        isStarted = true;
        socket.write(WELCOME);
        return;
      }
      for (let at = 0; at < data.length; at += 1 + data.readUInt32BE(at + 1)) {
        const tag = String.fromCharCode(data[at]!);
        if (tag === "X") socket.end();
        if (tag !== "P" && tag !== "Q") continue;
        const body = data.subarray(at + 5, at + 1 + data.readUInt32BE(at + 1)).toString();
        const statement = body.split("\0")[tag === "P" ? 1 : 0]!.trim();
        statements.push(statement);
        const word = statement.split(" ")[0]!.toUpperCase();
        if (isCancelled(statement)) {
          state = state === "I" ? "I" : "E";
          socket.write(Buffer.concat([message("E", CANCELLED), message("Z", state)]));
          continue;
        }
        state = word === "BEGIN" ? "T" : word === "COMMIT" || word === "ROLLBACK" ? "I" : state;
        const parsed = tag === "P" ? [message("1", ""), message("n", ""), message("2", "")] : [];
        socket.write(Buffer.concat([...parsed, message("C", `${word}\0`), message("Z", state)]));
      }
    });
  });
  return {
    statements,
    sockets,
    async listen(): Promise<string> {
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      return `postgres://nobody@127.0.0.1:${(server.address() as { port: number }).port}/none`;
    },
    close(): void {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

test.each(["commit", "rollback"])(
  "a cancelled %s does not keep its connection from others: it is closed, and the next one opens",
  async (end) => {
    const server = scriptedServer((statement) => statement === end);
    const url = await server.listen();
    const pool = connectDatabase({ url }, { poolSize: 1, applicationName: "driver" });
    try {
      const failure = codeOf(
        pool.begin(async (transaction) => {
          await transaction`UPDATE one`;
          if (end === "rollback") throw new Error("the work failed");
        }),
      );
      expect(await failure).toBe("57014");
      const next = codeOf(pool`SELECT 1`);
      expect(await Promise.race([next, Bun.sleep(2_000).then(() => "waits for ever")])).toBe(
        "no error",
      );
      expect(server.sockets.size).toBe(2);
    } finally {
      await pool.end({ timeout: 0.1 });
      server.close();
    }
  },
);

test("a connection whose look for array types was cancelled is not used", async () => {
  let looks = 0;
  const server = scriptedServer((statement) => statement.includes("typcategory") && ++looks === 1);
  const url = await server.listen();
  const pool = connectDatabase({ url }, { poolSize: 1, applicationName: "driver" });
  try {
    expect(await codeOf(pool`SELECT 1`)).toBe("57014");
    expect(await codeOf(pool`SELECT 2`)).toBe("no error");
    expect(looks).toBe(2);
    expect(server.sockets.size).toBe(2);
  } finally {
    await pool.end({ timeout: 0.1 });
    server.close();
  }
});
