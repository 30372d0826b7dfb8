/*
 * One instance as a process of its own that does nothing but deliver webhooks: arguments are the
 * database, its name, and the time limit of an attempt in milliseconds. It says "ready", then each
 * second how many webhooks it acts for.
 */

import { systemClock } from "../../src/lib/clock.ts";
import { openConnections } from "../../src/main/compose/base.ts";
import { createClusterNode } from "../../src/main/compose/cluster-node.ts";
import { createWebhooks } from "../../src/main/compose/webhooks.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import { readConfig } from "../../src/platform/config.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import { keyringAt } from "../support/master-key.ts";
import { LOCAL_DELIVERY } from "./receiver.ts";

const [url, name, attemptTimeoutMs] = process.argv.slice(2) as [string, string, string];
const instance = { id: `ins_${name}`, epoch: BigInt(Date.now()) };
const connections = openConnections(
  { url },
  { instance, poolSize: 4, clock: systemClock, ledgerSettings: {}, onRenewed() {} },
);
const onError = (error: unknown) => console.error(name, error);

const telemetry = createTelemetry({ level: "silent" });
const changes = new ChangeFeed({ sql: connections.lock, onUnknownKind() {} });
const node = createClusterNode({
  connections,
  instance,
  deploymentMode: "clustered",
  clock: systemClock,
  telemetry,
  changes,
  onFenced() {
    process.exit(1);
  },
  onError,
  cleaningTasks: [],
});
const parts = createWebhooks({
  config: readConfig({
    ...LOCAL_DELIVERY,
    BUN_CONFIG_MAX_HTTP_REQUESTS: process.env.BUN_CONFIG_MAX_HTTP_REQUESTS,
  }),
  connections,
  instance,
  node,
  changes,
  keyring: await keyringAt(url),
  clock: systemClock,
  telemetry,
  attemptTimeoutMs: Number(attemptTimeoutMs),
  onError,
});
const { deliveries } = parts;
await node.enter();
await node.start();
parts.start();
console.log("ready");
const saying = setInterval(() => console.log(`owns ${deliveries.size}`), 1_000);

process.on("SIGTERM", async () => {
  clearInterval(saying);
  await parts.stop();
  await node.leave();
  await connections.close();
  process.exit(0);
});
