import { expect } from "bun:test";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { migrate } from "../../db/migrate.ts";
import { type Cluster, type Instance, openCluster } from "../clustered/cluster.ts";
import { RedisServer } from "../support/redis-server.ts";
import { LOCAL_DELIVERY } from "../webhooks/receiver.ts";
import { look } from "./books.ts";
import { Grounds, killServer } from "./gateway-process.ts";
import { urlOfLaunch, watchStaleWrites } from "./stale-writes.ts";

/** Several gateways on a Postgres and a Redis of their own, all of which may be killed. */
export interface ClusteredGrounds {
  readonly cluster: Cluster;
  readonly redis: RedisServer;
  readonly instances: readonly Instance[];
  /** The addresses of all of them, but of the one at this place. */
  urls(but?: number): string[];
  /** Starts the gateway at this place, under the address that it had. */
  start(place: number): Promise<void>;
  /** How long the start that is under way has taken so far; 0 where none is. */
  startingMs(): number;
  killDatabase(): void;
  /** Starts the killed server again, at the same place. */
  reviveDatabase(): Promise<void>;
  clear(): Promise<void>;
}

export async function openClusteredGrounds(
  redisBinary: string,
  count: number,
  environment: Readonly<Record<string, string>> = {},
): Promise<ClusteredGrounds> {
  const grounds = new Grounds("several-crash");
  const dataDir = await grounds.newDataDirWithDatabase();
  // Processes are killed here, not the machine, so nothing needs to reach the disk.
  const settings = { fsync: "off", full_page_writes: "off" };
  const startServer = () => startEmbeddedPostgres({ dataDir, log: () => {}, settings });
  let server = await startServer();
  const redis = await RedisServer.start(redisBinary);
  const { url } = server;
  await migrate({ url });
  await look(url, watchStaleWrites);
  const cluster = await openCluster(redis.url, { ...LOCAL_DELIVERY, ...environment }, async () => ({
    url,
    drop: () => server.stop(),
  }));
  const instances: Instance[] = [];
  let launches = 0;
  let startedMs: number | undefined;
  const start = async (place: number) => {
    startedMs = performance.now();
    const before = instances[place];
    const port = before === undefined ? 0 : Number(new URL(before.baseUrl).port);
    const ownUrl = urlOfLaunch(url, `launch-${launches++}`);
    instances[place] = await cluster.start(port, { DATABASE_URL: ownUrl });
    startedMs = undefined;
  };
  for (let place = 0; place < count; place++) await start(place);
  return {
    cluster,
    redis,
    instances,
    urls: (but) => instances.filter((_, place) => place !== but).map(({ baseUrl }) => baseUrl),
    start,
    startingMs: () => (startedMs === undefined ? 0 : performance.now() - startedMs),
    killDatabase: () => killServer(dataDir),
    async reviveDatabase() {
      // Its supervisor would give up after the fifth death in an hour.
      await server.stop();
      server = await startServer();
      expect(server.url).toBe(url);
    },
    async clear() {
      await cluster.stop();
      await redis.kill();
      await grounds.clear();
    },
  };
}
