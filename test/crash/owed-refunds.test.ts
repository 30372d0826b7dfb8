import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { type Cluster, type Instance, openCluster } from "../clustered/cluster.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { billsByTag, brokenRules, look } from "./books.ts";
import { exitOf, firstKeys, type GatewayProcess, Grounds } from "./gateway-process.ts";
import { KINDS, prepareKinds } from "./kinds.ts";
import { receive, type Sent, sentOf } from "./load.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * A process knows that a charge became durable for an answer that never left, and dies before it has given
 * it back. The next one in its folder does.
 */

const TIMEOUT_MS = 60_000;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");

function send(
  kindName: string,
  baseUrl: string,
  key: string,
): { sent: Sent; ended: Promise<unknown> } {
  const sent = sentOf(crypto.randomUUID(), KINDS.find(({ name }) => name === kindName)!);
  return { sent, ended: receive(sent, baseUrl, key).catch(() => {}) };
}

/** What the request was charged, and whether it stands; undefined where it was not. */
const billOf = (databaseUrl: string, { tag }: Sent) =>
  look(databaseUrl, async (sql) => {
    const bills = (await billsByTag(sql)).get(tag) ?? [];
    expect(bills.length).toBeLessThan(2);
    return bills[0];
  });

async function expectBooks(databaseUrl: string, refunds: number): Promise<void> {
  const [broken, [row]] = await look(databaseUrl, (sql) =>
    Promise.all([
      brokenRules(sql),
      sql`SELECT count(*)::int AS refunds FROM transactions WHERE type = 'refund'`,
    ]),
  );
  expect(broken).toEqual([]);
  expect(row).toEqual({ refunds });
}

/** As heartbeats would. */
const extendLeases = (databaseUrl: string, ids: readonly string[]) =>
  look(
    databaseUrl,
    (sql) =>
      sql`UPDATE instances SET heartbeat_at = clock_timestamp() WHERE alive AND id = ANY (${[...ids]})`,
  );

const notesIn = (dataDir: string): string[] => {
  const folder = join(dataDir, "refunds-owed");
  return existsSync(folder) ? readdirSync(folder) : [];
};

