import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { CHATS, type Json, requestLine } from "../support/batches.ts";
import { formOf } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";
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
  const model = {
    ...{ id: "test/slow", category: "chat", context_length: 8_000, max_output_tokens: 100 },
    ...{ input_cost_per_token: 2e-6, output_cost_per_token: 1e-6 },
    endpoints: [{ provider: "upstream", model: "slow" }],
  };
  const providers = [{ ...provider, api_key: "sk-upstream" }];
  writeFileSync(configPath, JSON.stringify({ providers, models: [model] }));
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

test(
  `${LINES} lines through ${KILLS} kills are answered once and charged once, seed ${SEED}`,
  async () => {
    let { gateway, baseUrl } = await start();
    const ids = Array.from({ length: LINES }, (_, n) => `line-${n}`);
    const messages = [{ role: "user", content: "hello" }];
    const input = ids.map((user) => requestLine(user, { model: "test/slow", user, messages }));
    const form = formOf(["purpose", "batch"], ["file", new File(input, "requests.jsonl")]);
    const file = await json(call(baseUrl, "/v1/files", { method: "POST", body: form }));
    const { id } = await json(
      call(baseUrl, "/v1/batches", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          input_file_id: file.id,
          endpoint: CHATS,
          completion_window: "24h",
        }),
      }),
    );
    const read = () => json(call(baseUrl, `/v1/batches/${id}`));
    let inMiddle = 0;
    for (let kill = 1; kill <= KILLS; kill++) {
      const least = (LINES * kill) / (KILLS + 2);
      await until(
        "some more lines are answered",
        async () => (await read()).request_counts.completed >= least,
        PATIENCE_MS,
      );
      await Bun.sleep(random() * 60);
      gateway.signal("SIGKILL");
      await gateway.exited;
      ({ gateway, baseUrl } = await start());
      if ((await read()).request_counts.completed < LINES) inMiddle++;
    }
    const ended = await until(
      "the batch has ended",
      async () => {
        const batch = await read();
        return batch.completed_at === null ? undefined : batch;
      },
      2 * PATIENCE_MS,
    );
    expect(inMiddle).toBeGreaterThan(0);
    expect(ended).toMatchObject({
      status: "completed",
      error_file_id: null,
      request_counts: { total: LINES, completed: LINES, failed: 0 },
    });
    const content = await (await call(baseUrl, `/v1/files/${ended.output_file_id}/content`)).text();
    const answers = content
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Json);
    expect(answers.map(({ custom_id }) => custom_id)).toEqual(ids);
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
    // A call that a kill cut off is made again, and no other.
    const served = await upstream.takeServed();
    expect(served.length).toBeGreaterThanOrEqual(LINES);
    expect(served.length).toBeLessThanOrEqual(LINES + 8 * KILLS);
  },
  10 * PATIENCE_MS,
);
