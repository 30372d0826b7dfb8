import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { exitOf, type GatewayProcess, Grounds } from "../crash/gateway-process.ts";
import { prepareKinds } from "../crash/kinds.ts";
import { startUpstreamProcess, type UpstreamProcess } from "../crash/upstream-process.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

/** Several gateways on one database and one Redis, each in a process of its own, with one upstream. */
export interface Cluster {
  readonly databaseUrl: string;
  readonly upstream: UpstreamProcess;
  readonly managementKey: string;
  readonly secretKey: string;
  /** What each gateway is told. */
  readonly environment: Readonly<Record<string, string>>;
  /** Starts a gateway, or this program, on this port and waits for it to listen. */
  start(
    port?: number,
    settings?: Readonly<Record<string, string>>,
    program?: string,
  ): Promise<Instance>;
  stop(): Promise<void>;
}

export interface Instance {
  readonly gateway: GatewayProcess;
  readonly baseUrl: string;
}

export async function openCluster(
  redisUrl: string,
  settings: Readonly<Record<string, string>> = {},
  openDatabase: () => Promise<TestDatabase> = createTestDatabase,
): Promise<Cluster> {
  const grounds = new Grounds("clustered");
  const configPath = join(grounds.folder, "gateway.config.json");
  const [database, upstream] = await Promise.all([openDatabase(), startUpstreamProcess()]);
  await prepareKinds(upstream, configPath);
  const managementKey = generateApiKey("management").key;
  const secretKey = generateApiKey("secret").key;
  const environment = {
    REDIS_URL: redisUrl,
    DATABASE_URL: database.url,
    DATABASE_POOL_SIZE: "3",
    GATEWAY_CONFIG: configPath,
    GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_SECRET_KEY: secretKey,
    GATEWAY_STARTING_CREDIT_USD: "1000",
    ...settings,
  };
  return {
    databaseUrl: database.url,
    upstream,
    managementKey,
    secretKey,
    environment,
    async start(port = 0, ownSettings = {}, program = undefined) {
      const gateway = grounds.launch({
        program,
        dataDir: grounds.newDataDir(),
        environment: { ...environment, PORT: String(port), ...ownSettings },
      });
      return { gateway, baseUrl: await gateway.listening };
    },
    async stop() {
      await grounds.clear();
      await upstream.stop();
      await database.drop();
    },
  };
}

/** Stops it in order; returns its exit code. */
export function stopInOrder({ gateway }: Instance): Promise<number | null> {
  gateway.signal("SIGTERM");
  return exitOf(gateway);
}
