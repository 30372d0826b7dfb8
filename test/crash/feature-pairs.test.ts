import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { findRedisBinary } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import { seededRandom } from "../upstream/random.ts";
import { look } from "./books.ts";
import { type ClusteredGrounds, openClusteredGrounds } from "./clustered-grounds.ts";
import { Grounds } from "./gateway-process.ts";
import { auditLoops, LoopLoad, PAIRS, prepareLoops } from "./tool-loops.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * Requests with every pair of features, such as tools in a batch, a background response under an idempotency key, or
 * a guardrail with the response cache, while gateways are killed and stopped, and their statements and connections to
 * the database are cut. GATEWAY_TEST_PAIR_DISASTERS=100 is the long run.
 */
const DISASTERS = Number(process.env.GATEWAY_TEST_PAIR_DISASTERS ?? 4);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
const TIMEOUT_MS = 180_000 + DISASTERS * 25_000;
const PATIENCE_MS = 40_000;
const KINDS = ["kill", "stop", "cut", "cancel"] as const;

const random = seededRandom(SEED);
const redisBinary = await findRedisBinary();

const grounds = new Grounds("feature-pairs");
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await prepareLoops(upstream, configPath);
});
afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

describe.skipIf(redisBinary === null)("two gateways", () => {
  let clustered: ClusteredGrounds | undefined;
  afterEach(() => clustered?.clear());

  /** A key with a budget, and a guardrail, neither of which refuses anything. */
  async function prepared(baseUrl: string, managementKey: string) {
    const create = async (path: string, body: object) => {
      const response = await fetch(baseUrl + path, {
        method: "POST",
        headers: {
          authorization: `Bearer ${managementKey}`,
          "content-type": "application/json",
        },
        body: JSON.stringify(body),
      });
      expect(response.status).toBe(201);
      return (await response.json()) as { readonly key?: string };
    };
    const limited = await create("/v1/keys", { name: "Limited", daily_budget_usd: 1_000 });
    const rule = { type: "pattern", on: ["input", "output"], action: "redact", pattern: "zebra" };
    await create("/v1/guardrails", { name: "no-zebras", rules: [rule] });
    return { limitedKey: limited.key!, guardrail: "no-zebras" };
  }

  test(
    `${DISASTERS} disasters leave requests with every pair of features answered and charged as they say, seed ${SEED}`,
    async () => {
      clustered = await openClusteredGrounds(redisBinary!, 2, {
        ...{ GATEWAY_CONFIG: configPath, GATEWAY_STARTING_CREDIT_USD: "100000" },
        // Files of batches are where each instance finds them.
        ...{ GATEWAY_SHUTDOWN_GRACE_MS: "120", DATA_DIR: grounds.newDataDir() },
      });
      const { cluster, instances } = clustered;
      const { secretKey, managementKey, databaseUrl } = cluster;
      const { baseUrl } = instances[0]!;
      const storeId = await vectorStoreOf({ baseUrl, secretKey }, { "a.txt": "A harbour." });
      let away: number | undefined;
      const load = new LoopLoad({
        ...{ workers: PAIRS.length, kinds: PAIRS, secretKey, storeId, random },
        ...(await prepared(baseUrl, managementKey)),
        urls: () => clustered!.urls(away),
      });
      const figures = { kill: 0, stop: 0, cut: 0, cancel: 0 };
      for (let at = 0; at < DISASTERS; at++) {
        await Bun.sleep(800 + random() * 1_600);
        const kind = KINDS[at % KINDS.length]!;
        figures[kind]++;
        if (kind === "cut" || kind === "cancel") {
          const end = kind === "cut" ? "pg_terminate_backend" : "pg_cancel_backend";
          await look(databaseUrl, (sql) =>
            sql.unsafe(`SELECT ${end}(pid) FROM pg_stat_activity
              WHERE application_name LIKE 'gateway-%' ORDER BY random() LIMIT 2`),
          );
          continue;
        }
        const place = Math.floor(random() * instances.length);
        const { gateway } = instances[place]!;
        gateway.signal(kind === "kill" ? "SIGKILL" : "SIGTERM");
        away = place;
        await gateway.exited;
        await clustered.start(place);
        away = undefined;
      }
      await load.close();
      await until(
        "no hold and no attempt is left",
        () =>
          look(databaseUrl, async (sql) => {
            const [row] = await sql<{ count: number }[]>`
              SELECT (SELECT count(*) FROM attempts)::int
                + (SELECT count(*) FROM holds WHERE instance_id IS NOT NULL)::int AS count`;
            return row!.count === 0;
          }),
        PATIENCE_MS,
      );
      const found = await auditLoops(databaseUrl, load.loops, await upstream.takeServed());
      const { violations, ...counted } = found;
      console.log(
        JSON.stringify({ seed: SEED, ...figures, requests: load.loops.length, ...counted }),
      );
      expect(violations).toEqual([]);
    },
    TIMEOUT_MS,
  );
});