describe("a gateway that told 503 for a charge whose fate it did not know, and was killed", () => {
  const grounds = new Grounds("owed-refunds");
  const configPath = join(grounds.folder, "gateway.config.json");
  let upstream: UpstreamProcess;
  let database: TestDatabase;
  let network: CuttingProxy;
  let dataDir: string;
  beforeAll(async () => {
    upstream = await startUpstreamProcess();
    await prepareKinds(upstream, configPath);
  });
  beforeEach(async () => {
    database = await createTestDatabase();
    network = await startCuttingProxy(database.url);
    dataDir = grounds.newDataDir();
  });
  afterEach(async () => {
    await network.stop();
    await database.drop();
  });
  afterAll(async () => {
    await grounds.clear();
    await upstream.stop();
  });

  const launch = (url: string): GatewayProcess =>
    grounds.launch({
      dataDir,
      environment: {
        GATEWAY_CONFIG: configPath,
        DATABASE_URL: url,
        GATEWAY_MASTER_KEY: MASTER_KEY,
      },
    });

  /** Tells 503 and is killed; the charge, where it arrived, was made meanwhile. */
  async function die(arrives: boolean): Promise<Sent> {
    const gateway = launch(network.url);
    const baseUrl = await gateway.listening;
    const key = firstKeys(dataDir).secret_key;
    // What is known of the key is loaded before the network ends.
    await send("plain", baseUrl, key).ended;
    if (!arrives) network.swallow();
    const { sent, ended } = send("plain", baseUrl, key);
    if (arrives) {
      network.arm("hold its reply", sent.tag);
      await until("it is charged", () => billOf(database.url, sent));
      network.swallow();
    }
    await ended;
    expect(sent).toMatchObject({ status: 503, errorCode: "database_unavailable" });
    gateway.signal("SIGKILL");
    await gateway.exited;
    // The server learns that it is gone.
    network.breakDown();
    return sent;
  }

  test(
    "is followed by one that gives it back, once",
    async () => {
      const sent = await die(true);
      expect(await billOf(database.url, sent)).toMatchObject({ isRefunded: false });
      expect(notesIn(dataDir)).toHaveLength(1);
      for (let start = 0; start < 2; start++) {
        const gateway = launch(database.url);
        await gateway.listening;
        await until("it is given back", async () => (await billOf(database.url, sent))?.isRefunded);
        await until("nothing is noted any more", () => notesIn(dataDir).length === 0);
        gateway.signal("SIGTERM");
        expect(await exitOf(gateway)).toBe(0);
        await expectBooks(database.url, 1);
      }
    },
    TIMEOUT_MS,
  );

  test(
    "is followed by one that replays the answer where it was kept under an idempotency key",
    async () => {
      const gateway = launch(network.url);
      const baseUrl = await gateway.listening;
      const key = firstKeys(dataDir).secret_key;
      await send("plain", baseUrl, key).ended;
      // Only the ledger's: the heartbeats commit too.
      network.arm("hold its reply", "commit\0", "gateway-ledger");
      const { sent, ended } = send("insistent", baseUrl, key);
      await until("it is charged", () => billOf(database.url, sent));
      network.swallow();
      await ended;
      expect(sent).toMatchObject({ status: 503, errorCode: "database_unavailable" });
      gateway.signal("SIGKILL");
      await gateway.exited;
      network.breakDown();
      const successor = launch(database.url);
      await receive(sent, await successor.listening, key);
      expect(sent).toMatchObject({ status: 200, isWhole: true, isReplay: true });
      expect(await billOf(database.url, sent)).toMatchObject({ isRefunded: false });
      await expectBooks(database.url, 0);
      successor.signal("SIGTERM");
      expect(await exitOf(successor)).toBe(0);
    },
    TIMEOUT_MS,
  );

  test(
    "is followed by one that gives nothing back where nothing was charged",
    async () => {
      const sent = await die(false);
      const gateway = launch(database.url);
      await gateway.listening;
      await until("nothing is noted any more", () => notesIn(dataDir).length === 0);
      expect(await billOf(database.url, sent)).toBeUndefined();
      await expectBooks(database.url, 0);
      gateway.signal("SIGTERM");
      expect(await exitOf(gateway)).toBe(0);
    },
    TIMEOUT_MS,
  );
});

