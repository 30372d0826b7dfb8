import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTuningGateway, type TuningGateway } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { LISTS } from "../upstream/fine-tuning.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway();
}, 60_000);
afterAll(() => gateway.stop());

const fileOf = async (id: string) => {
  const [file, content] = await Promise.all([
    gateway.request("GET", `/v1/files/${id}`),
    gateway.request("GET", `/v1/files/${id}/content`),
  ]);
  return {
    ...((await file.json()) as { status: string; bytes: number; created_at: number }),
    content: await content.text(),
  };
};
const hurried = (id: string, awaited: string, isSo: () => Promise<boolean>) =>
  until(awaited, async () => {
    await gateway.hurry(id);
    return isSo();
  });
const isCleanedUp = async (id: string) => {
  const [row] = await gateway.sql`SELECT is_cleaned_up FROM fine_tuning_jobs WHERE id = ${id}`;
  return row!.is_cleaned_up === true;
};

/** A job that has succeeded while nothing can be cleaned up at the provider. */
async function succeededAlone() {
  const { tuning } = gateway.upstream;
  tuning.plan(LISTS, {});
  const { id, suffix } = await gateway.tune({ outcome: "never" });
  await hurried(id, "it runs", async () => (await gateway.job(id)).status === "running");
  tuning.plan(LISTS, { lacks: "answers" });
  tuning.plan(suffix, {});
  const job = await gateway.ended(id);
  expect(job.status).toBe("succeeded");
  expect(job.result_files).toHaveLength(1);
  return { job, file: job.result_files[0]! };
}

test("a job that has succeeded names its results, which are written whatever the provider does", async () => {
  const { job, file } = await succeededAlone();
  expect((await fileOf(file)).created_at).toBe(job.finished_at as number);
  await until("they are written", async () => (await fileOf(file)).status === "processed");
  expect((await fileOf(file)).content).toStartWith("step,train_loss,");
  expect(await isCleanedUp(job.id)).toBeFalse();
}, 60_000);

test("results that are deleted before the job is cleaned up do not come back, and nothing waits for them", async () => {
  const { job, file } = await succeededAlone();
  expect((await gateway.request("DELETE", `/v1/files/${file}`)).status).toBe(200);
  gateway.upstream.tuning.plan(LISTS, {});
  await hurried(job.id, "it is cleaned up", () => isCleanedUp(job.id));
  expect((await gateway.request("GET", `/v1/files/${file}`)).status).toBe(404);
}, 60_000);

test("results stay as they are where the model is deleted, which is cleaned up for", async () => {
  gateway.upstream.tuning.plan(LISTS, {});
  const { id } = await gateway.tune();
  const { fine_tuned_model: model, result_files: files } = await gateway.ended(id);
  await hurried(id, "it is cleaned up", () => isCleanedUp(id));
  const before = await fileOf(files[0]!);
  const deletedModels = gateway.upstream.tuning.records.deletedModels.length;
  await gateway.request("DELETE", `/v1/models/${encodeURIComponent(model!)}`);
  await hurried(
    id,
    "the provider's model is deleted",
    async () => gateway.upstream.tuning.records.deletedModels.length > deletedModels,
  );
  await hurried(id, "it is cleaned up again", () => isCleanedUp(id));
  expect(await fileOf(files[0]!)).toEqual(before);
}, 60_000);
