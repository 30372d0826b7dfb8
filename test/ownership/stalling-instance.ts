import { systemClock } from "../../src/lib/clock.ts";
import { openConnections } from "../../src/main/compose/base.ts";
import { createClusterNode } from "../../src/main/compose/cluster-node.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import { HeartbeatThread } from "../../src/platform/cluster/heartbeat-thread.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";

/*
 * One of several instances whose event loop stands still for a while, once it is a member. Arguments: the
 * database, its name, how long it stands still, after how long its heartbeats end, in milliseconds. Says
 * "member", then "stalling", then whether its lease was current right after, and ends with 1 where it was
 * declared dead.
 */

const [url, name, stallMs, maxStallMs] = process.argv.slice(2) as [string, string, string, string];
const instance = { id: `ins_${name}`, epoch: BigInt(Date.now()) };
const connections = openConnections(
  { url },
  { instance, poolSize: 2, clock: systemClock, ledgerSettings: {}, onRenewed() {} },
);
const onError = (error: unknown) => console.error(error);
const node = createClusterNode({
  connections,
  instance,
  deploymentMode: "clustered",
  heartbeats: new HeartbeatThread({
    target: { url },
    instance,
    maxStallMs: Number(maxStallMs),
    onError,
  }),
  clock: systemClock,
  telemetry: createTelemetry({ level: "silent" }),
  changes: new ChangeFeed({ sql: connections.lock, onUnknownKind() {} }),
  onFenced: () => process.exit(1),
  onError,
  cleaningTasks: [],
});
await node.enter();
await node.start();
console.log("member");
// The thread has connected by then.
await Bun.sleep(2_000);
const untilMs = performance.now() + Number(stallMs);
if (Number(stallMs) > 0) {
  console.log("stalling");
  while (performance.now() < untilMs);
  console.log(`current ${node.membership.lease.isCurrent}`);
}
process.on("SIGTERM", async () => {
  await node.leave();
  await connections.close();
  process.exit(0);
});
