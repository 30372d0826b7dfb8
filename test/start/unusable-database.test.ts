import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase } from "../../db/client.ts";
import { prepareDatabase } from "../../src/main/start/database.ts";
import { readConfig } from "../../src/platform/config.ts";
import { runCliProcess } from "../cli/cli-runs.ts";
import { exitOf, Grounds } from "../crash/gateway-process.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createEmptyDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

const TIMEOUT_MS = 60_000;
const GATEWAY_MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
const RETRY_FOR_MS = 500;

const grounds = new Grounds("unusable");
let database: TestDatabase;
let network: CuttingProxy;
beforeAll(async () => {
  database = await createEmptyDatabase();
  network = await startCuttingProxy(database.url);
});
afterAll(async () => {
  await grounds.clear();
  await network.stop();
  await database.drop();
});

const addressOf = (url: string) => `${new URL(url).host}${new URL(url).pathname}`;

/** What a start says of a database that it cannot use, with what it logged meanwhile. */
async function refusal(url: string) {
  const lines: string[] = [];
  const note = (line: unknown) => void lines.push(String(line));
  const message = await prepareDatabase({
    config: readConfig({ DATABASE_URL: url, GATEWAY_MASTER_KEY }, { cwd: import.meta.dir }),
    target: { url },
    log: { info: note, warn: note } as never,
    assertNotStopped() {},
    retryForMs: RETRY_FOR_MS,
  }).then(
    () => "usable",
    (error: Error) => error.message,
  );
  return { message, lines };
}

test("a database that cannot be reached is tried again, and each message says what fails", async () => {
  network.breakDown();
  const { port } = new URL(network.url);
  const refused = "postgres://nobody:hidden@127.0.0.1:9/none";
  const { message, lines } = await refusal(refused);
  expect(message).toBe(
    "DATABASE_URL: the database 127.0.0.1:9/none cannot be used: connection refused",
  );
  expect(lines).toEqual([`${message}; trying again for 1 s`]);
  const broken = await refusal(`postgres://nobody:hidden@127.0.0.1:${port}/none`);
  expect(broken.message).toMatch(
    /\/none cannot be used: the (?:server closed the connection|connection was reset)$/,
  );
  const unresolved = await refusal("postgres://nobody:hidden@no-such-host.invalid/none");
  expect(unresolved.message).toEndWith("cannot be used: the host name cannot be resolved");
  const socket = await refusal("postgres://nobody:hidden@localhost/none?host=/nowhere");
  expect(socket.message).toEndWith("cannot be used: there is no such Unix socket");
  network.restore();
});

test("what cannot pass is refused immediately, in the words of the database", async () => {
  const admin = connectDatabase(database, { poolSize: 1, applicationName: "admin" });
  const role = `limited_${crypto.randomUUID().slice(0, 8)}`;
  await admin.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'hidden'`);
  try {
    const url = new URL(database.url);
    url.username = role;
    url.password = "hidden";
    const rights = await refusal(url.href);
    expect(rights.message).toStartWith(
      `DATABASE_URL: the database ${addressOf(database.url)} cannot be used: migration 0000_baseline: permission denied for `,
    );
    expect(rights.message).toEndWith(
      "; docs/guides/operate/databases.md lists the rights that the role needs",
    );
    expect(rights.message.length).toBeLessThan(300);
    await admin.unsafe(`GRANT CREATE ON DATABASE "${url.pathname.slice(1)}" TO ${role}`);
    // Without the right to the schema, as since version 15 every role that does not own the database.
    expect((await refusal(url.href)).message).toContain("permission denied for schema public");
    await admin.unsafe(`GRANT CREATE ON SCHEMA public TO ${role}`);
    expect((await refusal(url.href)).message).toBe("usable");
    url.pathname = "/no_such_database";
    const missing = await refusal(url.href);
    expect(missing.message).toEndWith('database "no_such_database" does not exist');
    expect(missing.lines).toEqual([]);
  } finally {
    await admin.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
    await admin.end({ timeout: 1 });
  }
});

test(
  "a start waits for its database, says so, and serves when it is there; a signal ends the wait",
  async () => {
    network.breakDown();
    const launch = () =>
      grounds.launch({
        dataDir: grounds.newDataDir(),
        environment: { DATABASE_URL: network.url, GATEWAY_MASTER_KEY },
      });
    const [waiting, stopped] = [launch(), launch()];
    const named = `DATABASE_URL: the database ${addressOf(network.url)} cannot be used: `;
    // By timing, the gateway sees the end of the connection or its reset.
    const retries =
      /cannot be used: the (?:server closed the connection|connection was reset); trying again for /;
    const saysSo = (text: string) => text.includes(named) && retries.test(text);
    for (const gateway of [waiting, stopped]) {
      await until("it says what it waits for", () => saysSo(gateway.stdout()), 30_000).catch(
        (error: Error) => {
          throw new Error(`${error.message}: ${gateway.stdout()}${gateway.stderr()}`);
        },
      );
    }
    stopped.signal("SIGTERM");
    expect(await exitOf(stopped)).toBe(1);
    expect(stopped.stderr()).toBe("stopped by SIGTERM during the start\n");
    network.restore();
    const baseUrl = await waiting.listening;
    await until("it is ready", async () => (await fetch(`${baseUrl}/readyz`)).ok);
    expect(waiting.stdout()).toContain("migrating the database: ");
    waiting.signal("SIGTERM");
    expect(await exitOf(waiting)).toBe(0);
  },
  TIMEOUT_MS,
);

test(
  "commands say the same",
  async () => {
    const settings = { DATABASE_URL: "postgres://nobody:hidden@127.0.0.1:9/none" };
    const { exitCode, stderr } = await runCliProcess(settings, "org", "list");
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: "database_unavailable: connection refused\n",
    });
  },
  TIMEOUT_MS,
);
