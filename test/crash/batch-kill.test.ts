import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { CHATS, type Json, requestLine } from "../support/batches.ts";
import { formOf } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";
import type { BatchPlan } from "../upstream/planned-batches.ts";
import { seededRandom } from "../upstream/random.ts";
import { billsByTag, brokenRules, look } from "./books.ts";
import { firstKeys, Grounds, holdsEnded } from "./gateway-process.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/* A gateway is killed while it answers a batch: each line is answered once and charged once. */

/** 1,000 and 20 are the full proof. */
const LINES = Number(process.env.GATEWAY_TEST_BATCH_LINES ?? 60);
const KILLS = Number(process.env.GATEWAY_TEST_BATCH_KILLS ?? 3);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
const PATIENCE_MS = 60_000;

const random = seededRandom(SEED);
const grounds = new Grounds("batch");
const dataDir = await grounds.newDataDirWithDatabase();
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await upstream.behave("slow", { do: "complete", firstDelayMs: 60 });
  const provider = { id: "upstream", type: "openai-compatible", base_url: upstream.baseUrl };
  const terms = {
    ...{ category: "chat", context_length: 8_000, max_output_tokens: 100 },
    ...{ input_cost_per_token: 2e-6, output_cost_per_token: 1e-6 },
  };
  const endpoints = [{ provider: "upstream", model: "slow" }];
  const models = [
    { ...terms, id: "test/slow", endpoints, batches: false },
    { ...terms, id: "test/batched", endpoints },
  ];
  const providers = [{ ...provider, api_key: "sk-upstream", batches: true }];
  writeFileSync(configPath, JSON.stringify({ providers, models }));
});
afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

async function start() {
  const gateway = grounds.launch({
    dataDir,
    environment: { GATEWAY_CONFIG: configPath, GATEWAY_STARTING_CREDIT_USD: "1000" },
  });
  return { gateway, baseUrl: await gateway.listening };
}

/** Again where it is 503: what an instance that has just begun knows may not be fresh yet. */
function call(baseUrl: string, path: string, init: RequestInit = {}): Promise<Response> {
  return until(`${path} answers`, async () => {
    const response = await fetch(baseUrl + path, {
      ...init,
      headers: { authorization: `Bearer ${firstKeys(dataDir).secret_key}`, ...init.headers },
    });
    if (response.status === 503) return undefined;
    expect(response.status).toBe(200);
    return response;
  });
}

const json = async (answer: Promise<Response>): Promise<Json> => (await answer).json() as never;

/** A batch of lines, each with its id as its user. */
async function created(baseUrl: string, model: string, ids: readonly string[]): Promise<string> {
  const messages = [{ role: "user", content: "hello" }];
  const input = ids.map((user) => requestLine(user, { model, user, messages }));
  const form = formOf(["purpose", "batch"], ["file", new File(input, "requests.jsonl")]);
  const file = await json(call(baseUrl, "/v1/files", { method: "POST", body: form }));
  const batch = { input_file_id: file.id, endpoint: CHATS, completion_window: "24h" };
  const init = { method: "POST", headers: { "content-type": "application/json" } };
  const { id } = await json(call(baseUrl, "/v1/batches", { ...init, body: JSON.stringify(batch) }));
  return id;
}

const read = (baseUrl: string, id: string) => json(call(baseUrl, `/v1/batches/${id}`));

/** Each line has its answer, and one charge, which is that of its answer. */
async function expectAnswered(baseUrl: string, id: string, ids: readonly string[]): Promise<void> {
  const ended = await until(
    "the batch has ended",
    async () => {
      const batch = await read(baseUrl, id);
      return batch.completed_at === null ? undefined : batch;
    },
    2 * PATIENCE_MS,
  );
  expect(ended).toMatchObject({
    status: "completed",
    error_file_id: null,
    request_counts: { total: ids.length, completed: ids.length, failed: 0 },
  });
  const content = await (await call(baseUrl, `/v1/files/${ended.output_file_id}/content`)).text();
  const lines = content.trim().split("\n");
  const answers = lines.map((line) => JSON.parse(line) as Json);
  expect(answers.map(({ custom_id }) => custom_id)).toEqual([...ids]);
  await holdsEnded(baseUrl);
  const database = findRunningEmbeddedPostgres(dataDir)!;
  const [broken, bills] = await look(database, (sql) =>
    Promise.all([brokenRules(sql), billsByTag(sql)]),
  );
  expect(broken).toEqual([]);
  for (const { custom_id, response } of answers) {
    const charged = bills.get(custom_id) ?? [];
    expect(charged.map(({ requestId, isRefunded }) => ({ requestId, isRefunded }))).toEqual([
      { requestId: response.request_id, isRefunded: false },
    ]);
  }
}

