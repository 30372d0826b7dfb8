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
import type { SeveralInstances, SeveralMeasurement } from "./results.ts";
import type { Stage } from "./sections.ts";

const INSTANCES = 3;
const WORKLOAD = { model: "instant", isStream: false } as const;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");

/** Gateways on one database, each with a load generator of its own. */
interface Group {
  readonly members: readonly { readonly driver: Driver; readonly target: Target }[];
  add(): Promise<void>;
  /** What its ledger says that its answers do not. */
  findings(): Promise<readonly string[]>;
}

/**
 * What it costs to be one of several, and what three of them do together: chat at one that is alone, at
 * one that shares its database and a Redis, and at three. Undefined where there is no redis-server.
 */
export async function measureSeveral(
  stage: Stage,
  gatewayOptions: GatewayOptions,
  connections: number,
  cleanups: Cleanups,
): Promise<SeveralInstances | undefined> {
  const { options, say } = stage;
  const binary = Bun.which("redis-server");
  if (binary === null) return void say("no redis-server on the PATH: several are not measured");
  const redis = await RedisServer.start(binary);
  cleanups.add(() => redis.kill());
  const serverUrl = options.databaseUrl ?? (await startServer(gatewayOptions.folder, cleanups));
  const group = (settings: Record<string, string>) =>
    openGroup({ stage, gatewayOptions, serverUrl, settings, cleanups });
  const alone = await group({});
  const several = await group({ REDIS_URL: redis.url });
  await alone.add();
  await several.add();
  const { warmupMs, measureMs, sideRounds: rounds } = options;
  const run = (members: Group["members"], longWarmupMs = warmupMs) =>
    measure(members, { connections, warmupMs: longWarmupMs, measureMs });
  const inTurn = async (one: Group["members"], other: Group["members"]) => {
    const pairs: [SeveralMeasurement, SeveralMeasurement][] = [];
    for (let round = 0; round < rounds; round++) pairs.push([await run(one), await run(other)]);
    return pairs;
  };
  say("one that is alone against one of several");
  const warmMs = options.isQuick ? 1_000 : 3_000;
  for (const { members } of [alone, several]) await run(members, warmMs);
  const shared = await inTurn(alone.members, several.members);
  say("one against three");
  while (several.members.length < INSTANCES) await several.add();
  await run(several.members, warmMs);
  const three = await inTurn(several.members.slice(0, 1), several.members);
  const findings = [...(await alone.findings()), ...(await several.findings())];
  const ratio = (pairs: typeof shared) =>
    median(pairs.map(([before, after]) => after.ratePerSecond / before.ratePerSecond));
  return {
    alone: medianOf(shared.map(([one]) => one)),
    shared: medianOf(shared.map(([, one]) => one)),
    sharedRatio: ratio(shared),
    one: medianOf(three.map(([one]) => one)),
    three: medianOf(three.map(([, all]) => all)),
    threeRatio: ratio(three),
    findings,
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
  const settings = { GATEWAY_MASTER_KEY: MASTER_KEY, ...parts.settings };
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
  run: {
    readonly connections: number;
    readonly warmupMs: number;
    readonly measureMs: number;
  },
): Promise<SeveralMeasurement> {
  const connections = Math.ceil(run.connections / members.length);
  const each: Measurement[] = await Promise.all(
    members.map(({ driver, target }) =>
      driver.run({ ...run, connections, target, workload: WORKLOAD }),
    ),
  );
  const ratePerSecond = each.reduce((sum, one) => sum + one.ratePerSecond, 0);
  const cores = each.reduce((sum, one) => sum + one.targetCores, 0);
  return {
    ratePerSecond,
    p50Ms: median(each.map(({ p50Ms }) => p50Ms)),
    p99Ms: Math.max(...each.map(({ p99Ms }) => p99Ms)),
    cpuMicrosPerRequest: (cores / ratePerSecond) * 1e6,
  };
}

function medianOf(rounds: readonly SeveralMeasurement[]): SeveralMeasurement {
  const of = (field: keyof SeveralMeasurement) => median(rounds.map((one) => one[field]));
  return {
    ratePerSecond: of("ratePerSecond"),
    p50Ms: of("p50Ms"),
    p99Ms: of("p99Ms"),
    cpuMicrosPerRequest: of("cpuMicrosPerRequest"),
  };
}