const redisBinary = Bun.which("redis-server");
/** The lease, and the looks of the reaper and at the folder behind it. */
const GIVEN_BACK_MS = INSTANCE_LEASE_MS + 6_000;
describe.skipIf(redisBinary === null)("one of several that is back within its lease", () => {
  const grounds = new Grounds("owed-refunds-back");
  let redis: RedisServer;
  let cluster: Cluster;
  let network: CuttingProxy;
  beforeAll(async () => {
    redis = await RedisServer.start(redisBinary!);
    cluster = await openCluster(redis.url);
    network = await startCuttingProxy(cluster.databaseUrl);
    // The first of them does what one does for all.
    await cluster.start();
  }, TIMEOUT_MS);
  afterAll(async () => {
    await cluster?.stop();
    await network?.stop();
    await redis?.kill();
    await grounds.clear();
  });

  test(
    "gives back what its predecessor owed, as soon as that is declared dead",
    async () => {
      const dataDir = grounds.newDataDir();
      const killed = await cluster.start(0, { DATABASE_URL: network.url, DATA_DIR: dataDir });
      await send("plain", killed.baseUrl, cluster.secretKey).ended;
      const { sent, ended } = send("plain", killed.baseUrl, cluster.secretKey);
      network.arm("hold its reply", sent.tag);
      await until("it is charged", () => billOf(cluster.databaseUrl, sent));
      // Its heartbeats go on.
      network.swallow("gateway-ledger");
      await ended;
      expect(sent).toMatchObject({ status: 503, errorCode: "database_unavailable" });
      expect(notesIn(dataDir)).toHaveLength(1);
      killed.gateway.signal("SIGKILL");
      await killed.gateway.exited;
      const alive = () =>
        look(cluster.databaseUrl, async (sql) => {
          const rows = await sql<{ id: string }[]>`SELECT id FROM instances WHERE alive`;
          return rows.map(({ id }) => id);
        });
      const before = await alive();
      // However long a start takes on this machine, the lease has not ended by then.
      const extending = setInterval(() => void extendLeases(cluster.databaseUrl, before), 500);
      await cluster.start(0, { DATA_DIR: dataDir });
      clearInterval(extending);
      // The first, the one that was killed, and the successor.
      expect([before.length, (await alive()).length]).toEqual([2, 3]);
      await until(
        "it is given back",
        async () => (await billOf(cluster.databaseUrl, sent))?.isRefunded,
        GIVEN_BACK_MS,
      );
      await until("nothing is noted any more", () => notesIn(dataDir).length === 0);
      await expectBooks(cluster.databaseUrl, 1);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(redisBinary === null)(
  "a gateway that stood still past its lease in a stream",
  () => {
    let redis: RedisServer;
    let cluster: Cluster;
    let network: CuttingProxy;
    let dataDir: string;
    let paused: Instance;
    const grounds = new Grounds("owed-refunds-several");
    beforeAll(async () => {
      redis = await RedisServer.start(redisBinary!);
      cluster = await openCluster(redis.url);
      network = await startCuttingProxy(cluster.databaseUrl);
      dataDir = grounds.newDataDir();
      await cluster.start();
    }, TIMEOUT_MS);
    beforeEach(async () => {
      paused = await cluster.start(0, { DATABASE_URL: network.url, DATA_DIR: dataDir });
    });
    afterAll(async () => {
      await cluster.stop();
      await network.stop();
      await redis.kill();
      await grounds.clear();
    });

    /** Until another one has charged what it was streaming. It wakes, finds itself dead, and is replaced. */
    async function standStill(sent: Sent): Promise<void> {
      await Bun.sleep(INSTANCE_LEASE_MS);
      await until("its heir has charged it", () => billOf(cluster.databaseUrl, sent));
      network.letThrough("kept");
      paused.gateway.signal("SIGCONT");
      expect(await paused.gateway.exited).toBe(1);
      const successor = await cluster.start(0, { DATA_DIR: dataDir });
      await until("nothing is noted any more", () => notesIn(dataDir).length === 0);
      const next = send("plain", successor.baseUrl, cluster.secretKey);
      await next.ended;
      expect(next.sent.isWhole).toBe(true);
    }

    test(
      "that nothing of was delivered: it is not charged in the end",
      async () => {
        const { sent, ended } = send("crawling", paused.baseUrl, cluster.secretKey);
        network.arm("hold its reply", sent.tag);
        await until("its first checkpoint is durable", () =>
          look(cluster.databaseUrl, async (sql) => {
            const rows = await sql`SELECT 1 FROM attempts WHERE details->>'user' = ${sent.tag}`;
            return rows.length > 0;
          }),
        );
        paused.gateway.signal("SIGSTOP");
        await standStill(sent);
        await ended;
        expect(sent.tokenTimesMs).toEqual([]);
        expect(await billOf(cluster.databaseUrl, sent)).toMatchObject({ isRefunded: true });
        await expectBooks(cluster.databaseUrl, 1);
      },
      TIMEOUT_MS,
    );

    test(
      "that some of was delivered: that is charged, and the client sees it cut off",
      async () => {
        const { sent, ended } = send("crawling", paused.baseUrl, cluster.secretKey);
        await until("some of it is delivered", () => sent.tokenTimesMs.length >= 4);
        paused.gateway.signal("SIGSTOP");
        await standStill(sent);
        await ended;
        expect(sent).toMatchObject({ status: 200, isWhole: false });
        const bill = await billOf(cluster.databaseUrl, sent);
        expect(bill).toMatchObject({ status: 500, isRefunded: false });
        expect(bill!.chargeNano).toBeGreaterThan(0n);
        await expectBooks(cluster.databaseUrl, 1);
      },
      TIMEOUT_MS,
    );
  },
);
