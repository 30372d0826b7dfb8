import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import {
  type PreparedOrganization,
  prepareOrganization,
} from "../../src/accounts/organizations/organizations.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { composeGateway, type Gateway } from "../../src/main/compose.ts";
import { type GatewayConfig, readConfig } from "../../src/platform/config.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import type { ProviderFactory } from "../../src/providers/registry.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { MASTER_KEY, testKeyring } from "./master-key.ts";

export interface TestGatewayOptions {
  /** What stands in the file of providers and models. */
  readonly configuration?: object;
  /** Settings by the names of their environment variables. */
  readonly environment?: Record<string, string>;
  readonly startingCreditUsd?: number;
  readonly plan?: string;
  readonly clock?: Clock;
  /** One that holds something already; dropped with the gateway. */
  readonly database?: TestDatabase;
  /** By provider type, wire formats that stand in the place of the built-in one. */
  readonly wires?: Readonly<Record<string, ProviderFactory>>;
  /** Fills its organization, before it starts. */
  fill?(sql: Database, organizationId: string): Promise<void>;
}

export interface TestGateway {
  /** Without /v1. */
  readonly baseUrl: string;
  readonly organizationId: string;
  readonly managementKey: string;
  readonly secretKey: string;
  /** A connection of the test's own, for looking. */
  readonly sql: Database;
  readonly databaseUrl: string;
  readonly telemetry: Telemetry;
  /** Lines that were logged so far. */
  readonly logLines: readonly string[];
  /** Another organization, with keys of its own. */
  addOrganization(options?: { creditUsd?: number; plan?: string }): Promise<PreparedOrganization>;
  /** Sends JSON with the secret key, unless told otherwise. */
  request(
    method: string,
    path: string,
    body?: unknown,
    init?: RequestInit & { key?: string },
  ): Promise<Response>;
  stop(): Promise<void>;
}

const NANO_PER_USD = 1_000_000_000;

/** The whole gateway in this process, on a database of its own and a free port. */
export async function startTestGateway(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const database = options.database ?? (await createTestDatabase());
  const config = readTestConfig(database.url, options);
  const sql = connectDatabase(database, { poolSize: 2, applicationName: "test" });
  const addOrganization = async (wish: { creditUsd?: number; plan?: string } = {}) => {
    const prepared = prepareOrganization(
      {
        name: `Organization ${crypto.randomUUID()}`,
        plan: wish.plan ?? "free",
        startingCreditNano: BigInt(Math.round((wish.creditUsd ?? 10) * NANO_PER_USD)),
      },
      Date.now(),
    );
    await sql.begin((transaction) => createOrganization(transaction, prepared.organization));
    return prepared;
  };
  const first = await addOrganization({ creditUsd: options.startingCreditUsd, plan: options.plan });
  await options.fill?.(sql, first.organization.id);
  const logLines: string[] = [];
  const telemetry = createTelemetry({
    level: "info",
    destination: {
      write: (line: string) => void logLines.push(line),
      flushSync() {},
      close: async () => {},
    } as never,
  });
  const gateway: Gateway = await composeGateway({
    config,
    database,
    keyring: await testKeyring(sql),
    telemetry,
    clock: options.clock,
    providerFactories: options.wires,
    onFenced: () => {},
  });
  gateway.app.listen({ port: 0, hostname: "127.0.0.1", reusePort: false });
  const baseUrl = `http://127.0.0.1:${gateway.app.server!.port}`;
  return {
    baseUrl,
    organizationId: first.organization.id,
    managementKey: first.managementKey,
    secretKey: first.secretKey,
    sql,
    databaseUrl: database.url,
    telemetry,
    logLines,
    addOrganization,
    request(method, path, body, { key = first.secretKey, headers, ...init } = {}) {
      return fetch(`${baseUrl}${path}`, {
        method,
        ...init,
        headers: {
          authorization: `Bearer ${key}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(headers as Record<string, string>),
        },
        ...(body === undefined
          ? {}
          : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
    },
    async stop() {
      await gateway.app.server?.stop(true);
      await gateway.close();
      await telemetry.close();
      await sql.end();
      await database.drop();
    },
  };
}

function readTestConfig(databaseUrl: string, options: TestGatewayOptions): GatewayConfig {
  const { configuration, environment } = options;
  const folder = mkdtempSync(join(tmpdir(), "test-gateway-"));
  try {
    const configPath = join(folder, "gateway.config.json");
    writeFileSync(configPath, JSON.stringify(configuration ?? {}));
    return readConfig(
      {
        PORT: "0",
        DATABASE_URL: databaseUrl,
        GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
        DATABASE_POOL_SIZE: "4",
        GATEWAY_MODEL_LISTS_SECONDS: "0",
        GATEWAY_HEALTH_CHECK_SECONDS: "0",
        GATEWAY_CONFIG: configPath,
        ...environment,
      },
      { cwd: import.meta.dir },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}
