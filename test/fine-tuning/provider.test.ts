import { afterAll, beforeAll, expect, test } from "bun:test";
import { uploaded } from "../support/files-gateway.ts";
import {
  LESSONS,
  lessonsText,
  startTuningGateway,
  TRAINING_USD,
  TUNED_INPUT_USD,
  TUNED_OUTPUT_USD,
  type TuningGateway,
  trainingChargeNano,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway();
}, 60_000);
afterAll(() => gateway.stop());

const jobsOf = (id: string) =>
  gateway.upstream.tuning.records.jobs.filter(
    ({ request }) => (request.metadata as { gateway_job?: string }).gateway_job === id,
  );
const outboxOf = async (id: string) => [
  ...(await gateway.sql`SELECT type, data FROM outbox WHERE data->>'job_id' = ${id}`),
];
const cleanedUp = (id: string) =>
  until("the job is cleaned up", async () => {
    await gateway.hurry(id);
    const [row] = await gateway.sql`SELECT is_cleaned_up FROM fine_tuning_jobs WHERE id = ${id}`;
    return row!.is_cleaned_up === true;
  });
const eventsOf = async (id: string) => {
  const response = await gateway.request("GET", `/v1/fine_tuning/jobs/${id}/events?limit=100`);
  return ((await response.json()) as { data: { message: string }[] }).data.map((e) => e.message);
};

test("a provider's training ends as a model that only we know how to call, at the tuned price", async () => {
  const validation = await uploaded(gateway, "fine-tune", lessonsText(LESSONS.slice(1)));
  const { id, suffix } = await gateway.tune(
    { trainedTokens: 345 },
    {
      validation_file: validation.id,
      hyperparameters: { n_epochs: 2, batch_size: 4, learning_rate_multiplier: 0.5 },
      seed: 11,
    },
  );
  const job = await gateway.ended(id);
  expect(job).toMatchObject({ status: "succeeded", trained_tokens: 345, error: null });
  const model = job.fine_tuned_model!;
  expect(model).toBe(`ft:${UPSTREAM_BASE}:${suffix}:${id.slice(-12)}`);

  const [ordered, ...others] = jobsOf(id);
  expect(others).toEqual([]);
  expect(ordered!.request).toMatchObject({
    model: "base-upstream",
    suffix,
    seed: 11,
    method: {
      type: "supervised",
      supervised: {
        hyperparameters: { n_epochs: 2, batch_size: 4, learning_rate_multiplier: 0.5 },
      },
    },
  });
  const { files } = gateway.upstream.tuning.records;
  const sent = (file: unknown) => files.find((one) => one.id === file)!;
  expect(sent(ordered!.request.training_file).content).toBe(lessonsText());
  expect(sent(ordered!.request.validation_file).content).toBe(lessonsText(LESSONS.slice(1)));

  const detail = await gateway.request("GET", `/v1/models/${encodeURIComponent(model)}`);
  expect(await detail.json()).toMatchObject({
    id: model,
    owned_by: gateway.organizationId,
    input_cost_per_token: TUNED_INPUT_USD,
    output_cost_per_token: TUNED_OUTPUT_USD,
  });
  const answer = await gateway.request("POST", "/v1/chat/completions", {
    model,
    messages: [{ role: "user", content: "hello" }],
  });
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ model });
  expect(gateway.upstream.served.at(-1)!.model).toBe(
    `ft:base-upstream:up:${suffix}:${ordered!.id}`,
  );

  const events = (await eventsOf(id)).join("\n");
  expect(events).toContain("Step 1/2: training loss=0.50");
  expect(events).toContain(`New fine-tuned model created: ${model}`);
  expect(events).not.toContain(ordered!.id);
  expect(await outboxOf(id)).toMatchObject([
    {
      type: "fine_tuning.job.succeeded",
      data: { job_id: id, model: UPSTREAM_BASE, fine_tuned_model: model, error: null },
    },
  ]);

  await cleanedUp(id);
  expect(sent(ordered!.request.training_file).isDeleted).toBe(true);
  expect(sent(ordered!.request.validation_file).isDeleted).toBe(true);
  const [resultFile] = (await gateway.job(id)).result_files;
  const table = await gateway.request("GET", `/v1/files/${resultFile}/content`);
  expect(await table.text()).toStartWith("step,train_loss,");

  const deleted = await gateway.request("DELETE", `/v1/models/${encodeURIComponent(model)}`);
  expect(await deleted.json()).toEqual({ id: model, object: "model", deleted: true });
  await until("the provider's model is deleted", async () => {
    await gateway.hurry(id);
    return gateway.upstream.tuning.records.deletedModels.includes(
      `ft:base-upstream:up:${suffix}:${ordered!.id}`,
    );
  });
}, 60_000);

