import { type Cluster, type Instance, openCluster, stopInOrder } from "../clustered/cluster.ts";
import { type RollingLoad, startRollingLoad } from "../clustered/rolling-load.ts";
import { auditOf } from "../crash/audit.ts";
import { holdsEnded } from "../crash/gateway-process.ts";
import type { Sent } from "../crash/load.ts";
import { createEmptyDatabase } from "../support/database.ts";
import { startTestServices } from "../support/services.ts";
import { until } from "../support/until.ts";
import { unpackProgram } from "./earlier-program.ts";

/*
 * By hand: bun test/upgrade/rolling-upgrade.ts <commit> [requests a second]
 *
 * Three gateways of an earlier program under a steady load are replaced by this program one by one; then one of
 * them goes back to the earlier one, and forth again. Fails where a request failed or the books are wrong.
 */

const [commit = "", rate = "200"] = process.argv.slice(2);
const INSTANCES = 3;
const LOOK_MS = 1_000;
const STEADY_MS = 2_000;
const READY_TIMEOUT_MS = 60_000;

async function replace(
  cluster: Cluster,
  instances: Instance[],
  load: RollingLoad,
  place: number,
  program: string | undefined,
): Promise<void> {
  const port = Number(new URL(instances[place]!.baseUrl).port);
  const exitCode = await stopInOrder(instances[place]!);
  if (exitCode !== 0) throw new Error(`instance ${place} ended with ${exitCode}`);
  instances[place] = await cluster.start(port, {}, program);
  await until("it is ready", () => load.isReady(place), READY_TIMEOUT_MS);
  await Bun.sleep(STEADY_MS);
  console.log(`instance ${place} is ${program === undefined ? "new" : "as before"}`);
}

function shown({ kind, status, errorCode, baseUrl, startedAtMs, endedAtMs, isWhole }: Sent) {
  return { kind: kind.name, status, errorCode, baseUrl, startedAtMs, endedAtMs, isWhole };
}

async function run(): Promise<boolean> {
  const earlier = await unpackProgram(commit);
  const services = await startTestServices();
  const { redisUrl } = services.services;
  if (redisUrl === undefined) throw new Error("a redis-server on the PATH is needed");
  const settings = { GATEWAY_SHUTDOWN_GRACE_MS: "12000" };
  const cluster = await openCluster(redisUrl, settings, createEmptyDatabase);
  try {
    // The first one migrates.
    const instances = [await cluster.start(0, {}, earlier)];
    while (instances.length < INSTANCES) instances.push(await cluster.start(0, {}, earlier));
    const ratePerSecond = Number(rate);
    const load = startRollingLoad(instances, {
      ratePerSecond,
      lookMs: LOOK_MS,
      key: cluster.secretKey,
    });
    const isReady = () => instances.every((_, place) => load.isReady(place));
    await until("all are ready", isReady, READY_TIMEOUT_MS);
    await Bun.sleep(STEADY_MS);
    for (let place = 0; place < INSTANCES; place++) {
      await replace(cluster, instances, load, place, undefined);
    }
    await replace(cluster, instances, load, 0, earlier);
    await replace(cluster, instances, load, 0, undefined);
    const all = await load.end();
    await Promise.all(instances.map(({ baseUrl }) => holdsEnded(baseUrl)));
    const failed = all.filter(({ isWhole }) => !isWhole);
    const violations = await auditOf(cluster.databaseUrl, cluster.upstream, all);
    console.log(`${all.length} requests at ${rate} a second, ${failed.length} failed`);
    for (const sent of failed.slice(0, 20)) console.log(JSON.stringify(shown(sent)));
    for (const violation of violations.slice(0, 20)) console.log(violation);
    return failed.length === 0 && violations.length === 0;
  } finally {
    await cluster.stop();
    await services.stop();
  }
}

process.exit((await run()) ? 0 : 1);
