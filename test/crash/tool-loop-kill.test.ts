import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { findRedisBinary } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { vectorStoreOf } from "../support/vector-store.ts";
import { seededRandom } from "../upstream/random.ts";
import { look } from "./books.ts";
import { type ClusteredGrounds, openClusteredGrounds } from "./clustered-grounds.ts";
import { firstKeys, type GatewayProcess, Grounds, isStopped } from "./gateway-process.ts";
import { auditLoops, LOOPS, LoopLoad, prepareLoops } from "./tool-loops.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * Gateways are killed, paused and stopped while loops of tools are under way, whole, streamed, in the background and
 * in batches: each key and line is answered once and charged once, and what is not answered is not charged.
 * GATEWAY_TEST_LOOP_DISASTERS=100 is the long run, of each of the two tests.
 */
const DISASTERS = Number(process.env.GATEWAY_TEST_LOOP_DISASTERS ?? 3);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
const TIMEOUT_MS = 180_000 + DISASTERS * 25_000;
const PATIENCE_MS = 40_000;
const WORKERS = 12;
const BETWEEN_MS = { least: 600, most: 2_400 };
/** Short, so that a stop finds loops in the middle. */
const GRACE_MS = "120";
const KINDS = ["kill", "stop", "pause"] as const;

const random = seededRandom(SEED);
const between = ({ least, most }: { least: number; most: number }) =>
  least + random() * (most - least);
const redisBinary = await findRedisBinary();
const texts = { "harbour.txt": "The harbour opens at six." };

const grounds = new Grounds("tool-loop");
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await prepareLoops(upstream, configPath);
});
// A second attempt has the tags of the first one.
beforeEach(async () => {
  await upstream.takeServed();
});
afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

const environment = {
  GATEWAY_CONFIG: configPath,
  GATEWAY_STARTING_CREDIT_USD: "100000",
  GATEWAY_SHUTDOWN_GRACE_MS: GRACE_MS,
};

/** Ends the load, waits until nothing is held any more, and looks at what it has come to. */
async function expectExact(
  load: LoopLoad,
  databaseUrl: string,
  figures: Record<string, unknown>,
): Promise<void> {
  await load.close();
  await until(
    "no hold and no attempt is left",
    () =>
      look(databaseUrl, async (sql) => {
        const [row] = await sql<{ count: number }[]>`SELECT (SELECT count(*) FROM attempts)::int
          + (SELECT count(*) FROM holds WHERE instance_id IS NOT NULL)::int AS count`;
        return row!.count === 0;
      }),
    PATIENCE_MS,
  );
  const found = await auditLoops(databaseUrl, load.loops, await upstream.takeServed());
  const { violations, ...counted } = found;
  console.log(JSON.stringify({ seed: SEED, ...figures, loops: load.loops.length, ...counted }));
  expect(violations).toEqual([]);
  // Some were in the middle, or nothing was shown.
  expect(counted.resumed).toBeGreaterThan(0);
}

test(
  `${DISASTERS} kills, pauses and stops of a lone gateway leave each key and line answered and charged once, seed ${SEED}`,
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    let urls: readonly string[] = [];
    let gateway: GatewayProcess;
    const start = async () => {
      gateway = grounds.launch({ dataDir, environment });
      urls = [await gateway.listening];
    };
    await start();
    const { secret_key: secretKey } = firstKeys(dataDir);
    const storeId = await vectorStoreOf({ baseUrl: urls[0]!, secretKey }, texts);
    const load = new LoopLoad({
      ...{ workers: WORKERS, kinds: LOOPS, secretKey, storeId, random },
      urls: () => urls,
    });
    const figures = { kill: 0, stop: 0, pause: 0 };
    for (let at = 0; at < DISASTERS; at++) {
      await Bun.sleep(between(BETWEEN_MS));
      const kind = KINDS[at % KINDS.length]!;
      figures[kind]++;
      if (kind === "pause") {
        gateway!.signal("SIGSTOP");
        await Bun.sleep(between({ least: 200, most: INSTANCE_LEASE_MS + 1_500 }));
        gateway!.signal("SIGCONT");
        continue;
      }
      gateway!.signal(kind === "kill" ? "SIGKILL" : "SIGTERM");
      if (kind === "kill") urls = [];
      await gateway!.exited;
      await start();
    }
    await expectExact(load, findRunningEmbeddedPostgres(dataDir)!, {
      instances: 1,
      ...figures,
    });
  },
  TIMEOUT_MS,
);

describe.skipIf(redisBinary === null)("three gateways", () => {
  let clustered: ClusteredGrounds | undefined;
  afterEach(() => clustered?.clear());

  test(
    `${DISASTERS} kills, pauses and stops among three gateways leave each key and line answered and charged once, seed ${SEED}`,
    async () => {
      // Files of batches are where each instance finds them.
      const settings = { ...environment, DATA_DIR: grounds.newDataDir() };
      clustered = await openClusteredGrounds(redisBinary!, 3, settings);
      const { cluster, instances } = clustered;
      const { secretKey, databaseUrl } = cluster;
      const storeId = await vectorStoreOf({ baseUrl: instances[0]!.baseUrl, secretKey }, texts);
      let away: number | undefined;
      const load = new LoopLoad({
        ...{ workers: 2 * WORKERS, kinds: LOOPS, secretKey, storeId, random },
        urls: () => clustered!.urls(away),
      });
      const figures = { kill: 0, stop: 0, pause: 0 };
      for (let at = 0; at < DISASTERS; at++) {
        await Bun.sleep(between(BETWEEN_MS));
        const kind = KINDS[at % KINDS.length]!;
        figures[kind]++;
        const place = Math.floor(random() * instances.length);
        const { gateway } = instances[place]!;
        if (kind === "pause") {
          gateway.signal("SIGSTOP");
          await until("it stands still", () => isStopped(gateway.pid));
          away = place;
          await until(
            "it is declared dead",
            () =>
              look(databaseUrl, async (sql) => {
                const [row] = await sql`SELECT count(*)::int AS alive FROM instances WHERE alive`;
                return row!.alive === instances.length - 1;
              }),
            PATIENCE_MS,
          );
          // What it left is being settled when it wakes.
          await Bun.sleep(between({ least: 0, most: 1_000 }));
          gateway.signal("SIGCONT");
        } else {
          gateway.signal(kind === "kill" ? "SIGKILL" : "SIGTERM");
          if (kind === "kill") away = place;
        }
        await gateway.exited;
        away = place;
        await clustered.start(place);
        away = undefined;
      }
      await expectExact(load, databaseUrl, { instances: 3, ...figures });
    },
    TIMEOUT_MS,
  );
});