test("what was measured is a file of the time at which the job ended, the newest one then", async () => {
  const { id } = await gateway.tune();
  const { id: meanwhile } = await uploaded(gateway, "user_data", "x");
  const { finished_at: finishedAt } = await gateway.ended(id);
  await cleanedUp(id);
  const { result_files: files } = await gateway.job(id);
  const list = await gateway.request("GET", "/v1/files?limit=2");
  const { data } = (await list.json()) as { data: { id: string; created_at: number }[] };
  expect(data.map((file) => file.id)).toEqual([files[0]!, meanwhile]);
  expect(data[0]!.created_at).toBe(finishedAt as number);
  const behind = await gateway.request("GET", `/v1/files?after=${files[0]}&limit=1`);
  expect(await behind.json()).toMatchObject({ data: [{ id: meanwhile }] });
});

test("the tokens that the provider bills are charged once, and counted here where it tells none", async () => {
  const charge = async (id: string) => {
    const [row] = await gateway.sql<{ amount_nano: bigint; estimated: boolean }[]>`
      SELECT t.amount_nano, t.estimated FROM transactions t
      JOIN fine_tuning_jobs j ON j.request_id = t.request_id WHERE j.id = ${id}`;
    return row!;
  };
  const told = await gateway.tune({ trainedTokens: 222 });
  await gateway.ended(told.id);
  expect(await charge(told.id)).toEqual({
    amount_nano: -trainingChargeNano(222),
    estimated: false,
  });

  const untold = await gateway.tune({ trainedTokens: null });
  const { trained_tokens: tokens } = await gateway.ended(untold.id);
  expect(tokens).toBeGreaterThan(0);
  expect(await charge(untold.id)).toEqual({
    amount_nano: -trainingChargeNano(tokens!),
    estimated: true,
  });

  // Never more than was held: the bytes of the file, once for each epoch.
  const absurd = await gateway.tune({ trainedTokens: 1e15 }, { hyperparameters: { n_epochs: 1 } });
  await gateway.ended(absurd.id);
  const heldNano = Math.ceil(lessonsText().length * TRAINING_USD * 1.04 * 1e9);
  expect((await charge(absurd.id)).amount_nano).toBe(BigInt(-heldNano));
}, 60_000);

test("a training that fails at the provider fails here with its reason, and costs nothing", async () => {
  const balance = async () =>
    ((await (await gateway.request("GET", "/v1/credits")).json()) as { balance_usd: number })
      .balance_usd;
  const before = await balance();
  const { id } = await gateway.tune({ outcome: "failed" });
  const job = await gateway.ended(id);
  expect(job).toMatchObject({
    status: "failed",
    fine_tuned_model: null,
    error: { code: "exploded", message: "The training exploded.", param: null },
  });
  expect(await balance()).toBe(before);
  expect(await outboxOf(id)).toMatchObject([
    { type: "fine_tuning.job.failed", data: { job_id: id, error: { code: "exploded" } } },
  ]);
}, 60_000);

test("a job that is cancelled at the provider is cancelled here, and no event tells of it", async () => {
  const { id } = await gateway.tune({ outcome: "cancelled" });
  expect((await gateway.ended(id)).status).toBe("cancelled");
  expect(await outboxOf(id)).toEqual([]);
}, 60_000);

test("cancelling reaches the provider", async () => {
  const { id } = await gateway.tune({ outcome: "never" });
  await until("it runs", async () => (await gateway.job(id)).status === "running", 20_000);
  const cancelled = await gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
  expect(await cancelled.json()).toMatchObject({ id, status: "cancelled" });
  await cleanedUp(id);
  expect(jobsOf(id)).toMatchObject([{ isCancelled: true }]);
}, 60_000);

