import { afterAll, afterEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { runCliProcess } from "../cli/cli-runs.ts";
import { exitOf, Grounds } from "../crash/gateway-process.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { chat } from "./client.ts";

const TIMEOUT_MS = 60_000;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");

const binary = ["/usr/sbin/pgbouncer", Bun.which("pgbouncer")].find(
  (path) => path !== null && existsSync(path),
);
if (binary === undefined)
  console.warn("NO pgbouncer: the tests of connection poolers are SKIPPED.");

const grounds = new Grounds("pooler");
const folder = mkdtempSync(join(tmpdir(), "gateway-pgbouncer-"));
let pooler: Bun.Subprocess | undefined;
let database: TestDatabase;
afterEach(async () => {
  pooler?.kill("SIGKILL");
  await pooler?.exited;
  await database.drop();
});
afterAll(async () => {
  await grounds.clear();
  rmSync(folder, { recursive: true });
});

/** A PgBouncer with its defaults, but for the mode, before a database of its own. Returns its URL. */
async function startPooler(mode: "session" | "transaction"): Promise<string> {
  database = await createTestDatabase();
  const server = new URL(database.url);
  const port = await freePort();
  const [config, users] = [join(folder, "pgbouncer.ini"), join(folder, "users.txt")];
  const password = decodeURIComponent(server.password);
  writeFileSync(users, `"${server.username}" "${password}"\n`, { mode: 0o644 });
  writeFileSync(
    config,
    `[databases]
* = host=127.0.0.1 port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
pool_mode = ${mode}
default_pool_size = 40
`,
  );
  // It refuses to run as root.
  const asUser = process.getuid?.() === 0 ? ["-u", "nobody"] : [];
  await Bun.$`chmod 755 ${folder}`.quiet();
  pooler = Bun.spawn([binary!, "-q", ...asUser, config], {
    stdio: ["ignore", "ignore", "ignore"],
  });
  const url = new URL(server);
  url.hostname = "127.0.0.1";
  url.port = String(port);
  await until("the pooler listens", () =>
    Bun.connect({ hostname: "127.0.0.1", port, socket: { data() {} } }).then(
      (socket) => {
        socket.end();
        return true;
      },
      () => false,
    ),
  );
  return url.href;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

test.skipIf(binary === undefined)(
  "a gateway serves behind PgBouncer in session mode without any setting of its own",
  async () => {
    const key = generateApiKey("secret").key;
    const environment = {
      DATABASE_URL: await startPooler("session"),
      GATEWAY_MASTER_KEY: MASTER_KEY,
      GATEWAY_SECRET_KEY: key,
    };
    const gateway = grounds.launch({ dataDir: grounds.newDataDir(), environment });
    const baseUrl = await gateway.listening;
    expect((await chat(baseUrl, key)).status).toBe(200);
    const ready = await fetch(`${baseUrl}/readyz`);
    expect(await ready.json()).toMatchObject({ checks: { database: "ok", ledger: "ok" } });
    const { exitCode } = await runCliProcess(environment, "org", "list");
    expect(exitCode).toBe(0);
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);
  },
  TIMEOUT_MS,
);

test.skipIf(binary === undefined)(
  "a pooler in transaction mode is named by a start, which ends, and by commands",
  async () => {
    const environment = {
      DATABASE_URL: await startPooler("transaction"),
      GATEWAY_MASTER_KEY: MASTER_KEY,
    };
    const gateway = grounds.launch({ dataDir: grounds.newDataDir(), environment });
    expect(await exitOf(gateway)).toBe(1);
    const named = "its connection pooler is in transaction mode";
    expect(gateway.stderr()).toStartWith("DATABASE_URL: the database 127.0.0.1:");
    expect(gateway.stderr()).toContain(named);
    const { exitCode, stderr } = await runCliProcess(environment, "org", "list");
    expect(exitCode).toBe(1);
    expect(stderr).toStartWith(`database_unavailable: ${named}`);
  },
  TIMEOUT_MS,
);
