import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { auditOf } from "./audit.ts";
import { billsByTag, look } from "./books.ts";
import { exitOf, firstKeys, type GatewayProcess, Grounds, serverPid } from "./gateway-process.ts";
import { KINDS, type Kind, prepareKinds } from "./kinds.ts";
import { receive, type Sent, sentOf } from "./load.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/* A gateway that gets SIGTERM, as from an operator or a container runtime. */

const TIMEOUT_MS = 60_000;
/** From the end of the last answer to the end of the process. */
const CLOSING_MS = 5_000;

const grounds = new Grounds("stop");
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await prepareKinds(upstream, configPath);
});
afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

const kindOf = (name: string): Kind => KINDS.find((kind) => kind.name === name)!;

interface Running {
  readonly dataDir: string;
  readonly gateway: GatewayProcess;
  readonly baseUrl: string;
  readonly key: string;
}

async function start(
  environment: Record<string, string> = {},
  prefix: readonly string[] = [],
): Promise<Running> {
  const dataDir = environment.DATABASE_URL
    ? grounds.newDataDir()
    : await grounds.newDataDirWithDatabase();
  const gateway = grounds.launch({
    dataDir,
    prefix,
    environment: { GATEWAY_CONFIG: configPath, ...environment },
  });
  const baseUrl = await gateway.listening;
  return { dataDir, gateway, baseUrl, key: firstKeys(dataDir).secret_key };
}

/** Sends requests of these kinds; resolves once the streams among them deliver. */
async function begin({ baseUrl, key }: Running, kinds: readonly string[]) {
  const sent = kinds.map((name, i) => sentOf(`${crypto.randomUUID()}-${i}`, kindOf(name)));
  const ended = Promise.all(
    sent.map(async (one) => {
      await receive(one, baseUrl, key).catch(() => {});
      one.endedAtMs = performance.now();
    }),
  );
  await until("all streams deliver", () =>
    sent.every(({ kind, tokenTimesMs }) => !kind.stream || tokenTimesMs.length > 1),
  );
  return { sent, ended };
}

/** The books as a stopped gateway left them. */
async function withDatabase<Result>(dataDir: string, work: (url: string) => Promise<Result>) {
  const server = await startEmbeddedPostgres({ dataDir, log: () => {} });
  try {
    return await work(server.url);
  } finally {
    await server.stop();
  }
}

async function attemptsIn(url: string): Promise<number> {
  const rows = await look(url, (sql) => sql`SELECT request_id FROM attempts`);
  return rows.length;
}

test(
  "SIGTERM lets what runs end whole, takes nothing new, settles everything, and exits 0",
  async () => {
    const running = await start();
    const { sent, ended } = await begin(running, [
      "steady",
      "crawling",
      "crawling",
      "uncounted",
      "slow-plain",
      "slow-plain",
    ]);
    running.gateway.signal("SIGTERM");
    await until("the gateway is stopping", () => running.gateway.stdout().includes("stopping"));
    const late = sentOf("late", kindOf("plain"));
    await receive(late, running.baseUrl, running.key).catch(() => {});
    expect(late.isWhole).toBeFalse();
    await ended;
    expect(sent.filter(({ isWhole }) => !isWhole)).toEqual([]);
    expect(await exitOf(running.gateway)).toBe(0);
    const lastMs = Math.max(...sent.map(({ endedAtMs }) => endedAtMs));
    expect(performance.now() - lastMs).toBeLessThan(CLOSING_MS);
    expect(running.gateway.stderr()).toBe("");
    await withDatabase(running.dataDir, async (url) => {
      expect(await attemptsIn(url)).toBe(0);
      expect(await auditOf(url, upstream, sent)).toEqual([]);
      expect((await look(url, billsByTag)).get("late")).toBeUndefined();
    });
  },
  TIMEOUT_MS,
);

test(
  "a stop that has waited long enough ends its slowest streams with an error, and charges them before it exits",
  async () => {
    const running = await start({ GATEWAY_SHUTDOWN_GRACE_MS: "400" });
    const { sent, ended } = await begin(running, ["crawling", "crawling", "slow-plain"]);
    const stoppedAtMs = performance.now();
    running.gateway.signal("SIGTERM");
    expect(await exitOf(running.gateway)).toBe(0);
    expect(performance.now() - stoppedAtMs).toBeLessThan(400 + CLOSING_MS);
    await ended;
    const [first, second, plain] = sent as [Sent, Sent, Sent];
    expect([first.isWhole, second.isWhole, plain.isWhole]).toEqual([false, false, true]);
    // Each got an answer, and pays for no less than it got: for the audit nothing was killed.
    expect([first.errorCode, second.errorCode]).toEqual(["overloaded", "overloaded"]);
    await withDatabase(running.dataDir, async (url) => {
      expect(await attemptsIn(url)).toBe(0);
      expect(await auditOf(url, upstream, sent)).toEqual([]);
    });
  },
  TIMEOUT_MS,
);