const REFUSALS = [
  ["refuse", "provider_rejected", "the training file has too few examples"],
  ["unauthorized", "provider_error", "The provider did not accept the training."],
] as const;
for (const [create, code, message] of REFUSALS) {
  test(`an order that the provider answers with "${create}" fails the job with ${code}`, async () => {
    const { id } = await gateway.tune({ create });
    expect(await gateway.ended(id)).toMatchObject({ status: "failed", error: { code, message } });
    expect(jobsOf(id)).toEqual([]);
  }, 60_000);
}

for (const create of ["cut", "garbage", "busy"] as const) {
  test(`an order whose answer is "${create}" is found or placed again: one training runs`, async () => {
    const { id } = await gateway.tune({ create, createTimes: 1 });
    expect((await gateway.ended(id)).status).toBe("succeeded");
    expect(jobsOf(id)).toHaveLength(1);
  }, 60_000);
}

const TROUBLES = [
  ["lost", "provider_job_lost"],
  ["garbage", "provider_error"],
] as const;
for (const [read, code] of TROUBLES) {
  test(`a job that the provider answers with "${read}" for good fails with ${code}; once or twice changes nothing`, async () => {
    const passing = await gateway.tune({ read, readTimes: 3 });
    const lasting = await gateway.tune({ read });
    expect((await gateway.ended(passing.id)).status).toBe("succeeded");
    expect(await gateway.ended(lasting.id)).toMatchObject({ status: "failed", error: { code } });
    await cleanedUp(lasting.id);
    expect(jobsOf(lasting.id)).toMatchObject([{ isCancelled: true }]);
  }, 60_000);
}

test("a provider out of reach is waited for", async () => {
  const { id } = await gateway.tune({ read: "unavailable", readTimes: 12 });
  expect((await gateway.ended(id)).status).toBe("succeeded");
}, 60_000);

test("a training that never ends fails after its bounded time, and is cancelled at the provider", async () => {
  const { id } = await gateway.tune({ outcome: "never" });
  await until("it runs", async () => (await gateway.job(id)).status === "running", 20_000);
  // With a version of its own, so that no step under way writes it back.
  await gateway.sql`UPDATE fine_tuning_jobs SET running_since = running_since - interval '7 days',
    version = version + 1 WHERE id = ${id}`;
  expect(await gateway.ended(id)).toMatchObject({
    status: "failed",
    error: { code: "training_timed_out" },
  });
  await cleanedUp(id);
  expect(jobsOf(id)).toMatchObject([{ isCancelled: true }]);
}, 60_000);

test("a file without an answer to learn, or with an example beyond the base model's context, fails the job", async () => {
  const silent = await uploaded(
    gateway,
    "fine-tune",
    `${lessonsText()}${JSON.stringify({ messages: [{ role: "user", content: "x" }] })}\n`,
  );
  const first = await gateway.tune(undefined, { training_file: silent.id });
  expect(await gateway.ended(first.id)).toMatchObject({
    status: "failed",
    error: { code: "invalid_format", param: "training_file" },
  });
  expect((await gateway.job(first.id)).error!.message).toContain("line 4");

  const words = "word ".repeat(2_100);
  const long = await uploaded(gateway, "fine-tune", lessonsText([{ prompt: words, answer: "x" }]));
  const second = await gateway.tune(undefined, { validation_file: long.id });
  expect(await gateway.ended(second.id)).toMatchObject({
    status: "failed",
    error: { code: "token_limit_exceeded", param: "validation_file" },
  });
  // More bytes than the context has tokens are no fault by themselves.
  const fitting = await uploaded(
    gateway,
    "fine-tune",
    lessonsText([{ prompt: "word ".repeat(1_500), answer: "x" }]),
  );
  const third = await gateway.tune(undefined, { training_file: fitting.id });
  expect((await gateway.ended(third.id)).status).toBe("succeeded");
  expect(jobsOf(first.id)).toEqual([]);
}, 60_000);

test("a job keeps its files though they are deleted while it waits", async () => {
  const file = await uploaded(gateway, "fine-tune", lessonsText());
  const { id } = await gateway.tune(undefined, { training_file: file.id });
  const gone = await gateway.request("DELETE", `/v1/files/${file.id}`);
  expect(gone.status).toBe(200);
  expect((await gateway.ended(id)).status).toBe("succeeded");
  await cleanedUp(id);
  const kept = await gateway.sql`SELECT 1 FROM file_uses WHERE holder = ${id}`;
  expect(kept).toHaveLength(0);
}, 60_000);
