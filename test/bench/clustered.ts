import { join } from "node:path";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { RedisServer } from "../support/redis-server.ts";
import { prepareDatabase } from "./bench-database.ts";
import { createKeys } from "./bench-keys.ts";
import { startChild } from "./children.ts";
import type { Cleanups } from "./cleanups.ts";
import { median } from "./compare.ts";
import { Driver, type Measurement, type Target } from "./driver.ts";
import { type GatewayOptions, startGateway } from "./gateway-process.ts";
import { checkLedger } from "./ledger-check.ts";
import type { ClusteredGateways, GroupMeasurement } from "./results.ts";
import { CHAT } from "./rows.ts";
import type { Stage } from "./sections.ts";

const INSTANCES = 3;
export const CLUSTER_CONNECTIONS = 256;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");

type Figures = Omit<GroupMeasurement, "rateRatio" | "cpuRatio">;

/** Gateways on one database, each with a load generator of its own. */
interface Group {
  readonly members: readonly { readonly driver: Driver; readonly target: Target }[];
  add(): Promise<void>;
  /** Where its ledger differs from its answers. */
  findings(): Promise<readonly string[]>;
}

/**
 * What clustering costs: chat at a single-node gateway, in turn with one gateway that has a Redis, then
 * with three that share database and Redis. Undefined where there is no redis-server.
 */
export async function measureClustered(
  stage: Stage,
  gatewayOptions: GatewayOptions,
  cleanups: Cleanups,
): Promise<ClusteredGateways | undefined> {
  const { options, say } = stage;
  const binary = Bun.which("redis-server");
  if (binary === null) return void say("no redis-server on the PATH: clustering is not measured");
  const redis = await RedisServer.start(binary);
  cleanups.add(() => redis.kill());
  const serverUrl = options.databaseUrl ?? (await startServer(gatewayOptions.folder, cleanups));
  const group = (settings: Record<string, string>) =>
    openGroup({ stage, gatewayOptions, serverUrl, settings, cleanups });
  const single = await group({});
  const cluster = await group({ REDIS_URL: redis.url });
  await single.add();
  await cluster.add();
  const { warmupMs, measureMs, sideRounds } = options;
  const run = (members: Group["members"], longWarmupMs = warmupMs) =>
    measure(members, { warmupMs: longWarmupMs, measureMs });
  const inTurn = async () => {
    const pairs: [Figures, Figures][] = [];
    for (let round = 0; round < sideRounds; round++) {
      pairs.push([await run(single.members), await run(cluster.members)]);
    }
    return pairs;
  };
  const warmMs = options.isQuick ? 1_000 : 3_000;
  say("single-node against one clustered");
  for (const { members } of [single, cluster]) await run(members, warmMs);
  const withOne = await inTurn();
  say("single-node against three clustered");
  while (cluster.members.length < INSTANCES) await cluster.add();
  await run(cluster.members, warmMs);
  const withThree = await inTurn();
  return {
    singleNode: summarise([...withOne, ...withThree].map(([alone]) => [alone, alone])),
    one: summarise(withOne),
    three: summarise(withThree),
    findings: [...(await single.findings()), ...(await cluster.findings())],
  };
}

async function startServer(folder: string, cleanups: Cleanups): Promise<string> {
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "shared"), log: () => {} });
  cleanups.add(() => server.stop());
  return server.url;
}

async function openGroup(parts: {
  readonly stage: Stage;
  readonly gatewayOptions: GatewayOptions;
  readonly serverUrl: string;
  readonly settings: Readonly<Record<string, string>>;
  readonly cleanups: Cleanups;
}): Promise<Group> {
  const { stage, gatewayOptions, serverUrl, cleanups } = parts;
  const database = await prepareDatabase(serverUrl, gatewayOptions.folder);
  cleanups.add(() => database.drop());
  const settings = {
    ...gatewayOptions.settings,
    GATEWAY_MASTER_KEY: MASTER_KEY,
    ...parts.settings,
  };
  const members: { driver: Driver; target: Target }[] = [];
  let key: string | undefined;
  let sql: ReturnType<typeof database.connect> | undefined;
  return {
    members,
    async add() {
      const options = { ...gatewayOptions, databaseUrl: database.url, settings };
      const { pid, port } = await startGateway(options, cleanups);
      if (sql === undefined) {
        const connection = database.connect();
        cleanups.add(() => connection.end({ timeout: 1 }));
        sql = connection;
      }
      key ??= (await createKeys(sql, 1))[0]!;
      const load = startChild("load.ts", cleanups);
      await load.next();
      const driver = new Driver(load, stage.driver.upstreamPid);
      members.push({ driver, target: { name: "gateway", pid, port, key } });
    },
    async findings() {
      const answers = members.reduce((sum, { driver }) => sum + driver.gatewayAnswers, 0);
      const wrong = members.flatMap(({ driver }) => driver.firstWrong ?? []);
      const { findings } = await checkLedger(sql!, { answers, abortedStreams: 0 });
      return [...wrong, ...findings];
    },
  };
}

/** Drives all of them at once; the connections are shared out among them. */
async function measure(
  members: Group["members"],
  run: { readonly warmupMs: number; readonly measureMs: number },
): Promise<Figures> {
  const connections = Math.ceil(CLUSTER_CONNECTIONS / members.length);
  const each: Measurement[] = await Promise.all(
    members.map(({ driver, target }) =>
      driver.run({ ...run, connections, target, workload: CHAT }),
    ),
  );
  const ratePerSecond = each.reduce((sum, one) => sum + one.ratePerSecond, 0);
  const cores = each.reduce((sum, one) => sum + one.targetCores, 0);
  return {
    ratePerSecond,
    p50Ms: median(each.map(({ p50Ms }) => p50Ms)),
    p99Ms: Math.max(...each.map(({ p99Ms }) => p99Ms)),
    cpuMicros: (cores / ratePerSecond) * 1e6,
  };
}

/** Medians of the second of each pair, and of its ratios to the first. */
function summarise(pairs: readonly (readonly [Figures, Figures])[]): GroupMeasurement {
  const of = (field: keyof Figures) => median(pairs.map(([, one]) => one[field]));
  const ratio = (field: keyof Figures) =>
    median(pairs.map(([single, one]) => one[field] / single[field]));
  return {
    ratePerSecond: of("ratePerSecond"),
    p50Ms: of("p50Ms"),
    p99Ms: of("p99Ms"),
    cpuMicros: of("cpuMicros"),
    rateRatio: ratio("ratePerSecond"),
    cpuRatio: ratio("cpuMicros"),
  };
}
