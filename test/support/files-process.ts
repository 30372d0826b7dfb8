import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { exitOf, type GatewayProcess, launchGateway } from "../crash/gateway-process.ts";
import { createTestDatabase } from "./database.ts";
import { countFiles, s3Environment } from "./files-gateway.ts";
import { type S3Server, startS3Server } from "./s3-server.ts";

export interface FilesProcess {
  readonly secretKey: string;
  readonly sql: Database;
  readonly s3: S3Server | undefined;
  /** Starts it, again after it ended; resolves with its base URL. */
  start(): Promise<{ gateway: GatewayProcess; baseUrl: string }>;
  countStored(): Promise<number>;
  stop(): Promise<void>;
}

/** A gateway in a process of its own, on a database and a store that outlive it. */
export async function prepareFilesProcess(
  kind: "disk" | "s3",
  environment: Readonly<Record<string, string>> = {},
): Promise<FilesProcess> {
  const database = await createTestDatabase();
  const sql = connectDatabase(database, { poolSize: 2, applicationName: "test" });
  const folder = await mkdtemp(join(tmpdir(), "gateway-files-"));
  const dataDir = join(folder, "data");
  const s3 = kind === "s3" ? startS3Server() : undefined;
  const { key: secretKey } = generateApiKey("secret");
  const started: GatewayProcess[] = [];
  return {
    secretKey,
    sql,
    s3,
    async start() {
      const gateway = launchGateway({
        dataDir,
        environment: {
          DATABASE_URL: database.url,
          GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
          GATEWAY_SECRET_KEY: secretKey,
          ...(s3 && s3Environment(s3)),
          ...environment,
        },
      });
      started.push(gateway);
      return { gateway, baseUrl: await gateway.listening };
    },
    async countStored() {
      return s3 ? s3.bucket.objects.size + s3.bucket.uploads.size : countFiles(dataDir);
    },
    async stop() {
      for (const gateway of started) {
        gateway.signal("SIGTERM");
        await exitOf(gateway);
      }
      await sql.end();
      await database.drop();
      await s3?.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
