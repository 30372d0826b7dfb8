import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { chatLine, type Json } from "../support/batches.ts";
import { formOf, s3Environment } from "../support/files-gateway.ts";
import { findTestRedis } from "../support/redis.ts";
import { type S3Server, startS3Server } from "../support/s3-server.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const LINES = 80;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("a batch in the hands of two gateways that share S3", () => {
  let s3: S3Server;
  let cluster: Cluster;
  let sql: Database;
  beforeAll(async () => {
    s3 = startS3Server();
    cluster = await openCluster(redis!.url, s3Environment(s3));
    await cluster.upstream.behave("slow-plain", { do: "complete", firstDelayMs: 300 });
    sql = connectDatabase({ url: cluster.databaseUrl }, { poolSize: 2, applicationName: "test" });
  }, TIMEOUT_MS);
  afterAll(async () => {
    await sql.end();
    await cluster.stop();
    await s3.stop();
  });

  /** Again where it is 503: what an instance that has just begun knows may not be fresh yet. */
  const call = ({ baseUrl }: Instance, path: string, init: RequestInit = {}) =>
    until(`${path} answers`, async () => {
      const headers = { authorization: `Bearer ${cluster.secretKey}`, ...init.headers };
      const response = await fetch(baseUrl + path, { ...init, headers });
      if (response.status === 503) return undefined;
      expect(response.status).toBe(200);
      return response;
    });
  const json = async (answer: Promise<Response>): Promise<Json> => (await answer).json() as never;

  test(
    "is taken over when its owner dies, each line answered once and charged once",
    async () => {
      const first = await cluster.start();
      const [{ id: firstId }] = await sql<[{ id: string }]>`SELECT id FROM instances WHERE alive`;
      const second = await cluster.start();
      const ids = Array.from({ length: LINES }, (_, n) => `line-${n}`);
      const lines = ids.map((user) => chatLine(user, { model: "test/slow-plain", user }));
      const form = formOf(["purpose", "batch"], ["file", new File(lines, "requests.jsonl")]);
      const file = await json(call(first, "/v1/files", { method: "POST", body: form }));
      const { id } = await json(
        call(first, "/v1/batches", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({
            input_file_id: file.id,
            endpoint: "/v1/chat/completions",
            completion_window: "24h",
          }),
        }),
      );
      const read = (instance: Instance) => json(call(instance, `/v1/batches/${id}`));
      await until(
        "some lines are answered",
        async () => (await read(first)).request_counts.completed > 8,
      );
      const [lease] = await sql<{ owner: string }[]>`
        SELECT instance_id AS owner FROM actor_leases WHERE kind = 'batch' AND id = ${id}`;
      const [owner, other] = lease!.owner === firstId ? [first, second] : [second, first];
      owner.gateway.signal("SIGKILL");
      await owner.gateway.exited;
      expect((await read(other)).request_counts.completed).toBeLessThan(LINES);
      const ended = await until(
        "the other one has ended it",
        async () => {
          const batch = await read(other);
          return batch.completed_at === null ? undefined : batch;
        },
        60_000,
      );
      expect(ended.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
      const content = await (await call(other, `/v1/files/${ended.output_file_id}/content`)).text();
      const answers = content
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Json);
      expect(answers.map(({ custom_id }) => custom_id)).toEqual(ids);
      const charged = await sql<{ request_id: string; user: string }[]>`
        SELECT request_id, details->>'user' AS user FROM transactions
        WHERE type = 'usage' AND model = 'test/slow-plain'`;
      const pairs = (all: readonly (readonly [string, string])[]) =>
        all.map((pair) => pair.join(" ")).sort();
      expect(pairs(charged.map((row) => [row.user, row.request_id]))).toEqual(
        pairs(answers.map(({ custom_id, response }) => [custom_id, response.request_id])),
      );
      const [held] = await sql<
        { nano: bigint }[]
      >`SELECT sum(held_nano)::bigint AS nano FROM accounts`;
      expect(held!.nano).toBe(0n);
    },
    TIMEOUT_MS,
  );
});
