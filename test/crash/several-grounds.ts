import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { migrate } from "../../db/migrate.ts";
import { type Cluster, type Instance, openCluster } from "../several/cluster.ts";
import { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY } from "../webhooks/receiver.ts";
import { look } from "./books.ts";
import { Grounds, killServer } from "./gateway-process.ts";
import { urlOfLaunch, watchStaleWrites } from "./stale-writes.ts";

const REVIVAL_TIMEOUT_MS = 20_000;

/** Several gateways on a Postgres and a Redis of their own, all of which may be killed. */
export interface SeveralGrounds {
  readonly cluster: Cluster;
  readonly redis: RedisServer;
  readonly instances: readonly Instance[];
  /** Starts the gateway at this place, under the address that it had. */
  start(place: number): Promise<void>;
  /** Kills the database server; its supervisor starts it again. */
  killDatabase(): void;
  databaseIsBack(): Promise<void>;
  clear(): Promise<void>;
}

export async function openSeveralGrounds(
  redisBinary: string,
  count: number,
): Promise<SeveralGrounds> {
  const grounds = new Grounds("several-crash");
  const dataDir = grounds.newDataDir();
  // Processes are killed here, not the machine, so nothing needs to reach the disk.
  const settings = { fsync: "off", full_page_writes: "off" };
  const [server, redis] = await Promise.all([
    startEmbeddedPostgres({ dataDir, log: () => {}, transport: "tcp", settings }),
    RedisServer.start(redisBinary),
  ]);
  await migrate(server);
  await look(server.url, watchStaleWrites);
  const cluster = await openCluster(redis.url, LOCAL_DELIVERY, async () => ({
    url: server.url,
    drop: () => server.stop(),
  }));
  const instances: Instance[] = [];
  let launches = 0;
  const start = async (place: number) => {
    const before = instances[place];
    const port = before === undefined ? 0 : Number(new URL(before.baseUrl).port);
    const url = urlOfLaunch(server.url, `launch-${launches++}`);
    instances[place] = await cluster.start(port, { DATABASE_URL: url });
  };
  for (let place = 0; place < count; place++) await start(place);
  return {
    cluster,
    redis,
    instances,
    start,
    killDatabase: () => killServer(dataDir),
    async databaseIsBack() {
      await until(
        "the database is back",
        () => look(server.url, (sql) => sql`SELECT 1`).catch(() => undefined),
        REVIVAL_TIMEOUT_MS,
      );
    },
    async clear() {
      await cluster.stop();
      await redis.kill();
      await grounds.clear();
    },
  };
}
