import { afterAll, beforeAll, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import {
  LESSONS,
  lessonsText,
  SANDBOX_BASE,
  trainingChargeNano,
  tuningConfig,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { type TuningPlan, type TuningRecords, UPLOADS } from "../upstream/fine-tuning.ts";
import { seededRandom } from "../upstream/random.ts";
import { type FirstKeys, firstKeys, type GatewayProcess, Grounds } from "./gateway-process.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * A gateway is killed while jobs stand in each of their states, at the instants where a second training
 * could result, and then repeatedly while they continue. Every job still ends once: one training
 * at the provider, one charge, one event.
 */

/** Kills at random moments, after the one that meets every state. 40 is the full proof. */
const KILLS = Number(process.env.GATEWAY_TEST_TUNING_KILLS ?? 2);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
const TRAINED_TOKENS = 150;
const ENDS_WITHIN_MS = 60_000;

const random = seededRandom(SEED);
const grounds = new Grounds("tuning");
const dataDir = await grounds.newDataDirWithDatabase();
const masterKey = randomBytes(32).toString("base64");
let upstream: UpstreamProcess;
let database: OpenTestDatabase;
let sql: Database;
let gateway: GatewayProcess;
let baseUrl: string;
let keys: FirstKeys;

beforeAll(async () => {
  upstream = await startUpstreamProcess();
  database = await openTestDatabase(2);
  ({ sql } = database);
  writeFileSync(
    join(grounds.folder, "gateway.config.json"),
    JSON.stringify(tuningConfig(upstream.baseUrl)),
  );
  await start();
  keys = firstKeys(dataDir);
}, 60_000);
afterAll(async () => {
  await grounds.clear();
  await upstream?.stop();
  await database?.drop();
});

async function start(): Promise<void> {
  gateway = grounds.launch({
    dataDir,
    environment: { DATABASE_URL: database.url, GATEWAY_MASTER_KEY: masterKey },
  });
  baseUrl = await gateway.listening;
}

async function killAndStart(): Promise<void> {
  gateway.signal("SIGKILL");
  await gateway.exited;
  await start();
}

function call(method: string, path: string, body?: unknown): Promise<Response> {
  return fetch(`${baseUrl}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${keys.secret_key}`,
      ...(body !== undefined && { "content-type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

async function plan(suffix: string, request: TuningPlan): Promise<void> {
  await fetch(`${upstream.baseUrl.replace(/\/v1$/, "")}/__tuning`, {
    method: "POST",
    body: JSON.stringify({ suffix, plan: { trainedTokens: TRAINED_TOKENS, ...request } }),
  });
}

async function records(): Promise<TuningRecords> {
  const response = await fetch(`${upstream.baseUrl.replace(/\/v1$/, "")}/__tuning`);
  return (await response.json()) as TuningRecords;
}

async function trainingFile(): Promise<string> {
  const form = new FormData();
  form.append("purpose", "fine-tune");
  form.append("file", new File([lessonsText()], "lessons.jsonl"));
  const response = await fetch(`${baseUrl}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${keys.secret_key}` },
    body: form,
  });
  return ((await response.json()) as { id: string }).id;
}

interface Row {
  readonly id: string;
  readonly suffix: string;
  readonly status: string;
  readonly provider_job: string | null;
  readonly create_tries: number;
  readonly finished_at: Date | null;
  readonly is_cleaned_up: boolean;
  readonly fine_tuned_model: string | null;
}

const rows = () => sql<Row[]>`SELECT * FROM fine_tuning_jobs ORDER BY id`;
const rowOf = async (suffix: string) => (await rows()).find((row) => row.suffix === suffix)!;

/** Jobs, by what the provider does with them while the gateway is killed, and how they end. */
const JOBS = {
  ordering: { stall: "create" },
  reading: { stall: "read" },
  training: { outcome: "never" },
  cancelling: { outcome: "never", stall: "cancel" },
  failing: { outcome: "failed", stall: "read" },
} as const satisfies Record<string, TuningPlan>;

test(
  `killed in every state of a job, and ${KILLS} times more (seed ${SEED}): each job ends once`,
  async () => {
    const file = await trainingFile();
    const order = async (suffix: string, model = UPSTREAM_BASE) => {
      const request = { model, training_file: file, suffix, hyperparameters: { n_epochs: 1 } };
      const response = await call("POST", "/v1/fine_tuning/jobs", request);
      expect(response.status).toBe(200);
      return ((await response.json()) as { id: string }).id;
    };
    for (const [suffix, request] of Object.entries(JOBS)) await plan(suffix, request);
    for (const suffix of Object.keys(JOBS)) await order(suffix);
    await order("learning", SANDBOX_BASE);
    // Each is where it is to be met.
    const providerKnows = async (suffix: string) =>
      (await records()).jobs.some((job) => job.suffix === suffix);
    await until("the order is under way", () => providerKnows("ordering"), ENDS_WITHIN_MS);
    for (const suffix of ["reading", "training", "cancelling", "failing"]) {
      await until(
        `${suffix} runs`,
        async () => (await rowOf(suffix)).status === "running",
        ENDS_WITHIN_MS,
      );
    }
    const cancelled = await rowOf("cancelling");
    const answer = await call("POST", `/v1/fine_tuning/jobs/${cancelled.id}/cancel`);
    expect(answer.status).toBe(200);
    await until(
      "the learning runs",
      async () => (await rowOf("learning")).status === "running",
      ENDS_WITHIN_MS,
    );
    await plan(UPLOADS, { stall: "upload" });
    const uploadsBefore = (await records()).files.length;
    await plan("uploading", {});
    await plan("queueing", {});
    await order("uploading");
    await until(
      "the upload is under way",
      async () => (await records()).files.length > uploadsBefore,
      ENDS_WITHIN_MS,
    );
    await order("queueing");
    await killAndStart();

    await plan(UPLOADS, {});
    for (const suffix of ["ordering", "reading", "training"]) await plan(suffix, {});
    await plan("failing", { outcome: "failed" });
    await plan("cancelling", { outcome: "never" });
    for (let kill = 0; kill < KILLS; kill++) {
      await plan(`more-${kill}`, {});
      await order(`more-${kill}`, kill % 2 === 0 ? UPSTREAM_BASE : SANDBOX_BASE);
      await Bun.sleep(random() * 1_500);
      await killAndStart();
    }
    await until(
      "every job has ended and is cleaned up",
      async () => (await rows()).every((row) => row.finished_at !== null && row.is_cleaned_up),
      ENDS_WITHIN_MS,
    );
    await expectEndedOnce();
    await expectTrainedOnce();
    await expectModelsWork();
  },
  120_000 + KILLS * 10_000,
);

/** The books: one charge and one event for each that succeeded, none left held. */
async function expectEndedOnce(): Promise<void> {
  for (const row of await rows()) {
    const expected = { cancelling: "cancelled", failing: "failed" }[row.suffix] ?? "succeeded";
    const charges = await sql<{ amount_nano: bigint; provider: string }[]>`
      SELECT t.amount_nano, t.provider FROM transactions t
      JOIN fine_tuning_jobs j ON j.request_id = t.request_id WHERE j.id = ${row.id}`;
    const events = await sql`SELECT type FROM outbox WHERE data->>'job_id' = ${row.id}`;
    expect([row.suffix, row.status]).toEqual([row.suffix, expected]);
    expect([row.suffix, charges.length]).toEqual([row.suffix, expected === "succeeded" ? 1 : 0]);
    expect(events.map(({ type }) => type)).toEqual(
      expected === "cancelled" ? [] : [`fine_tuning.job.${expected}`],
    );
    if (charges[0]?.provider === "trainer") {
      expect(charges[0].amount_nano).toBe(-trainingChargeNano(TRAINED_TOKENS));
    }
    const sequence = await sql<{ sequence: number }[]>`
      SELECT sequence FROM fine_tuning_events WHERE job_id = ${row.id} ORDER BY sequence`;
    expect(sequence.map((event) => event.sequence)).toEqual(sequence.map((_, index) => index + 1));
  }
  expect(await sql`SELECT 1 FROM holds`).toHaveLength(0);
  const [books] = await sql<{ balance: bigint; held: bigint; total: bigint }[]>`
    SELECT credit_nano - posted_nano AS balance, held_nano AS held,
      (SELECT sum(amount_nano)::bigint FROM transactions) AS total
    FROM accounts WHERE kind = 'org'`;
  expect(books!.balance).toBe(books!.total);
  expect(books!.held).toBe(0n);
}

/** The provider: one training for each job, and none without a job. */
async function expectTrainedOnce(): Promise<void> {
  const { jobs, files } = await records();
  for (const { suffix, id, status } of await rows()) {
    const trainings = jobs.filter(
      ({ request }) => (request.metadata as { gateway_job: string }).gateway_job === id,
    );
    const isOnSandbox = suffix === "learning" || /^more-\d*[13579]$/.test(suffix);
    expect([suffix, trainings.length]).toEqual([suffix, isOnSandbox ? 0 : 1]);
    if (status === "cancelled") expect(trainings[0]!.isCancelled).toBe(true);
  }
  expect(files.filter(({ isDeleted }) => !isDeleted)).toEqual([]);
}

/** What was learned outlives the processes that learned it. */
async function expectModelsWork(): Promise<void> {
  const [lesson] = LESSONS;
  for (const { fine_tuned_model: model, suffix, status } of await rows()) {
    if (status !== "succeeded") continue;
    const response = await call("POST", "/v1/chat/completions", {
      model,
      messages: [{ role: "user", content: lesson.prompt }],
    });
    expect([suffix, response.status]).toEqual([suffix, 200]);
    const answer = (await response.json()) as { choices: [{ message: { content: string } }] };
    if (suffix === "learning") expect(answer.choices[0].message.content).toBe(lesson.answer);
  }
}
