import { guardLease, type Lease } from "../../actors/runtime/ownership.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { openConnections } from "../../src/main/compose/base.ts";
import { createClusterNode } from "../../src/main/compose/cluster-node.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";

/*
 * One of several instances that own actors, in a process of its own: each actor it owns notes its work in
 * a guarded transaction again and again, slowly enough that a pause finds it in the middle of one.
 * Arguments: the database, and a name for what it notes. Says "working" and "inside" on standard output.
 */

const KIND = "chore";
const WORK_EVERY_MS = 100;
const INSIDE_MS = 60;

const [url, name] = process.argv.slice(2) as [string, string];
const instance = { id: `ins_${name}`, epoch: BigInt(Date.now()) };
const connections = openConnections(
  { url },
  { instance, poolSize: 8, clock: systemClock, ledgerSettings: {}, onRenewed() {} },
);
const { background: sql } = connections;

const node = createClusterNode({
  connections,
  instance,
  deploymentMode: "clustered",
  clock: systemClock,
  telemetry: createTelemetry({ level: "silent" }),
  changes: new ChangeFeed({ sql: connections.lock, onUnknownKind() {} }),
  onFenced() {
    process.exit(1);
  },
  onError: (error) => console.error(error),
  cleaningTasks: [],
});
const { ownership, unowned } = node;

async function work(lease: Lease): Promise<void> {
  while (ownership.isHeld(lease)) {
    await sql
      .begin(async (transaction) => {
        await guardLease(transaction, lease, instance);
        console.log("inside");
        await Bun.sleep(INSIDE_MS);
        await transaction`INSERT INTO chores_done (id, instance, epoch)
          VALUES (${lease.id}, ${name}, ${lease.epoch.toString()}::bigint)`;
      })
      .catch((error) => console.error(String(error)));
    await Bun.sleep(WORK_EVERY_MS);
  }
}

unowned.register({
  kind: KIND,
  start: (lease) => void work(lease),
  async findWork(limit) {
    const rows = await sql<{ id: string }[]>`SELECT id FROM chores c
      WHERE NOT EXISTS (SELECT 1 FROM owned_actors o WHERE o.kind = ${KIND} AND o.id = c.id)
      ORDER BY id LIMIT ${limit}`;
    return rows.map(({ id }) => id);
  },
});
await node.enter();
await node.start();
console.log("working");
process.on("SIGTERM", async () => {
  await node.leave();
  process.exit(0);
});
