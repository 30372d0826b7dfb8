import { expect, test } from "bun:test";
import { createServer, type Socket } from "node:net";
import { connectDatabase } from "../../db/client.ts";
import { createTestDatabase } from "../support/database.ts";

/** AuthenticationOk, then ReadyForQuery (PostgreSQL documentation, 54.7). */
const WELCOME = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);

/*
 * A connection that has just opened asks for the array types before it sends what it was opened for.
 * Only the patch in db/patches lets the driver notice its end, and know the types before it sends.
 */
test.each([
  ["breaks", (socket: Socket) => socket.resetAndDestroy()],
  ["ends", (socket: Socket) => socket.destroy()],
])(
  "a server that %s while a new connection asks for its types is an error of the query, and of nobody else",
  async (_, part) => {
    let meetings = 0;
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => {
        socket.write(WELCOME);
        socket.once("data", () => {
          meetings++;
          part(socket);
        });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const sql = connectDatabase(
      { url: `postgres://nobody@127.0.0.1:${port}/none` },
      { poolSize: 1, applicationName: "driver" },
    );
    const unheard: unknown[] = [];
    const note = (error: unknown) => unheard.push(error);
    process.on("unhandledRejection", note);
    try {
      const asked = sql`SELECT 1`.then(
        () => "answered",
        () => "refused",
      );
      await Promise.race([asked, Bun.sleep(1_000)]);
      expect(meetings).toBeGreaterThan(0);
      await sql.end({ timeout: 0.1 });
      expect(await asked).toBe("refused");
      expect(unheard).toEqual([]);
    } finally {
      process.off("unhandledRejection", note);
      server.close();
    }
  },
);

test("the first query of a connection may bring an array, whichever connection of a pool it is", async () => {
  const database = await createTestDatabase();
  const sql = connectDatabase(database, { poolSize: 3, applicationName: "driver" });
  try {
    const asked = [1, 2, 3, 4].map(() => sql`SELECT ${sql.array(["a", 'b"'])}::text[] AS listed`);
    for (const [row] of await Promise.all(asked)) expect(row!.listed).toEqual(["a", 'b"']);
  } finally {
    await sql.end({ timeout: 1 });
    await database.drop();
  }
});

test("values are read as they were written, however the database is told to write them", async () => {
  const database = await createTestDatabase();
  const admin = connectDatabase(database, { poolSize: 1, applicationName: "admin" });
  const name = new URL(database.url).pathname.slice(1);
  for (const [setting, value] of [
    ["DateStyle", "'SQL, DMY'"],
    ["bytea_output", "'escape'"],
    ["extra_float_digits", "-10"],
    ["TimeZone", "'Asia/Kolkata'"],
  ] as const) {
    await admin.unsafe(`ALTER DATABASE "${name}" SET ${setting} = ${value}`);
  }
  const sql = connectDatabase(database, { poolSize: 1, applicationName: "driver" });
  try {
    const at = new Date("2026-03-04T05:06:07.089Z");
    const bytes = Buffer.from([0, 1, 0x5c, 0x7f, 0xff]);
    const [row] = await sql`SELECT ${at}::timestamptz AS at, ${bytes}::bytea AS bytes,
      ${at.getTime()}::float8 AS milliseconds`;
    expect(row).toEqual({ at, bytes, milliseconds: at.getTime() });
  } finally {
    await Promise.all([admin.end({ timeout: 1 }), sql.end({ timeout: 1 })]);
    await database.drop();
  }
});