test(
  `${LINES} lines through ${KILLS} kills are answered once and charged once, seed ${SEED}`,
  async () => {
    let { gateway, baseUrl } = await start();
    const ids = Array.from({ length: LINES }, (_, n) => `line-${n}`);
    const id = await created(baseUrl, "test/slow", ids);
    let inMiddle = 0;
    for (let kill = 1; kill <= KILLS; kill++) {
      const least = (LINES * kill) / (KILLS + 2);
      await until(
        "some more lines are answered",
        async () => (await read(baseUrl, id)).request_counts.completed >= least,
        PATIENCE_MS,
      );
      await Bun.sleep(random() * 60);
      gateway.signal("SIGKILL");
      await gateway.exited;
      ({ gateway, baseUrl } = await start());
      if ((await read(baseUrl, id)).request_counts.completed < LINES) inMiddle++;
    }
    await expectAnswered(baseUrl, id, ids);
    expect(inMiddle).toBeGreaterThan(0);
    // A call that a kill cuts off is made again, and no other.
    const served = await upstream.takeServed();
    expect(served.length).toBeGreaterThanOrEqual(LINES);
    expect(served.length).toBeLessThanOrEqual(LINES + 8 * KILLS);
    gateway.signal("SIGKILL");
    await gateway.exited;
  },
  10 * PATIENCE_MS,
);

test(
  `through a provider's batch and a kill at each of its steps, each line is answered and charged once, seed ${SEED}`,
  async () => {
    await upstream.planBatches({ stall: "upload" });
    let { gateway, baseUrl } = await start();
    const ids = Array.from({ length: 2 * LINES }, (_, n) => `batched-${n}`);
    const id = await created(baseUrl, "test/batched", ids);
    const records = () => upstream.batches();
    const kill = async (plan: BatchPlan): Promise<void> => {
      gateway.signal("SIGKILL");
      await gateway.exited;
      await upstream.planBatches(plan);
      ({ gateway, baseUrl } = await start());
      // So that what may be at the provider is looked for now.
      await look(findRunningEmbeddedPostgres(dataDir)!, async (sql) => {
        await sql`UPDATE provider_batches SET ordered_at = ordered_at - interval '15 seconds'`;
        await sql`UPDATE batches SET due_at = now() WHERE due_at IS NOT NULL`;
      });
    };
    await until("the requests are uploaded", async () => (await records()).files.length === 1);
    await kill({ stall: "create" });
    await until(
      "the batch is made",
      async () => (await records()).batches.length === 1,
      PATIENCE_MS,
    );
    await kill({ outcome: "never" });
    const reads = async () => (await records()).batches[0]!.reads;
    await until("it is found", async () => (await reads()) > 0, PATIENCE_MS);
    await kill({});
    for (let time = 1; time <= 2; time++) {
      await until(
        "its results are read, or it has ended",
        async () =>
          (await records()).batches[0]!.resultsRead >= time ||
          (await read(baseUrl, id)).completed_at !== null,
        PATIENCE_MS,
      );
      await Bun.sleep(random() * 80);
      await kill({});
    }
    await expectAnswered(baseUrl, id, ids);
    const { files, batches } = await records();
    expect(batches).toHaveLength(1);
    await until("nothing is left there", async () =>
      (await records()).files.every(({ isDeleted }) => isDeleted),
    );
    expect(files.length).toBeGreaterThan(2);
    const served = await upstream.takeServed();
    expect(served).toHaveLength(ids.length);
    expect(served.every(({ batchId }) => batchId === batches[0]!.id)).toBe(true);
  },
  10 * PATIENCE_MS,
);
