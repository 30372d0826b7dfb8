import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { runCliHere } from "../cli/cli-runs.ts";
import { Grounds } from "../crash/gateway-process.ts";
import { expectError } from "../support/error-envelope.ts";
import { countFiles } from "../support/files-gateway.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("two gateways whose folders are not shared", () => {
  const grounds = new Grounds("folders");
  const dataDirs = [grounds.newDataDir(), grounds.newDataDir()];
  let cluster: Cluster;
  let sql: Database;
  let first: Instance;
  let second: Instance;
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    sql = connectDatabase({ url: cluster.databaseUrl }, { poolSize: 1, applicationName: "test" });
    for (const dataDir of dataDirs) mkdirSync(dataDir);
    first = await cluster.start(0, { DATA_DIR: dataDirs[0]! });
    second = await cluster.start(0, { DATA_DIR: dataDirs[1]! });
  }, TIMEOUT_MS);
  afterAll(async () => {
    await sql?.end();
    await cluster?.stop();
    await grounds.clear();
  });

  const authorization = () => ({ authorization: `Bearer ${cluster.secretKey}` });
  const call = ({ baseUrl }: Instance, method: string, path: string) =>
    fetch(`${baseUrl}${path}`, { method, headers: authorization() });
  function upload({ baseUrl }: Instance): Promise<Response> {
    const body = new FormData();
    body.append("purpose", "user_data");
    body.append("file", new File(["content"], "a"));
    return fetch(`${baseUrl}/v1/files`, { method: "POST", headers: authorization(), body });
  }
  const uploadToFirst = async () => {
    const response = await upload(first);
    expect(response.status).toBe(200);
    return ((await response.json()) as { id: string }).id;
  };

  test(
    "notice it: the one without a file says 503, and why in its log, loses nothing, and keeps files of its own",
    async () => {
      const id = await uploadToFirst();
      await expectError(await call(second, "GET", `/v1/files/${id}/content`), 503, "overloaded");
      await until("its log says why", () =>
        second.gateway.stdout().includes("is not the folder of the database's files"),
      );
      expect((await call(second, "GET", `/v1/files/${id}`)).status).toBe(200);
      expect(await (await call(first, "GET", `/v1/files/${id}/content`)).text()).toBe("content");
      // Deleted there, it is removed by whoever has it.
      expect((await call(second, "DELETE", `/v1/files/${id}`)).status).toBe(200);
      await sql`UPDATE file_removals SET due_at = clock_timestamp()`;
      await (await call(first, "DELETE", `/v1/files/${await uploadToFirst()}`)).text();
      await until("no bytes are left", async () => (await countFiles(dataDirs[0]!)) === 0);
      expect(await countFiles(dataDirs[1]!)).toBe(0);
      const kept = ((await (await upload(second)).json()) as { id: string }).id;
      expect(await (await call(second, "GET", `/v1/files/${kept}/content`)).text()).toBe("content");
    },
    TIMEOUT_MS,
  );

  test(
    "are told by doctor",
    async () => {
      await uploadToFirst();
      const findings = async (dataDir: string) => {
        const settings = { ...cluster.environment, DATA_DIR: dataDir };
        const { stdout } = await runCliHere(settings, "doctor", "--json");
        const { checks } = JSON.parse(stdout) as {
          checks: { name: string; state: string; detail: string }[];
        };
        return checks.filter(({ name }) => name === "file storage");
      };
      expect(await findings(dataDirs[0]!)).toEqual([
        { name: "file storage", state: "ok", detail: join(dataDirs[0]!, "files") },
      ]);
      const [wrong] = await findings(dataDirs[1]!);
      expect(wrong).toMatchObject({ name: "file storage", state: "wrong" });
      expect(wrong!.detail).toContain("it has no id");
    },
    TIMEOUT_MS,
  );
});
