/*
 * What one request allocates, by type: the gateway runs without a garbage collector, and the objects on
 * its heap are counted before and after a load. Times vary with the machine, this does not; and a request's
 * time goes with it, because what is allocated is cold memory, made and swept by native code.
 *
 *   bun test/bench/cells.ts             chat completions
 *   bun test/bench/cells.ts --stream    streams of 100 events
 */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { prepareDatabase } from "./bench-database.ts";
import { createKeys } from "./bench-keys.ts";
import { startChild, startServer } from "./children.ts";
import { Cleanups } from "./cleanups.ts";
import { Driver, type Target } from "./driver.ts";
import { dataDirOf, startGateway } from "./gateway-process.ts";

type Counts = Record<string, number>;

const CONNECTIONS = 32;
/** Until what is hot is compiled, for compiled code allocates less. */
const WARMUP_MS = 5_000;
const WARMUP_REQUESTS = 20_000;
const MEASURE_MS = 1_200;
const POLL_MS = 10;
/** Fewer a request are of the gateway's housekeeping. */
const LEAST_SHOWN = 0.05;

async function readCounts(pid: number, path: string): Promise<Counts> {
  process.kill(pid, "SIGUSR2");
  while (!existsSync(path)) await Bun.sleep(POLL_MS);
  const counts = JSON.parse(readFileSync(path, "utf8")) as Counts;
  rmSync(path);
  return counts;
}

async function measure(isStream: boolean, cleanups: Cleanups): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-cells-"));
  cleanups.add(() => rmSync(folder, { recursive: true, force: true }));
  // As root the database runs as another user, who has to pass through.
  chmodSync(folder, 0o711);
  const countsPath = join(folder, "counts.json");
  const upstream = await startServer("upstream.ts", cleanups);
  const load = startChild("load.ts", cleanups);
  await load.next();
  const database = await prepareDatabase(undefined, dataDirOf(folder));
  cleanups.add(() => database.drop());
  const gateway = await startGateway(
    {
      folder,
      upstreamPort: upstream.port,
      databaseUrl: database.url,
      logPath: undefined,
      profileDir: undefined,
      settings: {
        BUN_JSC_useGC: "0",
        BUN_OPTIONS: `--preload ${join(import.meta.dir, "heap-counts.ts")}`,
        HEAP_COUNTS_FILE: countsPath,
      },
    },
    cleanups,
  );
  const sql = database.connect();
  cleanups.add(() => sql.end({ timeout: 1 }));
  const [key = ""] = await createKeys(sql, 1);
  const target: Target = { name: "gateway", pid: gateway.pid, port: gateway.port, key };
  const workload = { model: "instant", isStream } as const;
  const driver = new Driver(load, upstream.pid);
  const run = { target, workload, connections: CONNECTIONS };
  await driver.run({ ...run, warmupMs: WARMUP_MS, warmupRequests: WARMUP_REQUESTS, measureMs: 1 });

  const before = await readCounts(gateway.pid, countsPath);
  const answeredBefore = driver.gatewayAnswers;
  await driver.run({ ...run, warmupMs: 0, measureMs: MEASURE_MS });
  const requests = driver.gatewayAnswers - answeredBefore;
  const after = await readCounts(gateway.pid, countsPath);
  show(perRequest(before, after, requests), requests);
}

function perRequest(before: Counts, after: Counts, requests: number): [string, number][] {
  return Object.entries(after)
    .map(([type, count]): [string, number] => [type, (count - (before[type] ?? 0)) / requests])
    .toSorted(([, one], [, other]) => other - one);
}

function show(types: readonly [string, number][], requests: number): void {
  const sum = types.reduce((total, [, count]) => total + count, 0);
  console.log(`${sum.toFixed(0)} cells a request, over ${requests} requests`);
  for (const [type, count] of types) {
    if (count >= LEAST_SHOWN) console.log(`${type.padEnd(26)} ${count.toFixed(1).padStart(7)}`);
  }
}

const cleanups = new Cleanups();
try {
  await measure(process.argv.includes("--stream"), cleanups);
} finally {
  await cleanups.run();
}
process.exit();