test(
  "a call that waits for another one under its idempotency key is told of the stop, and does not begin it again",
  async () => {
    const running = await start({ GATEWAY_SHUTDOWN_GRACE_MS: "400" });
    const call = () =>
      fetch(`${running.baseUrl}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${running.key}`,
          "content-type": "application/json",
          "idempotency-key": "the same key",
        },
        body: JSON.stringify({
          model: "test/crawling",
          messages: [{ role: "user", content: "eightchr" }],
          stream: true,
        }),
      });
    const first = await call();
    const waiting = call();
    // A request behind it on the same way has been answered, so it waits by now.
    await begin(running, ["slow-plain"]).then(({ ended }) => ended);
    const stoppedAtMs = performance.now();
    running.gateway.signal("SIGTERM");
    const told = await waiting;
    expect([told.status, told.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(await told.json()).toMatchObject({ error: { code: "overloaded" } });
    expect(await first.text()).toContain("The gateway is stopping.");
    expect(await exitOf(running.gateway)).toBe(0);
    expect(performance.now() - stoppedAtMs).toBeLessThan(400 + CLOSING_MS);
  },
  TIMEOUT_MS,
);

test(
  "Ctrl-C under `bun run`, which hands on what the gateway received already, lets what runs end whole",
  async () => {
    writeFileSync(join(grounds.folder, "package.json"), '{"scripts": {"through": "env"}}');
    const running = await start({}, [process.execPath, "run", "through"]);
    const { sent, ended } = await begin(running, ["crawling", "steady"]);
    process.kill(-running.gateway.pid, "SIGINT");
    expect(await exitOf(running.gateway)).toBe(0);
    await ended;
    expect(sent.filter(({ isWhole }) => !isWhole)).toEqual([]);
  },
  TIMEOUT_MS,
);

test(
  "a second SIGINT does not wait for anything, and the next start settles what was running",
  async () => {
    const running = await start();
    const { sent, ended } = await begin(running, ["crawling", "steady"]);
    running.gateway.signal("SIGINT");
    await until("the gateway is stopping", () => running.gateway.stdout().includes("stopping"));
    const secondAtMs = performance.now();
    running.gateway.signal("SIGINT");
    expect(await exitOf(running.gateway)).toBe(1);
    expect(performance.now() - secondAtMs).toBeLessThan(3_000);
    for (const one of sent) one.wasCut = true;
    await ended;
    expect(sent.filter(({ isWhole }) => isWhole)).toEqual([]);
    const next = grounds.launch({
      dataDir: running.dataDir,
      environment: { GATEWAY_CONFIG: configPath },
    });
    await next.listening;
    next.signal("SIGTERM");
    expect(await exitOf(next)).toBe(0);
    await withDatabase(running.dataDir, async (url) => {
      expect(await auditOf(url, upstream, sent)).toEqual([]);
    });
  },
  TIMEOUT_MS,
);

test(
  "a stop while the database is out of reach ends in time and says so, and the next start settles what was running",
  async () => {
    const database = await createTestDatabase();
    const network = await startCuttingProxy(database.url);
    const environment = {
      GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      GATEWAY_SHUTDOWN_GRACE_MS: "300",
    };
    const running = await start({ ...environment, DATABASE_URL: network.url });
    const streams = await begin(running, ["crawling", "steady"]);
    // Answered by its provider when the database is gone already: its charge waits.
    const plain = await begin(running, ["slow-plain"]);
    network.breakDown();
    const sent = [...streams.sent, ...plain.sent];
    const stoppedAtMs = performance.now();
    running.gateway.signal("SIGTERM");
    expect(await exitOf(running.gateway)).toBe(1);
    expect(performance.now() - stoppedAtMs).toBeLessThan(2 * CLOSING_MS);
    expect(running.gateway.stdout()).toContain("the database does not answer");
    for (const one of sent) one.wasCut = true;
    await Promise.all([streams.ended, plain.ended]);
    const next = grounds.launch({
      dataDir: running.dataDir,
      environment: { ...environment, GATEWAY_CONFIG: configPath, DATABASE_URL: database.url },
    });
    await next.listening;
    expect(await auditOf(database.url, upstream, sent)).toEqual([]);
    next.signal("SIGTERM");
    expect(await exitOf(next)).toBe(0);
    await network.stop();
    await database.drop();
  },
  TIMEOUT_MS,
);

test(
  "Ctrl-C while it starts ends it and its server, and the next start works",
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      const gateway = grounds.launch({ dataDir });
      await until("its server runs", () => serverPid(dataDir) !== undefined);
      gateway.signal(signal);
      expect(await exitOf(gateway)).not.toBe(0);
      expect(gateway.stdout()).not.toContain("listening on");
      await until("its server has ended", () => serverPid(dataDir) === undefined);
    }
    const next = grounds.launch({ dataDir });
    await next.listening;
    next.signal("SIGTERM");
    expect(await exitOf(next)).toBe(0);
  },
  TIMEOUT_MS,
);
