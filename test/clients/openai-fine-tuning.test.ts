import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI, { toFile } from "openai";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { LESSONS, lessonsText } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

let gateway: FilesGateway;
let client: OpenAI;
beforeAll(async () => {
  gateway = await startFilesGateway();
  client = new OpenAI({
    baseURL: `${gateway.baseUrl}/v1`,
    apiKey: gateway.secretKey,
    maxRetries: 0,
  });
});
afterAll(() => gateway.stop());

const BASE = "sandbox/chat-2026-01-01";
const ENDS_WITHIN_MS = 20_000;

async function trainingFile(): Promise<string> {
  const file = await toFile(new TextEncoder().encode(lessonsText()), "lessons.jsonl");
  return (await client.files.create({ file, purpose: "fine-tune" })).id;
}

async function ended(id: string) {
  return until(
    "the job ends",
    async () => {
      const job = await client.fineTuning.jobs.retrieve(id);
      return ["succeeded", "failed", "cancelled"].includes(job.status) && job;
    },
    ENDS_WITHIN_MS,
  );
}

async function ask(model: string, content: string): Promise<string> {
  const answer = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content }],
  });
  return answer.choices[0]!.message.content!;
}

/** What the call is refused with. */
async function refusal(call: PromiseLike<unknown>): Promise<unknown> {
  try {
    await call;
  } catch (error) {
    return error;
  }
  throw new Error("the call was not refused");
}

test("the openai package tunes a model on the sandbox, calls it, lists it and deletes it", async () => {
  const { id } = await client.fineTuning.jobs.create({
    model: BASE,
    training_file: await trainingFile(),
    suffix: "support",
    hyperparameters: { n_epochs: 2 },
    metadata: { team: "support" },
  });
  const job = await ended(id);
  expect(job).toMatchObject({
    object: "fine_tuning.job",
    status: "succeeded",
    model: BASE,
    hyperparameters: { n_epochs: 2 },
    error: null,
    metadata: { team: "support" },
  });
  expect(job.trained_tokens).toBeGreaterThan(0);
  expect(job.finished_at).toBeGreaterThanOrEqual(job.created_at);
  const model = job.fine_tuned_model!;
  expect(model).toStartWith(`ft:${BASE}:support:`);

  const [first] = LESSONS;
  expect(await ask(model, first!.prompt)).toBe(first!.answer);
  expect(await ask(model, `${first!.prompt} please, now`)).toBe(first!.answer);
  expect(await ask(BASE, first!.prompt)).not.toBe(first!.answer);

  const listed = await client.models.list();
  expect(listed.data.map((one) => one.id)).toContain(model);
  expect(await client.models.retrieve(model)).toMatchObject({
    id: model,
    owned_by: gateway.organizationId,
  });
  expect(await client.models.delete(model)).toMatchObject({ id: model, deleted: true });
  expect(await refusal(client.models.retrieve(model))).toMatchObject({ status: 404 });
  expect(await refusal(ask(model, "x"))).toMatchObject({ status: 404, code: "model_not_found" });
}, 60_000);

test("the openai package lists jobs and their events, and cancels", async () => {
  const { id, status } = await client.fineTuning.jobs.create({
    model: BASE,
    training_file: await trainingFile(),
    method: { type: "supervised", supervised: { hyperparameters: { n_epochs: 1 } } },
  });
  expect(status).toBe("queued");
  const cancelled = await client.fineTuning.jobs.cancel(id);
  expect(cancelled).toMatchObject({ id, status: "cancelled", fine_tuned_model: null });
  expect(await refusal(client.fineTuning.jobs.cancel(id))).toMatchObject({
    status: 409,
    code: "job_not_cancellable",
  });
  const jobs = [];
  for await (const job of client.fineTuning.jobs.list({ limit: 1 })) jobs.push(job.id);
  expect(jobs[0]).toBe(id);
  expect(jobs.length).toBe(new Set(jobs).size);
  const messages = [];
  for await (const event of client.fineTuning.jobs.listEvents(id, { limit: 2 })) {
    expect(event).toMatchObject({
      object: "fine_tuning.job.event",
      level: "info",
      type: "message",
    });
    messages.push(event.message);
  }
  expect(messages[0]).toBe("The job was cancelled");
  expect(messages.at(-1)).toBe(`Created fine-tuning job: ${id}`);
}, 60_000);
