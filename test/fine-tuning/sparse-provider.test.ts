import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTuningGateway, type TuningGateway } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { LISTS } from "../upstream/fine-tuning.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway();
}, 60_000);
afterAll(() => gateway.stop());

const trainingsOf = (id: string) =>
  gateway.upstream.tuning.records.jobs.filter(
    ({ request }) => (request.metadata as { gateway_job?: string }).gateway_job === id,
  );
const resultsOf = (id: string) =>
  until("the job is cleaned up", async () => {
    await gateway.hurry(id);
    const [row] = await gateway.sql`SELECT is_cleaned_up FROM fine_tuning_jobs WHERE id = ${id}`;
    return row!.is_cleaned_up === true && (await gateway.job(id)).result_files;
  });

for (const lacks of ["lists", "filter"] as const) {
  test(`a provider without ${lacks} trains, and what can be deleted there is`, async () => {
    gateway.upstream.tuning.plan(LISTS, { lacks });
    const { id } = await gateway.tune();
    expect(await gateway.ended(id)).toMatchObject({ status: "succeeded", error: null });
    expect(trainingsOf(id)).toHaveLength(1);
    expect(await resultsOf(id)).toHaveLength(1);
    const left = gateway.upstream.tuning.records.files.filter(
      ({ filename, isDeleted }) => filename.startsWith(id) && !isDeleted,
    );
    expect(left).toHaveLength(lacks === "lists" ? 1 : 0);
  }, 60_000);
}

test("an order that was not heard of is found by its tag where the provider does not filter", async () => {
  gateway.upstream.tuning.plan(LISTS, { lacks: "filter" });
  const { id } = await gateway.tune({ create: "cut", createTimes: 1 });
  expect((await gateway.ended(id)).status).toBe("succeeded");
  expect(trainingsOf(id)).toHaveLength(1);
}, 60_000);

test("an order that was not heard of is not placed twice where the provider lists none", async () => {
  gateway.upstream.tuning.plan(LISTS, { lacks: "lists" });
  const { id } = await gateway.tune({ create: "cut", createTimes: 1 });
  expect(await gateway.ended(id)).toMatchObject({
    status: "failed",
    error: { code: "provider_error" },
  });
  expect(trainingsOf(id)).toHaveLength(1);
}, 60_000);
