import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { look } from "../crash/books.ts";
import { findTestRedis } from "../support/redis.ts";
import { LESSONS, lessonsText, SANDBOX_BASE } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const ENDS_WITHIN_MS = 30_000;
/** An organization may have no more at a time. */
const MAX_JOBS = 25;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("fine-tuning on several gateways", () => {
  let cluster: Cluster;
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-shared-"));
  beforeAll(async () => {
    cluster = await openCluster(redis!.url, { DATA_DIR: dataDir });
  }, TIMEOUT_MS);
  afterAll(async () => {
    await cluster.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const call = (
    { baseUrl }: Instance,
    method: string,
    path: string,
    body?: object,
    headers: Record<string, string> = {},
  ) =>
    fetch(`${baseUrl}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        ...(body !== undefined && { "content-type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });

  async function uploadLessons({ baseUrl }: Instance): Promise<string> {
    const form = new FormData();
    form.append("purpose", "fine-tune");
    form.append("file", new File([lessonsText()], "lessons.jsonl"));
    const response = await fetch(`${baseUrl}/v1/files`, {
      method: "POST",
      headers: { authorization: `Bearer ${cluster.secretKey}` },
      body: form,
    });
    return ((await response.json()) as { id: string }).id;
  }

  const ask = async (instance: Instance, model: string) => {
    const messages = [{ role: "user", content: LESSONS[0].prompt }];
    return call(instance, "POST", "/v1/chat/completions", { model, messages });
  };

  test(
    "jobs go on when their owner is killed, are followed anywhere, and their models are known everywhere at once",
    async () => {
      const [first, second] = [await cluster.start(), await cluster.start()];
      const file = await uploadLessons(first);
      const ids: string[] = [];
      const order = async () => {
        const request = { model: SANDBOX_BASE, training_file: file };
        const response = await call(first, "POST", "/v1/fine_tuning/jobs", request);
        ids.push(((await response.json()) as { id: string }).id);
      };
      await order();
      const feed = call(second, "GET", `/v1/fine_tuning/jobs/${ids[0]}/events`, undefined, {
        accept: "text/event-stream",
      }).then((response) => response.text());
      // Which of the two takes a job is decided by its id.
      await until("both work on jobs", async () => {
        if (ids.length < MAX_JOBS) await order();
        const owners = await look(
          cluster.databaseUrl,
          (sql) => sql`SELECT DISTINCT instance_id FROM actor_leases
            WHERE kind = 'fine-tuning-job' AND instance_id IS NOT NULL`,
        );
        return owners.length === 2;
      });
      first.gateway.signal("SIGKILL");
      await first.gateway.exited;

      const models: string[] = [];
      for (const id of ids) {
        const job = await until(
          "the job ends",
          async () => {
            const response = await call(second, "GET", `/v1/fine_tuning/jobs/${id}`);
            const seen = (await response.json()) as { status: string; fine_tuned_model: string };
            return seen.status === "succeeded" && seen;
          },
          ENDS_WITHIN_MS,
        );
        models.push(job.fine_tuned_model);
      }
      const text = await feed;
      expect(text).toContain("The job has successfully completed");
      expect(text).toEndWith("data: [DONE]\n\n");

      const third = await cluster.start();
      for (const instance of [second, third]) {
        const answer = await ask(instance, models[0]!);
        expect(answer.status).toBe(200);
        expect(await answer.text()).toContain(LESSONS[0].answer);
      }
      const deleted = await call(second, "DELETE", `/v1/models/${models[0]}`);
      expect(deleted.status).toBe(200);
      await until("the third has heard of it", async () => {
        return (await ask(third, models[0]!)).status === 404;
      });
      const books = await look(
        cluster.databaseUrl,
        (sql) => sql<{ charges: bigint; events: bigint; held: bigint }[]>`
          SELECT (SELECT count(*) FROM transactions WHERE description LIKE 'Fine-tuning%') AS charges,
            (SELECT count(*) FROM outbox WHERE type = 'fine_tuning.job.succeeded') AS events,
            (SELECT count(*) FROM holds) AS held`,
      );
      const jobs = BigInt(ids.length);
      expect(books[0]).toEqual({ charges: jobs, events: jobs, held: 0n });
    },
    TIMEOUT_MS,
  );
});
