import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { until } from "../support/until.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import type { Served } from "../upstream/served.ts";
import { type Bill, billsByTag, brokenRules, look, orphanAttempts } from "./books.ts";
import { firstKeys, Grounds, holdsEnded } from "./gateway-process.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/* A gateway is killed while loops of tools are under way: each step that was taken is charged, and none twice. */

const ROUNDS = 4;
const SENDERS = 12;
const STEPS = 7;
const TIMEOUT_MS = 180_000;
const PATIENCE_MS = 40_000;

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const grounds = new Grounds("tool-loop");
const dataDir = await grounds.newDataDirWithDatabase();
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await upstream.behave("loop", {
    do: "complete",
    toolCalls: [{ name: "file_search", arguments: '{"query":"harbour"}' }],
    firstDelayMs: 25,
  });
  const provider = { id: "upstream", type: "openai-compatible", base_url: upstream.baseUrl };
  const model = {
    ...{ id: "test/loop", category: "chat", context_length: 128_000, max_output_tokens: 4_096 },
    ...{ input_cost_per_token: 2e-6, output_cost_per_token: 1e-6 },
    capabilities: ["streaming", "function_calling"],
    endpoints: [{ provider: "upstream", model: "loop" }],
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

/** Until the gateway dies: an answer that is cut is what the test is about. */
async function send(baseUrl: string, storeId: string, user: string, stream: boolean) {
  try {
    const response = await fetch(`${baseUrl}/v1/responses`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${firstKeys(dataDir).secret_key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        ...{ model: "test/loop", input: "hello", user, stream },
        max_tool_calls: STEPS - 1,
        tools: [{ type: "file_search", vector_store_ids: [storeId] }],
      }),
    });
    await response.text();
  } catch {
    // Cut.
  }
}

interface Tokens {
  readonly prompt: number;
  readonly completion: number;
}

/** What the first so many calls of a request have used, as its upstream has told. */
function usedBy(served: readonly Served[], steps: number): Tokens {
  const used = { prompt: 0, completion: 0 };
  for (const { usageReported } of served.slice(0, steps)) {
    const usage = (usageReported ?? {}) as Json;
    used.prompt += usage.prompt_tokens ?? 0;
    used.completion += usage.completion_tokens ?? 0;
  }
  return used;
}

function faultOf(
  user: string,
  served: readonly Served[],
  bills: readonly Bill[],
): string | undefined {
  if (bills.length > 1) return `${user} was charged ${bills.length} times`;
  const [bill] = bills;
  // A step is begun when those before it are sure to be charged.
  const least = usedBy(served, served.length - 1);
  const most = usedBy(served, served.length);
  if (bill === undefined) return served.length > 1 ? `${user} was charged nothing` : undefined;
  const told = `${bill.promptTokens}+${bill.completionTokens} of ${JSON.stringify({ least, most })}`;
  if (bill.promptTokens < least.prompt || bill.completionTokens < least.completion) {
    return `${user} was charged too little: ${told}`;
  }
  const isExact = [least, most].some(
    ({ prompt, completion }) =>
      prompt === bill.promptTokens && completion === bill.completionTokens,
  );
  return isExact || bill.estimated ? undefined : `${user} was charged something else: ${told}`;
}

test(
  `${ROUNDS} kills in the middle of loops charge the steps that were taken, once, and leave no hold`,
  async () => {
    let { gateway, baseUrl } = await start();
    const { secret_key: secretKey } = firstKeys(dataDir);
    const storeId = await vectorStoreOf(
      { baseUrl, secretKey },
      { "harbour.txt": "The harbour opens at six." },
    );
    const all: Served[] = [];
    let cut = 0;
    for (let round = 0; round < ROUNDS; round++) {
      let isKilled = false;
      const senders = Array.from({ length: SENDERS }, async (_, sender) => {
        for (let count = 0; !isKilled; count++) {
          await send(baseUrl, storeId, `${round}-${sender}-${count}`, sender % 2 === 0);
        }
      });
      const steps = SENDERS * (round + 1.5);
      await until(
        "so many steps are begun",
        async () => (await upstream.countCalls("loop")) >= steps,
      );
      gateway.signal("SIGKILL");
      isKilled = true;
      await gateway.exited;
      await Promise.all(senders);
      const served = await upstream.takeServed();
      all.push(...served);
      ({ gateway, baseUrl } = await start());
      await holdsEnded(baseUrl);
      const database = findRunningEmbeddedPostgres(dataDir)!;
      await until(
        "what the dead one left is settled",
        () => look(database, async (sql) => (await orphanAttempts(sql)) === 0),
        PATIENCE_MS,
      );
      const [broken, bills] = await look(database, (sql) =>
        Promise.all([brokenRules(sql), billsByTag(sql)]),
      );
      expect(broken).toEqual([]);
      const byUser = Map.groupBy(served, ({ requestBody }) => String(requestBody?.user));
      const faults = [...byUser].map(([user, calls]) =>
        faultOf(user, calls, bills.get(user) ?? []),
      );
      expect(faults.filter((fault) => fault !== undefined)).toEqual([]);
      cut += [...byUser.values()].filter(({ length }) => length > 1 && length < STEPS).length;
    }
    // Some were in the middle, or nothing was shown.
    expect(cut).toBeGreaterThan(ROUNDS);
    expect(all.length).toBeGreaterThan(STEPS);
  },
  TIMEOUT_MS,
);
